"""Routes: the hidden integer beside a key that decides which state partition the key goes to.

A job with key assignments groups by (route, key) instead of key. Spark's hash partitioning then
sends a row to `pmod(hash(route, key), partitions)`. So each key has a route to each partition, and
Spark itself shuffles the rows. **A key that never moved has route 0**, and so does every row with a
null key. A moved key has the smallest route that leads to its partition. A key that returns to its
first partition has route 0 again. Routes are our own design.

The hash must equal Spark's, bit for bit: `Murmur3Hash` with seed 42 (`HashExpression` in Catalyst's
hash.scala, `Murmur3_x86_32` in common/unsafe) and `Pmod` (`HashPartitioning`). Spark keeps both the
same in all versions, because the state of running queries depends on them. The hash of each value
is the seed for the next value, so several columns have the same hash as one struct of them. A null
leaves the seed as it is.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import NamedTuple

from balancedstream.core.keys.types import ArrayKey, DecimalKey, KeyType, Primitive, StructKey
from balancedstream.errors import InvalidInputError

MAX_ROUTE = 2**31 - 1
"""The largest route, because a route is a column of Spark's type integer."""

MAX_PARTITIONS = 2**31 - 1

_SEED = 42
_WORD = 0xFFFF_FFFF

# Spark hashes decimals of up to this many digits as a long (Decimal.MAX_LONG_DIGITS).
_LONG_DIGITS = 18


class _Block(NamedTuple):
    """One value as input of Murmur3: premixed 32-bit words, and the length in bytes."""

    words: tuple[int, ...]
    length: int


def spark_hash(value: object, key_type: KeyType, seed: int = _SEED) -> int:
    """Spark's `hash(value)`, from -2^31 to 2^31 - 1.

    Args:
        value: as `Primitive` describes; a `decimal.Decimal`; a list or tuple for an array; a tuple
            or `Row` for a struct; None for null.
        key_type: type of the value.
        seed: hash of the preceding values; Spark's 42 for the first value.

    Raises:
        InvalidInputError: the value does not have the type; the message names the field.

    >>> spark_hash("Spark", Primitive("string"))
    228093765
    >>> integer = Primitive("integer")
    >>> columns = {"c1": Primitive("string"), "c2": ArrayKey(integer), "c3": integer}
    >>> spark_hash(("Spark", [123], 2), StructKey(tuple(columns.items())))
    -1321691492
    >>> spark_hash(None, integer)
    42
    """
    return _signed(_fold(seed & _WORD, tuple(_blocks("key", value, key_type))))


def partition_of(route: int, key: object, key_type: KeyType, partitions: int) -> int:
    """The state partition to which Spark sends a row with this route and key.

    Args:
        route: from 0 to 2^31 - 1.
        key: as for `spark_hash`; None for a null key.
        key_type: the key's type.
        partitions: number of state partitions.

    Raises:
        InvalidInputError: a value is out of range or does not have the type; the message names the
            field.

    >>> [partition_of(route, "de", Primitive("string"), 8) for route in range(8)]
    [5, 7, 0, 0, 0, 5, 1, 5]
    """
    _check_integer("route", route, 0, MAX_ROUTE)
    _check_integer("partitions", partitions, 1, MAX_PARTITIONS)
    return spark_hash(key, key_type, _route_hash(route)) % partitions


def find_route(
    key: object, key_type: KeyType, partition: int, partitions: int, *, most: int | None = None
) -> int | None:
    """The smallest route that brings a key to a partition.

    No two routes give a key the same hash, so some route leads to each partition. On average the
    search tries as many routes as there are partitions. With the default of `most`, one search in
    10^27 fails.

    Args:
        key: as for `spark_hash`.
        key_type: the key's type.
        partition: state partition that the key must go to, 0-based.
        partitions: number of state partitions.
        most: number of routes to try; by default 64 for each partition.

    Returns:
        The route; 0 if Spark sends the key to this partition anyway. None if the search found no
        route, so that the key must stay in its partition.

    Raises:
        InvalidInputError: a value is out of range or does not have the type; the message names the
            field.

    >>> find_route("de", Primitive("string"), 5, 8)
    0
    >>> find_route("de", Primitive("string"), 1, 8)
    6
    """
    _check_integer("partitions", partitions, 1, MAX_PARTITIONS)
    _check_integer("partition", partition, 0, partitions - 1)
    if most is None:
        most = min(64 * partitions, MAX_ROUTE)
    _check_integer("most", most, 1, MAX_ROUTE)
    blocks = tuple(_blocks("key", key, key_type))
    for route in range(most):
        if _signed(_fold(_route_hash(route), blocks)) % partitions == partition:
            return route
    return None


def _route_hash(route: int) -> int:
    return _fold(_SEED, (_Block((_mix(route),), 4),))


def _mix(word: int) -> int:
    """The premixed form in which a word of the input enters the hash of Murmur3."""
    word = word * 0xCC9E2D51 & _WORD
    word = (word << 15 | word >> 17) & _WORD
    return word * 0x1B873593 & _WORD


