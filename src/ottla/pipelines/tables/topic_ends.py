"""Where the partitions of a topic begin and end, and how far a table is behind."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.client import EARLIEST, LATEST, Admin, ClientError, ClientOptions, Isolation
from ottla.pipelines.tables.table import Offsets

_PAUSE_SECONDS = 0.5
MARK = -1
"""In the place of a partition's number, where it is not an offset but the topic's mark."""
COUNT = -2
"""Where it is the number of the topic's partitions."""
_MARK_BYTES = 7  # a positive number in 64 bits


class TopicChanged(Exception):
    """The topic is not the one that the table was made from; the text says why."""


@dataclass(frozen=True, slots=True)
class Span:
    """The first offset that is there, and the next that will be given."""

    start: int
    end: int


def spans(
    bootstrap: str, topic: str, isolation: Isolation = Isolation.READ_COMMITTED, *, timeout_ms: int = 30_000
) -> dict[int, Span]:
    """Each partition of the topic with its ends: as far as one may read who does not read what is not decided yet."""
    options = ClientOptions(client_id="ottla-pipeline", retry_timeout_ms=timeout_ms)
    with Admin(bootstrap, options) as admin:
        starts, ends = admin.find_offsets(topic, EARLIEST), admin.find_offsets(topic, LATEST, isolation=isolation)
    return {partition: Span(_number(starts[partition]), _number(ends[partition])) for partition in sorted(ends)}


def await_topics(
    bootstrap: str, topics: Sequence[str], seconds: float, should_stop: Callable[[], bool] = lambda: False
) -> None:
    """Return when all of the topics can be read; what the last attempt raised, if that takes longer."""
    until = time.monotonic() + seconds
    for topic in topics:
        while not should_stop():
            left = until - time.monotonic()
            try:
                spans(bootstrap, topic, timeout_ms=max(round(left * 1000), 1))
                break
            except (ClientError, OSError):
                if left < _PAUSE_SECONDS:
                    raise
                time.sleep(_PAUSE_SECONDS)


def _number(found: object) -> int:
    return int(getattr(found, "offset", found))  # type: ignore[call-overload, no-any-return]


def topic_mark(bootstrap: str, topic: str) -> Offsets:
    """What tells the topic from one that is created again under its name; a table keeps it beside its offsets."""
    with Admin(bootstrap, ClientOptions(client_id="ottla-pipeline")) as admin:
        [found] = admin.describe_topics([topic])
    return {(topic, MARK): _mark(found.topic_id)}


def mark_of_text(topic_id: str) -> int:
    """The mark of a topic whose id is written as Kafka's tools print it."""
    return _mark(base64.urlsafe_b64decode(f"{topic_id}=="))


def _mark(topic_id: bytes) -> int:
    return int.from_bytes(topic_id[:_MARK_BYTES], "big")


def check_mark(mark: Offsets, known: Offsets) -> None:
    for (topic, _), number in mark.items():
        if known.get((topic, MARK), number) != number:
            raise TopicChanged(
                f"{topic} was deleted and created again since the table has read it; "
                "'ottla pipeline rebuild' makes the table from what the topic has"
            )


def check_count(count: Offsets, known: Offsets) -> None:
    """For a table whose changes are in the order of their offsets."""
    for place, number in count.items():
        if known.get(place, number) != number:
            raise TopicChanged(
                f"{place[0]} has {number} partitions now, and had {known[place]} when the table began: keys may have "
                'moved, and with sequence_by = "offset" only the changes of one partition have an order; where none '
                "has moved, 'ottla pipeline rebuild' makes the table from what the topic has"
            )


def starting_offsets(
    topic: str, partitions: dict[int, Span], known: Offsets, *, fails_on_data_loss: bool = True
) -> dict[str, int]:
    """Where to go on reading: behind what the table has, else at the beginning. By the partition's number as text."""
    found = {}
    for partition, span in partitions.items():
        last = known.get((topic, partition))
        if last is not None and last >= span.end:
            raise TopicChanged(
                f"{topic}, partition {partition}: the table has offset {last}, but the topic ends at {span.end}; "
                "was it made anew? 'ottla pipeline rebuild' makes the table from what the topic has"
            )
        if last is not None and last + 1 < span.start and fails_on_data_loss:
            raise TopicChanged(
                f"{topic}, partition {partition}: the table has offset {last}, but the topic begins at {span.start}: "
                "the retention has removed changes that the table never had; to go on without them set "
                'failOnDataLoss to "false" among the pipeline\'s options'
            )
        found[str(partition)] = span.start if last is None else max(last + 1, span.start)
    return found


def lag_records(topic: str, partitions: dict[int, Span], known: Offsets) -> int:
    """How many offsets the table is behind."""
    return sum(
        max(span.end - max(known.get((topic, partition), -1) + 1, span.start), 0)
        for partition, span in partitions.items()
    )
