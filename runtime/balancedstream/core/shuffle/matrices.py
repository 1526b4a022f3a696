"""Adds matrices of signed 64-bit numbers in one flat array, and writes them as bytes."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence


def add_matrices(matrices: Sequence[array[int]]) -> array[int]:
    """Add matrices of one shape cell by cell.

    The function adds all cells at once, as one large number. Nothing carries into the next cell as
    long as no cell of the sum is negative or above 2^63 - 1; the caller must ensure this.

    >>> add_matrices([array("q", [1, 2]), array("q", [30, 40])]).tolist()
    [31, 42]
    """
    total = sum(int.from_bytes(matrix.tobytes(), sys.byteorder) for matrix in matrices)
    return array("q", total.to_bytes(8 * len(matrices[0]), sys.byteorder))


def to_little_endian(matrix: array[int]) -> bytes:
    """The cells as bytes, least byte first, the same on every platform.

    >>> to_little_endian(array("q", [258])).hex()
    '0201000000000000'
    """
    if sys.byteorder == "big":
        matrix = matrix[:]
        matrix.byteswap()
    return matrix.tobytes()


def from_little_endian(data: bytes) -> array[int]:
    """The cells that `to_little_endian` wrote.

    >>> from_little_endian(bytes.fromhex("0201000000000000")).tolist()
    [258]
    """
    matrix = array("q", data)
    if sys.byteorder == "big":
        matrix.byteswap()
    return matrix
