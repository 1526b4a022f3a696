"""Decompresses what Spark's codecs wrote (`org.apache.spark.io.CompressionCodec`), as a stream.

The codec shows in the first bytes of a file. Spark gives LZ4 and Snappy framings of their own:
those of `net.jpountz.lz4.LZ4BlockOutputStream` and `org.xerial.snappy.SnappyOutputStream`. All
framings may follow one another in a file: a log that is flushed while the application runs
(`compressedContinuousOutputStream`) has many.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO, Literal

import cramjam
import zstandard

from balancedstream.errors import InvalidInputError

CHUNK_BYTES = 1 << 18
"""So much is read at once."""

MAX_BLOCK_BYTES = 64 << 20
"""No block is larger: Spark's have 32 KiB, at most what `spark.io.compression.*.blockSize` says."""

_MAX_WINDOW_BYTES = 128 << 20

_ZSTD = b"\x28\xb5\x2f\xfd"
_LZ4 = b"LZ4Block"
_SNAPPY = b"\x82SNAPPY\x00"
_GZIP = b"\x1f\x8b"
_LZF = b"ZV"

_LZ4_HEADER = 21
_SNAPPY_HEADER = 16


class DamagedError(Exception):
    """The rest of a file cannot be decompressed: it was cut off, or changed."""


def read_chunks(file: BinaryIO, name: object = "it") -> Iterator[bytes]:
    """The decompressed bytes of a file, in pieces.

    Args:
        file: at its beginning.
        name: what errors call it.

    Raises:
        DamagedError: no more can be read; all that came before holds.
        InvalidInputError: it is compressed in a way that is not read.
    """
    start = file.read(len(_LZ4))
    file.seek(0)
    if start.startswith(_ZSTD):
        yield from _read_zstd(file)
    elif start.startswith(_LZ4):
        yield from _read_lz4(file)
    elif start.startswith(_SNAPPY):
        yield from _read_snappy(file)
    elif start.startswith(_GZIP):
        yield from _read_gzip(file)
    elif start.startswith(_LZF):
        message = (
            f"event log: {name} is compressed with lzf, which is not read; let Spark write logs "
            "with spark.eventLog.compression.codec=zstd"
        )
        raise InvalidInputError(message)
    else:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _read_zstd(file: BinaryIO) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    with decompressor.stream_reader(file, read_across_frames=True, closefd=False) as stream:
        while True:
            try:
                out = stream.read(CHUNK_BYTES)
            except zstandard.ZstdError as error:
                raise DamagedError(str(error)) from error
            if not out:
                break
            yield out


def _read_gzip(file: BinaryIO) -> Iterator[bytes]:
    """Spark writes none, but people compress logs that they keep."""
    inflater = zlib.decompressobj(wbits=31)
    begun = False
    while data := file.read(CHUNK_BYTES):
        while data:
            try:
                out = inflater.decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                raise DamagedError(str(error)) from error
            begun = True
            if out:
                yield out
            data = inflater.unconsumed_tail
            if inflater.eof:
                data, begun = inflater.unused_data, False
                inflater = zlib.decompressobj(wbits=31)
    if begun:
        message = "the last member is cut off"
        raise DamagedError(message)


def _read_lz4(file: BinaryIO) -> Iterator[bytes]:
    """Blocks of a header (magic, token, both lengths, checksum) and their data."""
    while header := file.read(_LZ4_HEADER):
        if len(header) < _LZ4_HEADER or not header.startswith(_LZ4):
            message = "no LZ4 block begins where one should"
            raise DamagedError(message)
        method = header[8] & 0xF0
        size = _to_size(header[9:13], "little")
        original = _to_size(header[13:17], "little")
        data = _read_block(file, size)
        if not original:
            continue  # ends a stream; another one may follow
        if method == 0x10:
            out = data
        elif method == 0x20:
            try:
                out = bytes(cramjam.lz4.decompress_block(data, output_len=original))
            except Exception as error:
                raise DamagedError(str(error)) from error
        else:
            message = f"an LZ4 block has the unknown method {method:#x}"
            raise DamagedError(message)
        if len(out) != original:
            message = "an LZ4 block has another length than it says"
            raise DamagedError(message)
        yield out


def _read_snappy(file: BinaryIO) -> Iterator[bytes]:
    """A header, then blocks of a length and their data; a header may follow again."""
    while start := file.read(4):
        if start == _SNAPPY[:4]:
            _read_block(file, _SNAPPY_HEADER - 4)
            continue
        data = _read_block(file, _to_size(start, "big"))
        try:
            # Its first bytes say how long it will be: nothing is allocated for a lie.
            if not 0 <= cramjam.snappy.decompress_raw_len(data) <= MAX_BLOCK_BYTES:
                message = "a Snappy block is too long"
                raise DamagedError(message)
            out = bytes(cramjam.snappy.decompress_raw(data))
        except DamagedError:
            raise
        except Exception as error:
            raise DamagedError(str(error)) from error
        yield out


def _to_size(data: bytes, order: Literal["big", "little"]) -> int:
    size = int.from_bytes(data, order)
    if len(data) < 4 or size > MAX_BLOCK_BYTES:
        message = "a block is too long"
        raise DamagedError(message)
    return size


def _read_block(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        message = "the last block is cut off"
        raise DamagedError(message)
    return data
