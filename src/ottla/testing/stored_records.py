"""The records that lie in a topic of a broker for tests, and in what they differ from those that a test expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.broker.topics import Topic

READ_BYTES = 1 << 20
SHOWN_VALUES = 5


class StoredRecord(NamedTuple):
    """A record as it lies in a topic."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def stored_records(topic: Topic, committed_only: bool) -> Iterator[StoredRecord]:
    """What a consumer from the beginning would get, partition after partition."""
    from ottla.client.consumer.visible import visible_batches

    for partition in topic.partitions:
        offset = partition.log.log_start_offset
        while True:
            read = partition.read(offset, READ_BYTES, committed_only=committed_only)
            if read.records is None:
                break
            aborted = [(entry.producer_id, entry.first_offset) for entry in read.aborted or ()]
            for batch, is_visible in visible_batches(read.records.read(), offset, aborted):
                records = batch.records(offset) if is_visible else ()
                offset = batch.header.next_offset
                for record in records:
                    yield StoredRecord(
                        partition.index, record.offset, record.timestamp, record.key, record.value, record.headers
                    )


def difference(topic: str, found: Sequence[bytes | None], wanted: Sequence[bytes | None]) -> str:
    """What a topic lacks and what it has too much, in a line that can be read however many records there are."""
    counts = f"topic {topic} has {len(found)} records where {len(wanted)} were expected"
    sides = {"missing": Counter(wanted) - Counter(found), "not expected": Counter(found) - Counter(wanted)}
    return "; ".join([counts, *(f"{name}: {_some(values)}" for name, values in sides.items() if values)])


def _some(values: Counter[bytes | None]) -> str:
    shown = ", ".join(repr(value) for value in islice(values.elements(), SHOWN_VALUES))
    left = values.total() - SHOWN_VALUES
    return shown if left <= 0 else f"{shown} and {left} more"
