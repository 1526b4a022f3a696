"""What Spark's codecs wrote is read, as a stream, and what cannot be read is named."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable

import pytest
import zstandard
from event_logs import CODECS, LOGS, read_text

from balancedstream.errors import InvalidInputError
from balancedstream.estimate import codecs
from balancedstream.estimate.codecs import CHUNK_BYTES, DamagedError, read_chunks


def unpack(data: bytes) -> bytes:
    return b"".join(read_chunks(io.BytesIO(data)))


def test_every_codec_of_spark_gives_the_same_lines() -> None:
    texts = {read_text(codec) for codec in CODECS}
    (text,) = texts
    assert text.startswith(b'{"Event":"SparkListenerLogStart"')
    assert text.endswith(b"}\n")


@pytest.mark.parametrize("codec", CODECS)
def test_streams_that_follow_one_another_are_read_to_the_last_one(codec: str) -> None:
    data = (LOGS / f"grown.{codec}").read_bytes()
    assert unpack(data + data) == 2 * read_text(codec)


def test_a_log_without_compression_and_one_that_a_person_compressed_are_read() -> None:
    text = read_text()
    assert unpack(text) == text
    assert unpack(gzip.compress(text) + gzip.compress(text)) == 2 * text


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_before_a_cut_is_read(codec: str) -> None:
    data = (LOGS / f"grown.{codec}").read_bytes()
    file = io.BytesIO(data[: len(data) * 2 // 3])
    found = b""
    try:
        for chunk in read_chunks(file):
            found += chunk
    except DamagedError:
        pass
    assert read_text(codec).startswith(found)
    assert len(found) > len(read_text(codec)) // 3


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_no_piece_is_larger_than_a_chunk_however_much_a_log_was_compressed(
    compress: Callable[[bytes], bytes],
) -> None:
    bomb = compress(bytes(50 * CHUNK_BYTES))
    assert len(bomb) < CHUNK_BYTES
    sizes = [len(chunk) for chunk in read_chunks(io.BytesIO(bomb))]
    assert max(sizes) <= CHUNK_BYTES
    assert sum(sizes) == 50 * CHUNK_BYTES


@pytest.mark.parametrize(
    "data",
    [
        # Lengths of 2 GiB, with nothing behind them.
        b"LZ4Block\x26" + b"\xff\xff\xff\x7f" * 3,
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xff",
        # A block of Snappy that says that it has 4 GiB.
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x05\xff\xff\xff\xff\x0f",
        # Windows of 2 GiB.
        b"\x28\xb5\x2f\xfd\x00\xa8" + bytes(9),
    ],
)
def test_a_length_that_lies_takes_no_memory(data: bytes) -> None:
    with pytest.raises(DamagedError):
        unpack(data)


def test_lzf_is_refused_with_what_to_do() -> None:
    data = b'ZV\x00\x00\x05{"Eve'
    with pytest.raises(InvalidInputError, match=r"lzf, .*spark.eventLog.compression.codec=zstd"):
        unpack(data)


def test_the_largest_block_that_spark_can_be_set_to_write_is_read() -> None:
    assert codecs.MAX_BLOCK_BYTES >= 1 << 25
