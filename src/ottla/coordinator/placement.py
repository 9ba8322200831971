"""Which partition of a coordinator's topic an id belongs to: as Kafka places it, by Java's hash of a string."""

from __future__ import annotations

import functools
import struct


@functools.lru_cache(maxsize=10_000)
def partition_for(name: str, partition_count: int) -> int:
    return _absolute(java_hash(name)) % partition_count


def java_hash(text: str) -> int:
    """The hash of a Java string, over its UTF-16 units, as a signed 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", data):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _absolute(value: int) -> int:
    """The absolute value in 32 bits, where that of the least number is 0."""
    return 0 if value == -(1 << 31) else abs(value)
