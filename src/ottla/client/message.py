"""One record as a consumer hands it out."""

from __future__ import annotations

from ottla.records.codec import Header, Record


class Message:
    """A record and where it comes from. Not to be changed."""

    __slots__ = ("_record", "partition", "topic")

    def __init__(self, topic: str, partition: int, record: Record) -> None:
        self.topic = topic
        self.partition = partition
        self._record = record

    @property
    def offset(self) -> int:
        return self._record.offset

    @property
    def timestamp_ms(self) -> int:
        return self._record.timestamp

    @property
    def key(self) -> bytes | None:
        return self._record.key

    @property
    def value(self) -> bytes | None:
        return self._record.value

    @property
    def headers(self) -> tuple[Header, ...]:
        return self._record.headers

    def __repr__(self) -> str:
        return f"Message({self.topic}-{self.partition} at {self.offset}, key={self.key!r}, value={self.value!r})"
