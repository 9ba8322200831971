"""What both faces of the producer share: a call that only puts a record into the buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import get_ident
from time import time_ns
from typing import Any

from ottla.client.checks import why_no_topic
from ottla.client.errors import InvalidRecord
from ottla.client.producer.buffer import Buffer
from ottla.client.producer.chunk import RECORD_OVERHEAD_BYTES, Chunk, Headers, OnDelivery, headers_bytes
from ottla.client.producer.sent import Sent

_BYTES_LIKE = (bytes, bytearray, memoryview)
_SMALL_BYTES = 8_000  # smaller than any limit on records: nothing to check
HIGHEST_PARTITION = 2**31 - 1
HIGHEST_TIMESTAMP_MS = 2**63 - 1

Serialize = Callable[[str, Any, Any], tuple[Any, Any]]
"""Of a topic, a value and a key: what is written of both."""


class Sending:
    """Has `_buffer`. A call costs little more than a call: everything else is done by the batch, elsewhere."""

    _buffer: Buffer
    _serialize: Serialize | None = None

    def send(
        self, topic: str, value: Any, *, key: Any = None, headers: Headers = (),
        partition: int | None = None, timestamp_ms: int | None = None, on_delivery: OnDelivery | None = None,
    ) -> Sent:  # fmt: skip
        """Puts a record on its way. It goes out with others, after `linger_ms` at the latest.

        `value` and `key` are bytes or None, or what the producer's serializers take. `headers` are pairs of a name
        and bytes or None. What could never be written is refused here: InvalidRecord.

        Whether it was written is told by what is given back, and to `on_delivery`, which is called on the
        client's own thread and must not block. A failure that nobody asks for is raised by `flush` and `close`.
        """
        if self._serialize is not None:
            value, key = self._serialize(topic, value, key)
        if type(value) is bytes:
            size_bytes = RECORD_OVERHEAD_BYTES + len(value)
        elif value is None:
            size_bytes = RECORD_OVERHEAD_BYTES
        else:
            value = as_bytes("value", value)
            size_bytes = RECORD_OVERHEAD_BYTES + len(value)
        chunk = self._buffer.filling.get(topic)
        if chunk is None or chunk.owner != get_ident():
            chunk = self._open(topic)
        records = chunk.records
        index = len(records)
        if (
            key is None and timestamp_ms is None and partition is None and on_delivery is None and not headers
            and size_bytes < _SMALL_BYTES and not chunk.stamps_each
        ):  # fmt: skip
            record = value
        else:
            record, size_bytes = _checked(chunk, value, key, headers, partition, timestamp_ms, on_delivery, size_bytes)
            if size_bytes > self._buffer.largest_record_bytes:
                raise too_large(topic, size_bytes, self._buffer.largest_record_bytes)
            chunk.has_more = True
        chunk.filled_bytes = filled_bytes = chunk.filled_bytes + size_bytes
        records.append(record)
        if chunk.is_closed and not _came_in(chunk, index):
            chunk, index = self._put_again(topic, record)
            filled_bytes = chunk.filled_bytes
        if filled_bytes >= chunk.limit_bytes:
            self._buffer.close(chunk)
        sent = Sent()
        sent._chunk = chunk
        sent._index = index
        return sent

    def _put_again(self, topic: str, record: Any) -> tuple[Chunk, int]:
        """Into another chunk: the one that it was put into was closed before."""
        while True:
            chunk = self._open(topic)
            index = len(chunk.records)
            if type(record) is tuple:
                chunk.has_more = True
                value, key, headers = record[:3]
                size_bytes = len(value or b"") + len(key or b"") + headers_bytes(headers or ())
                chunk.filled_bytes += RECORD_OVERHEAD_BYTES + size_bytes
            else:
                chunk.filled_bytes += RECORD_OVERHEAD_BYTES + len(record or b"")
            chunk.records.append(record)
            if not chunk.is_closed or _came_in(chunk, index):
                return chunk, index

    def _open(self, topic: str) -> Chunk:
        check_topic(topic)
        while (chunk := self._buffer.open(topic)) is None:
            self._wait_for_room()
        return chunk

    def _wait_for_room(self) -> None:
        """Or raise BufferFull."""
        raise self._buffer.full()


def _came_in(chunk: Chunk, index: int) -> bool:
    """Whether a record came in before the chunk was closed."""
    with chunk.lock:
        if not chunk.is_counted:  # whoever closed it was interrupted
            chunk.close()
        return index < chunk.count


def _checked(
    chunk: Chunk, value: bytes | None, key: Any, headers: Any, partition: Any, timestamp_ms: Any,
    on_delivery: OnDelivery | None, size_bytes: int,
) -> tuple[Any, int]:  # fmt: skip
    """A record that has more than a value as it is kept, and about how large it is: with its value alone, so large."""
    if timestamp_ms is None:
        timestamp_ms = time_ns() // 1_000_000 if chunk.stamps_each else None
    else:
        check_timestamp(timestamp_ms, chunk.topic)
    if partition is not None:
        check_partition(partition, chunk.topic)
    if key is not None:
        if type(key) is not bytes:
            key = as_bytes("key", key)
        size_bytes += len(key)
    if on_delivery is not None and not callable(on_delivery):
        raise TypeError(f"on_delivery is a function, not {on_delivery!r}")
    if headers:
        headers = checked_headers(headers, chunk.topic)
        size_bytes += headers_bytes(headers)
    return (value, key, headers, partition, timestamp_ms, on_delivery), size_bytes


def check_topic(topic: object) -> None:
    if reason := why_no_topic(topic):
        raise InvalidRecord(reason)


def check_timestamp(timestamp_ms: object, topic: str) -> None:
    if type(timestamp_ms) is not int:
        raise InvalidRecord(
            f"a timestamp is an int of milliseconds since 1970, not {type(timestamp_ms).__name__}", topic=topic
        )
    if not 0 <= timestamp_ms <= HIGHEST_TIMESTAMP_MS:
        what = "not negative" if timestamp_ms < 0 else "at most 63 bits"
        raise InvalidRecord(f"a timestamp is {what}: {timestamp_ms}", topic=topic)


def check_partition(partition: object, topic: str) -> None:
    if type(partition) is not int:
        raise InvalidRecord(f"a partition is an int, not {type(partition).__name__}: {partition!r}", topic=topic)
    if not 0 <= partition <= HIGHEST_PARTITION:
        raise InvalidRecord(f"a partition is a number from 0 on, not {partition}", topic=topic)


def checked_headers(headers: Any, topic: str) -> Headers:
    """As they are kept: values are bytes. A copy, so that the caller may go on with its own."""
    if isinstance(headers, Mapping):
        raise InvalidRecord("headers are a list of (name, value) pairs, not a dict: use list(d.items())", topic=topic)
    checked = []
    try:
        pairs = [(name, value) for name, value in headers]
    except (TypeError, ValueError):
        raise InvalidRecord(f"headers are a list of (name, value) pairs, not {headers!r}", topic=topic) from None
    for name, value in pairs:
        if type(name) is not str:
            raise InvalidRecord(f"the name of a header is a str, not {type(name).__name__}: {name!r}", topic=topic)
        if not name.isascii() and not _is_unicode(name):
            raise InvalidRecord(f"the name of a header cannot be written as UTF-8: {name!r}", topic=topic)
        if type(value) is str:
            raise InvalidRecord(f"the value of header {name!r} is bytes, not str: use .encode()", topic=topic)
        checked.append((name, value if value is None or type(value) is bytes else as_bytes(f"header {name!r}", value)))
    return checked


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_bytes(what: str, value: object) -> bytes:
    """A copy, so that the caller may go on with its own."""
    if not isinstance(value, _BYTES_LIKE):
        hint = "encode it first" if isinstance(value, str) else "encode it first, or give the producer a serializer"
        raise InvalidRecord(f"a {what} is bytes, not {type(value).__name__}: {hint}")
    return bytes(value)


def too_large(topic: str, size_bytes: int, limit_bytes: int) -> InvalidRecord:
    return InvalidRecord(
        f"a record of {size_bytes:,} bytes is larger than max_request_bytes, which is {limit_bytes:,}", topic=topic
    )
