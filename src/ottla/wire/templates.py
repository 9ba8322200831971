"""Templates: requests that a client repeats are recognised by their bytes, and so are the answers to them.

A client that writes to a partition sends frames that differ in the correlation id and the batch only, and their answers
differ in the correlation id and the offsets. The first frame is read, and the first answer written, as every message
is; what surrounds the parts that differ is kept as a template. It gives the same request for the same bytes, and the
same bytes for the same answer. Whatever does not fit a template is read and written as if there were none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, cast

from ottla.wire.apis import PRODUCE
from ottla.wire.frames import encode_request, encode_response
from ottla.wire.header import RequestHeader
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.parts import Buffer, Part
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.varint import read_uvarint_tail

MOST_TEMPLATES = 4_000
MISSES_FOR_ONE = 100  # when there are as many: who meets more of them must not lose all over and over
MOST_BYTES = 1 << 12  # around the batch of a request
LONGEST_NAME_BYTES = 126  # with a length of one byte
FIRST_VERSION = 5  # its answer tells the start of the log
FLEXIBLE_VERSION = PRODUCE.flexible
FIRST_VERSION_WITH_TOPIC_IDS = 13

_HEAD = struct.Struct(">hhih")  # API, version, correlation id, length of the client id
_CLIENT_ID_AT = 8
_OFFSETS = struct.Struct(">qqq")  # base offset, log append time, log start offset
_INT32 = struct.Struct(">i")
_TOPIC_ID_BYTES = 16
# Flexible: tags, no transactional id, acks, timeout, one topic; its name or id; one partition, index.
_BEFORE_FLEXIBLE_TOPIC = 1 + 1 + 2 + 4 + 1
_BEHIND_FLEXIBLE_TOPIC = 1 + 4
# Before that: no transactional id, acks, timeout, one topic, and the first byte of the length of its name.
_BEFORE_TOPIC = 2 + 2 + 4 + 4 + 1
_BEHIND_TOPIC = 1 + 4 + 4


class Answer(NamedTuple):
    """The bytes of an answer around what differs."""

    pack: Callable[..., bytes]
    size: bytes
    middle: bytes
    end: bytes


class Template:
    """One request without its batch, and the answer to it without its offsets."""

    __slots__ = (
        *("_end", "_middle", "_pack", "_size"),
        *("acks", "header", "index", "partition_key", "tail", "timeout_ms", "topic"),
    )

    def __init__(self, header: RequestHeader, request: ProduceRequest, tail: bytes, answer: Answer) -> None:
        topic = request.topic_data[0]
        self.header = header
        self.acks, self.timeout_ms = request.acks, request.timeout_ms
        self.index = topic.partition_data[0].index
        self.tail = tail  # what stands behind the batch
        self.topic = topic.name, topic.topic_id
        has_id = header.version >= FIRST_VERSION_WITH_TOPIC_IDS
        self.partition_key: tuple[str | bytes, int] = topic.topic_id if has_id else topic.name, self.index
        self._pack, self._size, self._middle, self._end = answer

    def read(self, correlation_id: int, records: memoryview) -> tuple[RequestHeader, ProduceRequest]:
        """A request of this kind, as it would be read from its bytes."""
        api, version, _, client_id, body_position = self.header
        header = RequestHeader(api, version, correlation_id, client_id, body_position)
        name, topic_id = self.topic
        data = PartitionProduceData(index=self.index, records=records)
        topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])
        return header, ProduceRequest(acks=self.acks, timeout_ms=self.timeout_ms, topic_data=[topic])

    def write(self, correlation_id: int, response: ProduceResponse) -> list[Part] | None:
        """The answer as a frame; None where it is not like the others."""
        [topic] = response.responses
        [answer] = topic.partition_responses
        if (
            answer.error_code
            or answer.error_message is not None
            or answer.record_errors
            or answer.current_leader is not None
            or response.throttle_time_ms
            or response.node_endpoints
        ):
            return None
        return [self.frame(correlation_id, answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)]

    def frame(self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """The bytes of the answer to a request that went well."""
        return self._pack(
            self._size, correlation_id, self._middle, base_offset, log_append_time_ms, log_start_offset, self._end
        )


class ProduceTemplates:
    """The templates of the requests that came so far, from whichever clients."""

    def __init__(self) -> None:
        self._templates: dict[tuple[int, bytes], Template] = {}  # by version, and the bytes from the client id on
        self._missed: tuple[int, bytes] | None = None  # where that of the last frame would be
        self._misses = 0  # since there are as many as may be

    def __len__(self) -> int:
        return len(self._templates)

    def match(self, frame: memoryview) -> tuple[Template, int, memoryview] | None:
        """The template of the request in a frame, if there is one, its correlation id, and its records in the frame."""
        self._missed = None
        size = len(frame)
        if size < _HEAD.size:
            return None
        api_key, version, correlation_id, client_id_bytes = _HEAD.unpack_from(frame)
        if api_key or version < FIRST_VERSION:
            return None
        # If the frame is not made like this, its bytes up to here are those of no template.
        is_flexible = version >= FLEXIBLE_VERSION
        topic_at = _HEAD.size + (_BEFORE_FLEXIBLE_TOPIC if is_flexible else _BEFORE_TOPIC)
        if client_id_bytes > 0:
            topic_at += client_id_bytes
        if topic_at >= size:
            return None
        if not is_flexible:
            start = topic_at + frame[topic_at] + _BEHIND_TOPIC
        elif version < FIRST_VERSION_WITH_TOPIC_IDS:
            start = topic_at + frame[topic_at] + _BEHIND_FLEXIBLE_TOPIC
        else:
            start = topic_at + _TOPIC_ID_BYTES + _BEHIND_FLEXIBLE_TOPIC
        known_by = version, bytes(frame[_CLIENT_ID_AT:start])
        template = self._templates.get(known_by)
        if template is None:
            self._missed = known_by
            return None
        try:
            if is_flexible:
                length, start = frame[start], start + 1
                if length > 127:
                    second = frame[start]
                    if second > 127:
                        length, start = read_uvarint_tail(frame, start, length)
                    else:  # as with most batches
                        length, start = length & 127 | second << 7, start + 1
                stop = start + length - 1
            else:
                (length,) = _INT32.unpack_from(frame, start)
                start += _INT32.size
                stop = start + length
        except (IndexError, ProtocolError, struct.error):
            return None
        if stop < start or stop > size or bytes(frame[stop:]) != template.tail:
            return None
        return template, correlation_id, frame[start:stop]

    def learn(self, header: RequestHeader, request: ProduceRequest) -> None:
        """Make a template of the request in the last frame, if it had none and is one that clients repeat."""
        missed = self._missed
        if (
            missed is None
            or not self._has_room()
            or request.transactional_id is not None
            or len(request.topic_data) != 1
        ):
            return
        topic = request.topic_data[0]
        if len(topic.name) > LONGEST_NAME_BYTES or len(topic.partition_data) != 1:
            return
        known_by, tail = _around_batch(header, request)
        if known_by != missed[1] or len(known_by) > MOST_BYTES:
            return  # it can be written in other ways, too
        answer = _answer(topic, header.version)
        if answer is None:
            return
        if len(self._templates) >= MOST_TEMPLATES:
            del self._templates[next(iter(self._templates))]
        self._templates[missed] = Template(header, request, tail, answer)

    def _has_room(self) -> bool:
        """Or whether the oldest may go now and then: to make a template takes longer than to read a request."""
        if len(self._templates) < MOST_TEMPLATES:
            return True
        self._misses += 1
        return not self._misses % MISSES_FOR_ONE


def _around_batch(header: RequestHeader, request: ProduceRequest) -> tuple[bytes, bytes]:
    """What stands before the length of the batch, from the client id on, and behind the batch, as the wire has it."""
    topic = request.topic_data[0]
    one_byte = PartitionProduceData(index=topic.partition_data[0].index, records=b"\0")
    filled = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[one_byte])
    plain = ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=[filled])
    parts = cast("list[bytes]", encode_request(0, header.client_id, plain, header.version))
    length_bytes = 1 if header.version >= FLEXIBLE_VERSION else _INT32.size
    return parts[0][_INT32.size + _CLIENT_ID_AT : -length_bytes], b"".join(parts[2:])


def _answer(topic: TopicProduceData, version: int) -> Answer | None:
    """An answer, cut where two of them differ."""

    def encoded(offset: int) -> bytes:
        answer = PartitionProduceResponse(
            index=topic.partition_data[0].index,
            error_code=0,
            base_offset=offset,
            log_append_time_ms=-1,
            log_start_offset=offset,
        )
        answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
        parts = encode_response(0, ProduceResponse(responses=[answered]), version)
        return b"".join(cast("list[Buffer]", parts))

    frame, other = encoded(0), encoded(-1)
    at = next(position for position, byte in enumerate(frame) if byte != other[position])
    middle, end = frame[_CLIENT_ID_AT:at], frame[at + _OFFSETS.size :]
    answer = Answer(struct.Struct(f">4si{len(middle)}sqqq{len(end)}s").pack, frame[:4], middle, end)
    is_right = all(
        answer.pack(answer.size, 0, middle, offset, -1, offset, end) == whole
        for offset, whole in ((0, frame), (-1, other))
    )
    return answer if is_right else None
