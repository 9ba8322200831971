"""What one task reads: offsets of one partition. And how ranges are cut into as many as are wanted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """From `start` on and below `end`; of that, where it says so, only from one time on and below another."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    least_time_ms: int | None = None
    time_limit_ms: int | None = None

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offsets {self.start} to {self.end}"


def split(ranges: Iterable[OffsetRange], least_count: int | None, most_records: int | None) -> list[OffsetRange]:
    """Those that hold something, cut so that none has more than `most_records` and there are about `least_count`."""
    found = [one for one in ranges if one.size > 0]
    if most_records is not None:
        found = [part for one in found for part in _cut(one, -(-one.size // most_records))]
    if least_count is not None and len(found) < least_count:
        total = sum(one.size for one in found)
        found = [part for one in found for part in _cut(one, -(-one.size * least_count // total))]
    return found


def _cut(one: OffsetRange, count: int) -> list[OffsetRange]:
    """Into equal parts, to a record."""
    count = max(1, min(count, one.size))
    edges = [one.start + one.size * index // count for index in range(count + 1)]
    return [replace(one, start=edges[index], end=edges[index + 1]) for index in range(count)]
