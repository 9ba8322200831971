"""One record as a consumer hands it out."""

from __future__ import annotations

from typing import Any

from ottla.records.codec import Header, Record


class DecodedRecord:
    """A record whose key and value a consumer's deserializers have read. Not to be changed."""

    __slots__ = ("key", "raw", "value")

    def __init__(self, raw: Record, key: Any, value: Any) -> None:
        self.raw = raw
        """As it came."""
        self.key = key
        self.value = value

    @property
    def offset(self) -> int:
        return self.raw.offset

    @property
    def timestamp(self) -> int:
        return self.raw.timestamp

    @property
    def headers(self) -> tuple[Header, ...]:
        return self.raw.headers

    def __repr__(self) -> str:
        return f"DecodedRecord(at {self.offset}, key={self.key!r}, value={self.value!r})"


class Message:
    """A record and where it comes from. Not to be changed."""

    __slots__ = ("_record", "partition", "topic")

    def __init__(self, topic: str, partition: int, record: Record) -> None:
        self.topic = topic
        self.partition = partition
        self._record: Any = record

    @property
    def offset(self) -> int:
        offset: int = self._record.offset
        return offset

    @property
    def timestamp_ms(self) -> int:
        timestamp_ms: int = self._record.timestamp
        return timestamp_ms

    @property
    def key(self) -> Any:
        """Bytes or None, or what the consumer's deserializer made of it."""
        return self._record.key

    @property
    def value(self) -> Any:
        """Bytes or None, or what the consumer's deserializer made of it."""
        return self._record.value

    @property
    def headers(self) -> tuple[Header, ...]:
        headers: tuple[Header, ...] = self._record.headers
        return headers

    @property
    def raw(self) -> Record:
        """The record as it came, its key and value in bytes."""
        record: Record = self._record
        return record

    def __repr__(self) -> str:
        return f"Message({self.topic}-{self.partition} at {self.offset}, key={self.key!r}, value={self.value!r})"


class DecodedMessage(Message):
    """A message whose key and value a consumer's deserializers have read."""

    __slots__ = ()

    def __init__(self, topic: str, partition: int, record: DecodedRecord) -> None:
        self.topic = topic
        self.partition = partition
        self._record = record

    @property
    def raw(self) -> Record:
        record: Record = self._record.raw
        return record


def message_of(topic: str, partition: int, record: Record | DecodedRecord) -> Message:
    if isinstance(record, DecodedRecord):
        return DecodedMessage(topic, partition, record)
    return Message(topic, partition, record)
