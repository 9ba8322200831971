# cython: boundscheck=False, wraparound=False
"""The wire's fast path: headers of requests and Produce requests read, and answers to those written, in compiled code.

It gives what the plain and the generated functions give, and leaves to them what is not made as usual, and to say what
is wrong with it. Where this was not compiled they do all of it; the same text runs as Python for the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire.apis import BY_KEY, PRODUCE
from ottla.wire.header import RequestHeader, read_request_header
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.parts import Buffer, Part
from ottla.wire.schema import Reader, Writer
from ottla.wire.uuids import ZERO_UUID

try:
    import cython  # type: ignore[import-untyped]
except ModuleNotFoundError:
    from ottla.wire import octets as cython

if not cython.compiled:
    from ottla.wire.octets import (
        big_endian,
        octets,
        put_big_endian,
        put_bytes,
        read_uvarint,
        text,
        text_or_marks,
        writable,
    )

COMPILED: bool = cython.compiled

HEAD_BYTES = 2 + 2 + 4 + 2  # API, version, correlation id, length of the client id
FLEXIBLE_VERSION = PRODUCE.flexible
WITH_LOG_START = 5
WITH_RECORD_ERRORS = 8
WITH_TOPIC_IDS = 13
MOST_ELEMENTS = 1_000  # topics and partitions of a usual request
LONGEST_STRING_BYTES = 0x7FFF
MOST_IN_ONE_BYTE = 126  # a length or count in a varint of one byte, which is one more
TOPIC_ID_BYTES = 16
ANSWER_BYTES = 4 + 2 + 8 + 8  # of a partition: index, error code, base offset, log append time

# Readers go by positions, and types by names.
_partition_data: Any = PartitionProduceData
_topic_data: Any = TopicProduceData
_request: Any = ProduceRequest
_make_header = tuple.__new__  # half the cost of its constructor


def read_usual_header(frame: Buffer) -> RequestHeader:
    """The same as `read_request_header`."""
    view = memoryview(frame)
    data = octets(view)
    end = view.nbytes
    if end < HEAD_BYTES:
        return read_request_header(frame)
    key = big_endian(data, 0, 2)
    version = big_endian(data, 2, 2)
    correlation_id = big_endian(data, 4, 4)
    length = big_endian(data, 8, 2)
    api = BY_KEY.get(key)
    position = HEAD_BYTES
    client_id = None
    if length >= 0:
        position += length
        if position > end:
            return read_request_header(frame)
        client_id = text_or_marks(data, HEAD_BYTES, position)
    if api is None:
        return read_request_header(frame)
    if version >= api.flexible:
        if position >= end or data[position]:
            return read_request_header(frame)
        position += 1
    return _make_header(RequestHeader, (api, version, correlation_id, client_id, position))


read_header: Callable[[Buffer], RequestHeader] = read_usual_header if COMPILED else read_request_header


def read_length(data: memoryview, position: int, end: int, is_flexible: bool, size: int) -> tuple[int, int]:
    """A length or count (negative: null) and the position behind it, which is negative where it is not whole."""
    if is_flexible:
        length, position = read_uvarint(data, position, end)
        return length - 1, position
    if position + size > end:
        return 0, -1
    return big_endian(data, position, size), position + size


class ProduceReader:
    """Reads requests of one version."""

    def __init__(self, version: int, otherwise: Reader) -> None:
        self.version = version
        self.otherwise = otherwise

    def __call__(self, data: Buffer, position: int) -> tuple[Any, int]:
        view = memoryview(data)
        try:
            found = self.read(view, octets(view), position, view.nbytes)
        except UnicodeDecodeError:
            found = None
        return self.otherwise(data, position) if found is None else found

    def read(self, view: memoryview, data: memoryview, position: int, end: int) -> tuple[ProduceRequest, int] | None:
        is_flexible = self.version >= FLEXIBLE_VERSION
        length, position = read_length(data, position, end, is_flexible, 2)
        if position < 0 or length > end - position or length > LONGEST_STRING_BYTES:
            return None
        transactional_id = None
        if length >= 0:
            transactional_id = text(data, position, position + length)
            position += length
        if position + 6 > end:
            return None
        acks = big_endian(data, position, 2)
        timeout_ms = big_endian(data, position + 2, 4)
        count, position = read_length(data, position + 6, end, is_flexible, 4)
        if position < 0 or count < 0 or count > MOST_ELEMENTS:
            return None
        topics: list[TopicProduceData] = []
        left = MOST_ELEMENTS - count
        for _ in range(count):
            name, topic_id = "", ZERO_UUID
            if self.version >= WITH_TOPIC_IDS:
                if position + TOPIC_ID_BYTES > end:
                    return None
                topic_id = bytes(view[position : position + TOPIC_ID_BYTES])
                position += TOPIC_ID_BYTES
            else:
                length, position = read_length(data, position, end, is_flexible, 2)
                if position < 0 or length < 0 or length > end - position or length > LONGEST_STRING_BYTES:
                    return None
                name = text(data, position, position + length)
                position += length
            partition_count, position = read_length(data, position, end, is_flexible, 4)
            left -= partition_count
            if position < 0 or partition_count < 0 or left < 0:
                return None
            partitions: list[PartitionProduceData] = []
            for _ in range(partition_count):
                if position + 4 > end:
                    return None
                index = big_endian(data, position, 4)
                length, position = read_length(data, position + 4, end, is_flexible, 4)
                if position < 0 or length > end - position:
                    return None
                records = None
                if length >= 0:
                    records = view[position : position + length]
                    position += length
                if is_flexible:
                    if position >= end or data[position]:
                        return None  # tags, or nothing
                    position += 1
                partitions.append(_partition_data(index, records))
            if is_flexible:
                if position >= end or data[position]:
                    return None
                position += 1
            topics.append(_topic_data(partitions, name, topic_id))
        if is_flexible:
            if position >= end or data[position]:
                return None
            position += 1
        return _request(acks, timeout_ms, topics, transactional_id), position


class ProduceWriter:
    """Writes answers of one version."""

    def __init__(self, version: int, otherwise: Writer) -> None:
        self.version = version
        self.otherwise = otherwise

    def __call__(self, response: ProduceResponse) -> list[Part]:
        written = self.write(response)
        return self.otherwise(response) if written is None else [written]

    def write(self, response: ProduceResponse) -> bytearray | None:
        version = self.version
        is_flexible = version >= FLEXIBLE_VERSION
        responses = response.responses
        topic_count = len(responses)
        if topic_count > MOST_IN_ONE_BYTE or response.node_endpoints:
            return None
        count_bytes = 1 if is_flexible else 4
        tag_bytes = 1 if is_flexible else 0
        answer_bytes = ANSWER_BYTES + tag_bytes
        if version >= WITH_LOG_START:
            answer_bytes += 8
        if version >= WITH_RECORD_ERRORS:
            answer_bytes += 2 if is_flexible else 6
        size = count_bytes + 4 + tag_bytes
        names: list[bytes] = []
        for topic in responses:
            partitions = topic.partition_responses
            partition_count = len(partitions)
            name = topic.topic_id if version >= WITH_TOPIC_IDS else topic.name.encode()
            name_bytes = len(name)
            if partition_count > MOST_IN_ONE_BYTE or name_bytes > MOST_IN_ONE_BYTE:
                return None
            size += name_bytes + count_bytes + partition_count * answer_bytes + tag_bytes
            if version < WITH_TOPIC_IDS:
                size += 1 if is_flexible else 2
            names.append(name)
        made = bytearray(size)
        out = writable(made)
        position = put_big_endian(out, 0, topic_count + tag_bytes, count_bytes)
        for nth in range(topic_count):
            topic, name = responses[nth], names[nth]
            name_bytes = len(name)
            if version < WITH_TOPIC_IDS:
                position = put_big_endian(out, position, name_bytes + tag_bytes, 1 if is_flexible else 2)
            position = put_bytes(out, position, name)
            partitions = topic.partition_responses
            position = put_big_endian(out, position, len(partitions) + tag_bytes, count_bytes)
            for answer in partitions:
                if answer.error_message is not None or answer.record_errors or answer.current_leader is not None:
                    return None
                position = put_big_endian(out, position, answer.index, 4)
                position = put_big_endian(out, position, answer.error_code, 2)
                position = put_big_endian(out, position, answer.base_offset, 8)
                position = put_big_endian(out, position, answer.log_append_time_ms, 8)
                if version >= WITH_LOG_START:
                    position = put_big_endian(out, position, answer.log_start_offset, 8)
                if version >= WITH_RECORD_ERRORS:  # no errors, and no message
                    position = put_big_endian(out, position, tag_bytes, count_bytes)
                    position = put_big_endian(out, position, tag_bytes - 1, 1 if is_flexible else 2)
                position += tag_bytes
            position += tag_bytes
        put_big_endian(out, position, response.throttle_time_ms, 4)
        return made
