"""Where the partitions of a topic begin and end, and how far a table is behind."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.client import EARLIEST, LATEST, Admin, ClientOptions
from ottla.pipelines.tables.table import Offsets


class TopicChanged(Exception):
    """The topic is not the one that the table was made from; the text says why."""


@dataclass(frozen=True, slots=True)
class Span:
    """The first offset that is there, and the next that will be given."""

    start: int
    end: int


def spans(bootstrap: str, topic: str, *, timeout_ms: int = 30_000) -> dict[int, Span]:
    """Each partition of the topic with its ends."""
    options = ClientOptions(client_id="ottla-pipeline", retry_timeout_ms=timeout_ms)
    with Admin(bootstrap, options) as admin:
        starts, ends = admin.find_offsets(topic, EARLIEST), admin.find_offsets(topic, LATEST)
    return {partition: Span(_number(starts[partition]), _number(ends[partition])) for partition in sorted(ends)}


def _number(found: object) -> int:
    return int(getattr(found, "offset", found))  # type: ignore[call-overload, no-any-return]


def starting_offsets(topic: str, partitions: dict[int, Span], known: Offsets) -> dict[str, int]:
    """Where to go on reading: behind what the table has, else at the beginning. By the partition's number as text."""
    found = {}
    for partition, span in partitions.items():
        last = known.get((topic, partition))
        if last is not None and last >= span.end:
            raise TopicChanged(
                f"{topic}, partition {partition}: the table has offset {last}, but the topic ends at {span.end}; "
                "was it made anew? 'ottla pipeline rebuild' makes the table from what the topic has"
            )
        if last is not None and last + 1 < span.start:
            raise TopicChanged(
                f"{topic}, partition {partition}: the table has offset {last}, but the topic begins at {span.start}: "
                "the retention has removed changes that the table never had"
            )
        found[str(partition)] = span.start if last is None else last + 1
    return found


def lag_records(topic: str, partitions: dict[int, Span], known: Offsets) -> int:
    """How many offsets the table is behind."""
    return sum(
        max(span.end - max(known.get((topic, partition), -1) + 1, span.start), 0)
        for partition, span in partitions.items()
    )
