"""What both faces of the producer share: a call that only puts a record into the buffer."""

from __future__ import annotations

from threading import get_ident
from time import time_ns

from ottla.client.errors import InvalidRecord
from ottla.client.producer.buffer import Buffer
from ottla.client.producer.chunk import RECORD_OVERHEAD_BYTES, Chunk, Headers, OnDelivery, headers_bytes
from ottla.client.producer.sent import Sent

_BYTES_LIKE = (bytes, bytearray, memoryview)


class Sending:
    """Has `_buffer`. A call costs little more than a call: everything else is done by the batch, elsewhere."""

    _buffer: Buffer

    def send(
        self, topic: str, value: bytes | None, *, key: bytes | None = None, headers: Headers = (),
        partition: int | None = None, timestamp_ms: int | None = None, on_delivery: OnDelivery | None = None,
    ) -> Sent:  # fmt: skip
        """Puts a record on its way. It goes out with others, after `linger_ms` at the latest.

        Whether it was written is told by what is given back, and to `on_delivery`, which is called on the
        client's own thread and must not block. A failure that nobody asks for is raised by `flush` and `close`.
        """
        if type(value) is not bytes and value is not None:
            value = as_bytes("value", value)
        chunk = self._buffer.filling.get(topic)
        if chunk is None or chunk.owner != get_ident():
            chunk = self._open(topic)
        records = chunk.records
        index = len(records)
        if (
            key is None and timestamp_ms is None and partition is None and on_delivery is None and not headers
            and not chunk.stamps_each
        ):  # fmt: skip
            chunk.filled_bytes += RECORD_OVERHEAD_BYTES + len(value or b"")
            records.append(value)
        else:
            key, timestamp_ms, size_bytes = _look_at(chunk, value, key, headers, timestamp_ms)
            chunk.has_more = True
            chunk.is_observed = chunk.is_observed or on_delivery is not None
            chunk.filled_bytes += size_bytes
            records.append((value, key, headers, partition, timestamp_ms, on_delivery))
        if chunk.is_closed and not _came_in(chunk, index):
            return self.send(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms,
                on_delivery=on_delivery,
            )  # fmt: skip
        if chunk.filled_bytes >= chunk.limit_bytes:
            self._buffer.close(chunk)
        return Sent((chunk, index))

    def _open(self, topic: str) -> Chunk:
        if not topic:
            raise InvalidRecord("a record needs a topic")
        while (chunk := self._buffer.open(topic)) is None:
            self._wait_for_room()
        return chunk

    def _wait_for_room(self) -> None:
        """Or raise BufferFull."""
        raise self._buffer.full()


def _came_in(chunk: Chunk, index: int) -> bool:
    """Whether a record came in before the chunk was closed."""
    with chunk.lock:
        return index < chunk.count


def _look_at(
    chunk: Chunk, value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int | None
) -> tuple[bytes | None, int | None, int]:
    """The key and the timestamp as they are kept, and about how large the record is."""
    if timestamp_ms is None:
        timestamp_ms = time_ns() // 1_000_000 if chunk.stamps_each else None
    elif timestamp_ms < 0:
        raise InvalidRecord(f"a timestamp is not negative: {timestamp_ms}", topic=chunk.topic)
    if type(key) is not bytes and key is not None:
        key = as_bytes("key", key)
    size_bytes = RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
    return key, timestamp_ms, size_bytes + headers_bytes(headers) if headers else size_bytes


def as_bytes(what: str, value: object) -> bytes:
    """A copy, so that the caller may go on with its own."""
    if not isinstance(value, _BYTES_LIKE):
        raise InvalidRecord(f"a {what} is bytes, not {type(value).__name__}: encode it first")
    return bytes(value)
