"""Whether the keys of produced records are in the partition that they belong to."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable, Iterable

from ottla.records.batch import Buffer
from ottla.records.codec import decode_keys
from ottla.records.key_hash import partitions_of_keys

MURMUR2 = "murmur2"
CRC32 = "crc32"


class Stray(enum.IntEnum):
    """What is to be done with a batch, for keys that belong elsewhere."""

    NONE = 0
    COUNTED = 1
    REFUSED = 2


def _partitions_by_crc32(keys: Iterable[bytes | None], partition_count: int) -> list[int]:
    """As librdkafka chooses them by default; keys of no bytes go anywhere, like none."""
    return [zlib.crc32(key) % partition_count if key else -1 for key in keys]


PARTITIONERS: dict[str, Callable[[Iterable[bytes | None], int], list[int]]] = {
    MURMUR2: partitions_of_keys,
    CRC32: _partitions_by_crc32,
}
"""By name: the partition of each key among so many, -1 for one that may be anywhere."""


def strays_among(keys: Iterable[bytes | None], index: int, partition_count: int, partitioner: str) -> bool:
    """Whether one of these keys belongs to another partition than `index`."""
    return not set(PARTITIONERS[partitioner](keys, partition_count)) <= {index, -1}


class Placement:
    """What a partition of a topic that has grown in order, or grows, asks of keys."""

    def __init__(self, index: int, partition_count: int, partitioner: str, *, required_count: int | None) -> None:
        """Keys that belong elsewhere among `partition_count` are counted, those that do among `required_count` refused.

        None: nothing is refused.
        """
        self.index = index
        self.partition_count = partition_count
        self.partitioner = partitioner
        self.required_count = required_count
        self.is_paused = False  # nothing is taken for a moment, so that producers ask for metadata
        self.strays = 0  # batches with keys that belong elsewhere, which came

    def is_like(self, other: Placement | None) -> bool:
        return other is not None and self._form == other._form

    @property
    def _form(self) -> tuple[int, int, str, int | None]:
        return self.index, self.partition_count, self.partitioner, self.required_count

    def look(self, area: Buffer, count: int) -> Stray:
        """How far the keys of records are from where they belong."""
        keys = [entry[1] for entry in decode_keys(area, count)]
        if not strays_among(keys, self.index, self.partition_count, self.partitioner):
            return Stray.NONE
        required = self.required_count
        if required is None:
            return Stray.COUNTED
        if required != self.partition_count and not strays_among(keys, self.index, required, self.partitioner):
            return Stray.COUNTED
        return Stray.REFUSED
