"""Handing out what was fetched: as messages, as batches, as Arrow. Plain generators, for both faces of the consumer.

A user who asks for the next thing is done with the last one. What was handed out last before a loop ended is settled
when more is asked for, so nothing is lost if a generator is never resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ottla.client.consumer.fetched_data import Fetched, Sound
from ottla.client.consumer.partition_position import Entry
from ottla.client.errors import ClientError, DeserializationFailed
from ottla.client.message import DecodedMessage, DecodedRecord, Message
from ottla.client.serde.binding import Deserializers
from ottla.records.codec import Record

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


def decode(deserializers: Deserializers, topic: str, partition: int, record: Record) -> DecodedRecord:
    part = "key"
    try:
        key = deserializers.key(topic, record.key)
        part = "value"
        value = deserializers.value(topic, record.value)
    except Exception as error:
        if isinstance(error, ClientError) and error.is_retriable:
            raise  # a registry that is away, say: the record may be sound
        raise DeserializationFailed(topic, partition, record, part, error) from error
    return DecodedRecord(record, key, value)


class HandOut:
    """What one call of the consumer's core gave to its user."""

    __slots__ = ("deserializers", "entries", "is_interrupted", "is_last", "is_stopped")

    def __init__(
        self, entries: list[Entry], deserializers: Deserializers, *, is_last: bool = False, is_stopped: bool = False
    ) -> None:
        self.entries = entries
        self.deserializers = deserializers
        self.is_interrupted = False
        """Something has to be done before more of it is handed out."""
        self.is_last = is_last or is_stopped
        """There is no time for more."""
        self.is_stopped = is_stopped
        """The user wants the loop to end."""


Opened: TypeAlias = Callable[[HandOut], Iterator[T]]


def hand_out_messages(out: HandOut) -> Iterator[Message]:
    deserializers = None if out.deserializers.are_none else out.deserializers
    for entry in out.entries:
        place = entry.place
        topic, partition = place.topic_partition
        sound = _sound(entry)
        is_ahead = entry.end is not None
        for record in sound.records:
            offset = record.offset
            place.finished = offset
            if deserializers is None:
                place.position = offset + 1
                message = Message(topic, partition, record)
            else:
                place.position = offset
                message = DecodedMessage(topic, partition, decode(deserializers, topic, partition, record))
                place.position = offset + 1
            if is_ahead and _is_withdrawn(out, entry, offset):
                return
            yield message
            if out.is_interrupted:
                return
        place.finished = place.position = sound.next_offset
        if sound.damage is not None:
            _tell_damage(entry, sound.damage, is_first=not sound.records)
            return


def hand_out_batches(out: HandOut) -> Iterator[Fetched]:
    for entry in out.entries:
        yield from _batch(out, entry)
        if out.is_interrupted or entry.is_damaged:
            return


def _batch(out: HandOut, entry: Entry) -> Iterator[Fetched]:
    """At most one."""
    place = entry.place
    fetched, error = _fetched(out, entry)
    place.position = fetched.next_offset
    if _is_withdrawn(out, entry, entry.start):
        return
    if fetched.records:
        yield fetched
        if out.is_interrupted:
            return
    place.finished = place.position
    if error is not None and not fetched.records:
        raise error


def take_batches(out: HandOut) -> list[Fetched]:
    """All at once, in hand until more is asked for. What is wrong behind some is told when they are settled."""
    taken: list[Fetched] = []
    for entry in out.entries:
        fetched, error = _fetched(out, entry)
        if not fetched.records and error is not None and taken:
            entry.is_damaged = False  # nothing of it is out: it comes first the next time
            break
        entry.place.position = fetched.next_offset
        if _is_withdrawn(out, entry, entry.start):
            break
        if fetched.records:
            taken.append(fetched)
        elif error is not None:
            entry.place.finished = entry.place.position
            raise error
    return taken


def _fetched(out: HandOut, entry: Entry) -> tuple[Fetched, ClientError | None]:
    """The records up to the first that is bad, and what is wrong with that."""
    data = entry.data
    sound = _sound(entry)
    records: list[Any] = sound.records
    next_offset, error = sound.next_offset, sound.damage
    entry.is_damaged = error is not None
    if not out.deserializers.are_none:
        records = []
        for record in sound.records:
            try:
                records.append(decode(out.deserializers, data.topic, data.partition, record))
            except ClientError as failed:
                next_offset, error, entry.is_damaged = record.offset, failed, False
                break
    return Fetched(data.topic, data.partition, records, next_offset, data.high_watermark), error


def hand_out_arrow(*, with_headers: bool) -> Callable[[HandOut], Iterator[pa.RecordBatch]]:
    from ottla.client.producer.arrow import record_batches

    def opened(out: HandOut) -> Iterator[pa.RecordBatch]:
        for entry in out.entries:
            place = entry.place
            batches, next_offset, damage = record_batches(entry.data, entry.start, entry.end, with_headers=with_headers)
            for number, batch in enumerate(batches):
                place.finished = place.position
                is_last = number == len(batches) - 1
                place.position = next_offset if is_last else batch.column("offset")[-1].as_py() + 1
                if _is_withdrawn(out, entry, place.finished):
                    return
                yield batch
                if out.is_interrupted:
                    return
            place.finished = place.position = next_offset
            if damage is not None:
                _tell_damage(entry, damage, is_first=not batches)
                return

    return opened


def _sound(entry: Entry) -> Sound:
    sound = entry.data.sound(entry.start)
    if entry.end is None or entry.end >= sound.next_offset:
        return sound
    return Sound([record for record in sound.records if record.offset < entry.end], entry.end, None)


def _is_withdrawn(out: HandOut, entry: Entry, offset: int) -> bool:
    """At most once, what is handed out is claimed first, by the position. Another thread that closes the consumer
    meanwhile interrupts first, and then gives back what is behind the position: one of the two sees the other."""
    if entry.end is None or not out.is_interrupted:
        return False
    entry.place.position = offset
    return True


def _tell_damage(entry: Entry, damage: ClientError, *, is_first: bool) -> None:
    """Raised where nothing sound comes before it; else it is met again, first, when more is asked for."""
    entry.is_damaged = True
    if is_first:
        raise damage
