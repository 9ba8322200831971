"""Handing out what is held: as messages, as batches, as Arrow. Plain generators, for both faces of the consumer.

While something is out, the place remembers it as in hand: who asks for the next thing has processed the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.client.consumer.fetched_data import Fetched
from ottla.client.consumer.partition_position import Held
from ottla.client.message import Message

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class HasInterruptions(Protocol):
    """A consumer: whether something has to be done before more is handed out."""

    interrupted: bool
    delivery: Any


def hand_out(
    consumer: HasInterruptions, ready: Iterable[Held], opened: Callable[[HasInterruptions, Held], Iterator[T]]
) -> Iterator[T]:
    """Until all is out or something comes in between. What is left is put back."""
    queue = deque(ready)
    try:
        while queue and not consumer.interrupted:
            yield from opened(consumer, queue.popleft())
    finally:
        for held in reversed(queue):
            held.place.put_back(held)


def hand_out_messages(consumer: HasInterruptions, held: Held) -> Iterator[Message]:
    place, portion, _ = held
    topic, partition = place.topic_partition
    # What is committed already would be lost if it was put back, and then taken away.
    may_interrupt = consumer.delivery != "at-most-once"
    is_out = False
    try:
        for record in portion.records():
            offset = record.offset
            place.in_hand = offset
            place.position = offset + 1
            yield Message(topic, partition, record)
            if consumer.interrupted and (may_interrupt or held.is_stale):
                return
        is_out = True
    finally:
        if is_out:
            place.in_hand = None
            place.position = portion.next_offset
        else:
            place.put_back(held)


def hand_out_batches(_: HasInterruptions, held: Held) -> Iterator[Fetched]:
    place, portion, _version = held
    fetched = portion.fetched()
    place.in_hand = portion.start
    place.position = portion.next_offset
    if fetched.records:
        yield fetched
    if not held.is_stale:
        place.in_hand = None


def hand_out_arrow(*, with_headers: bool) -> Callable[[HasInterruptions, Held], Iterator[pa.RecordBatch]]:
    from ottla.client.producer.arrow import record_batches

    def opened(_: HasInterruptions, held: Held) -> Iterator[pa.RecordBatch]:
        place, portion, _version = held
        batches = record_batches(portion, with_headers=with_headers)
        place.in_hand = portion.start
        place.position = portion.next_offset
        yield from batches
        if not held.is_stale:
            place.in_hand = None

    return opened
