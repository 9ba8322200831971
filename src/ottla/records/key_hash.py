# cython: boundscheck=False, wraparound=False
"""Kafka's hash of a record's key, which decides the partition. Done for every keyed record, so it is compiled."""

from __future__ import annotations

from collections.abc import Iterable

NO_KEY = -1
SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
UINT32 = 0xFFFFFFFF
INT31 = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """32 bits, unsigned."""
    size = len(data)
    hashed = SEED ^ size
    position = 0
    while position + 4 <= size:
        word = data[position] | data[position + 1] << 8 | data[position + 2] << 16 | data[position + 3] << 24
        word = word * MULTIPLIER & UINT32
        word = (word ^ word >> 24) * MULTIPLIER & UINT32
        hashed = hashed * MULTIPLIER & UINT32 ^ word
        position += 4
    if position < size:
        word = 0
        shift = 0
        while position < size:
            word |= data[position] << shift
            shift += 8
            position += 1
        hashed = (hashed ^ word) * MULTIPLIER & UINT32
    hashed = (hashed ^ hashed >> 13) * MULTIPLIER & UINT32
    return hashed ^ hashed >> 15


def partitions_of_keys(keys: Iterable[bytes | None], partition_count: int) -> list[int]:
    """Where Kafka's own producers write each key, so that all writers agree; NO_KEY for who has none."""
    return [NO_KEY if key is None else (murmur2(key) & INT31) % partition_count for key in keys]