def _fold(seed: int, blocks: Sequence[_Block]) -> int:
    """Hash block after block, each with the hash so far as its seed; all unsigned."""
    for words, length in blocks:
        for word in words:
            seed ^= word
            seed = (seed << 13 | seed >> 19) & _WORD
            seed = (seed * 5 + 0xE6546B64) & _WORD
        seed ^= length
        seed ^= seed >> 16
        seed = seed * 0x85EBCA6B & _WORD
        seed ^= seed >> 13
        seed = seed * 0xC2B2AE35 & _WORD
        seed ^= seed >> 16
    return seed


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _int_block(value: int) -> _Block:
    return _Block((_mix(value & _WORD),), 4)


def _long_block(value: int) -> _Block:
    return _Block((_mix(value & _WORD), _mix(value >> 32 & _WORD)), 8)


def _bytes_block(data: bytes) -> _Block:
    """`hashUnsafeBytes`, not the later `hashUnsafeBytes2`: each byte of the tail is a word."""
    aligned = len(data) - len(data) % 4
    words = struct.unpack(f"<{aligned // 4}I{len(data) - aligned}b", data)
    return _Block(tuple(_mix(word & _WORD) for word in words), len(data))


def _blocks(path: str, value: object, key_type: KeyType) -> Iterator[_Block]:
    """The values of a key, in Spark's order, without nulls."""
    if value is None:
        return
    match key_type:
        case Primitive(name):
            yield _PRIMITIVES[name](path, value)
        case DecimalKey(precision, scale):
            yield _decimal_block(path, value, precision, scale)
        case ArrayKey(element):
            if not isinstance(value, list | tuple):
                raise _invalid(path, "a list", value)
            for position, entry in enumerate(value):
                yield from _blocks(f"{path}[{position}]", entry, element)
        case StructKey(fields):
            if not isinstance(value, tuple) or len(value) != len(fields):
                raise _invalid(path, f"a tuple of {', '.join(name for name, _ in fields)}", value)
            for (name, field_type), entry in zip(fields, value, strict=True):
                yield from _blocks(f"{path}.{name}", entry, field_type)


def _boolean(path: str, value: object) -> _Block:
    if not isinstance(value, bool):
        raise _invalid(path, "a bool", value)
    return _int_block(int(value))


def _integer(bits: int) -> Callable[[str, object], _Block]:
    def block(path: str, value: object) -> _Block:
        number = _check_integer(path, value, -(1 << bits - 1), (1 << bits - 1) - 1)
        return _long_block(number) if bits == 64 else _int_block(number)

    return block


def _float(path: str, value: object) -> _Block:
    try:
        packed = struct.pack("<f", _normalize(path, value))
    except OverflowError as problem:
        raise _invalid(path, "in the range of a 32-bit float", value) from problem
    return _Block((_mix(struct.unpack("<I", packed)[0]),), 4)


def _double(path: str, value: object) -> _Block:
    words = struct.unpack("<II", struct.pack("<d", _normalize(path, value)))
    return _Block(tuple(map(_mix, words)), 8)


def _normalize(path: str, value: object) -> float:
    """One zero and one NaN, as in Spark (Java's `floatToIntBits` has only one NaN)."""
    if not isinstance(value, float):
        raise _invalid(path, "a float", value)
    if math.isnan(value):
        return math.nan
    return value or 0.0


def _string(path: str, value: object) -> _Block:
    if not isinstance(value, str):
        raise _invalid(path, "a str", value)
    try:
        return _bytes_block(value.encode())
    except UnicodeEncodeError as problem:
        raise _invalid(path, "text that UTF-8 can encode", value) from problem


def _binary(path: str, value: object) -> _Block:
    if not isinstance(value, bytes | bytearray):
        raise _invalid(path, "bytes", value)
    return _bytes_block(bytes(value))


def _decimal_block(path: str, value: object, precision: int, scale: int) -> _Block:
    if not isinstance(value, Decimal) or not value.is_finite():
        raise _invalid(path, "a finite decimal.Decimal", value)
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
    try:
        scaled = value.quantize(Decimal((0, (1,), -scale)), context=exact)
    except (Inexact, InvalidOperation) as problem:
        digits = f"{precision} digits, {scale} of them after the point"
        raise _invalid(path, f"a decimal of at most {digits}", value) from problem
    unscaled = int(scaled.scaleb(scale, context=exact))
    if precision <= _LONG_DIGITS:
        return _long_block(unscaled)
    # The fewest bytes that hold the digits and the sign, as in java.math.BigInteger.toByteArray.
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return _bytes_block(unscaled.to_bytes(length, "big", signed=True))


_PRIMITIVES: Mapping[str, Callable[[str, object], _Block]] = {
    "boolean": _boolean,
    "byte": _integer(8),
    "short": _integer(16),
    "integer": _integer(32),
    "date": _integer(32),
    "long": _integer(64),
    "timestamp": _integer(64),
    "timestamp_ntz": _integer(64),
    "time": _integer(64),
    "float": _float,
    "double": _double,
    "string": _string,
    "binary": _binary,
}


def _check_integer(path: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _invalid(path, f"an integer from {least} to {most}", value)
    return value


def _invalid(path: str, allowed: str, value: object) -> InvalidInputError:
    return InvalidInputError(f"{path}: must be {allowed}, not {value!r:.80}")
