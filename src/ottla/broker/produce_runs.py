"""The short way of Produce: what a client sends again and again, with one write for what comes together.

A client that writes to a partition repeats itself: its frames differ in the correlation id and the batch, their answers
in the correlation id and the offset. The first request of a kind goes the long way, through handlers/produce.py, and
the rest of its bytes and of its answer's is kept as a shape. Frames of a known shape that come in one round of the
loop, from whichever clients, make a run: their batches are checked alone and written together. A batch that is large,
compressed or idempotent is checked where it lies and written by itself. What is unusual in any other way (under a
quota, to be on the disk first) goes the long way, and so do records that would be refused. A frame that is not of the
run ends it, so that nobody overtakes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.log.errors import LogError
from ottla.records.batch import ATTRIBUTES_AT, HEADER_SIZE, PRODUCER_ID_AT, BatchHeader
from ottla.records.validate import InvalidRecords, LargeBatch, ProduceSettings, plain_batch
from ottla.wire.apis import PRODUCE
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import encode_request, encode_response
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.varint import read_uvarint_tail

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.connection import Connection
    from ottla.replica.partition import Partition
    from ottla.wire.header import RequestHeader
    from ottla.wire.parts import Buffer

FIRST_VERSION = PRODUCE.flexible
FIRST_VERSION_WITH_TOPIC_IDS = 13
ACKS = (-1, 1)  # with one replica they are the same
MOST_SHAPES = 1_000
MOST_BATCH_BYTES = 1 << 16  # what is copied rather than written alone
MOST_RUN_BYTES = 1 << 20
MOST_OF_A_POSITIVE = 0x7F  # the first byte of a signed number
LONGEST_NAME_BYTES = 126  # with a length of one byte

_HEAD = struct.Struct(">hhih")  # API, version, correlation id, length of the client id
_CLIENT_ID_AT = 8
# Behind the client id: tags, no transactional id, acks, timeout, one topic. Then its name or id, one partition, index.
_BEFORE_TOPIC_BYTES = 1 + 1 + 2 + 4 + 1
_BEHIND_TOPIC_BYTES = 1 + 4
_TOPIC_ID_BYTES = 16
_OFFSETS = struct.Struct(">qqq")  # base offset, log append time, log start offset


class Answer(NamedTuple):
    """The bytes of an answer around what differs."""

    pack: Callable[..., bytes]
    size: bytes
    middle: bytes
    end: bytes

    def frame(self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        return self.pack(
            self.size, correlation_id, self.middle, base_offset, log_append_time_ms, log_start_offset, self.end
        )


class Shape(NamedTuple):
    """A kind of request: where its batch goes, what stands behind the batch, and how it is answered."""

    header: RequestHeader  # of the first of its kind
    topic: TopicProduceData  # likewise, without the batch
    partition: int
    tail: bytes
    answer: Answer


class Run:
    """Requests for one partition that came in one round."""

    __slots__ = ("batches", "frame_bytes", "most_bytes", "now_ms", "partition", "requests", "settings", "size_bytes")

    def __init__(self, partition: Partition, now_ms: int) -> None:
        self.partition = partition
        self.now_ms = now_ms
        self.settings: ProduceSettings = partition.log.produce_settings
        self.most_bytes = min(MOST_RUN_BYTES, partition.log.config.segment_bytes)
        self.requests: list[tuple[Connection, Shape, int]] = []  # with their correlation ids
        self.batches: list[tuple[memoryview, BatchHeader]] = []
        self.size_bytes = 0
        self.frame_bytes = 0


class ProduceRuns:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shapes: dict[tuple[int, bytes], Shape] = {}  # by version and the bytes from the client id to the batch
        self._run: Run | None = None
        self._shape: Shape | None = None  # of the request that the run was last found for
        self._is_known = False  # the shape of the last frame that was looked at

    def take(self, connection: Connection, frame: memoryview) -> bool:
        """Whether the frame goes the short way. Then it is answered by the end of the loop's round."""
        size = len(frame)
        self._is_known = False
        if size < _HEAD.size:
            return False
        api_key, version, correlation_id, client_id_bytes = _HEAD.unpack_from(frame)
        if api_key != PRODUCE.key or version < FIRST_VERSION:
            return False
        # If the frame is not made like this, its bytes up to here are those of no shape.
        topic_at = _HEAD.size + max(client_id_bytes, 0) + _BEFORE_TOPIC_BYTES
        if topic_at >= size:
            return False
        topic_bytes = frame[topic_at] if version < FIRST_VERSION_WITH_TOPIC_IDS else _TOPIC_ID_BYTES
        batch_at = topic_at + topic_bytes + _BEHIND_TOPIC_BYTES
        shape = self._shapes.get((version, bytes(frame[_CLIENT_ID_AT:batch_at])))
        if shape is None:
            return False
        self._is_known = True
        try:
            length, start = frame[batch_at], batch_at + 1
            if length > 127:
                length, start = read_uvarint_tail(frame, start, length)
        except (IndexError, ProtocolError):
            return False
        stop = start + length - 1
        if frame[stop:] != shape.tail:
            return False
        records = frame[start:stop]
        if _may_go_with_others(records) and self._add(connection, shape, correlation_id, records, size):
            return True
        return self._write_alone(connection, shape, correlation_id, records, size)

    def _add(
        self, connection: Connection, shape: Shape, correlation_id: int, records: memoryview, frame_bytes: int
    ) -> bool:
        """Whether the batch is one that can be written with others, and now waits for them."""
        run = self._run
        if run is None or self._shape is not shape or run.size_bytes + len(records) > run.most_bytes:
            run = self._begin(shape)
            if run is None:
                return False
        # What it was received into will be used for the next before this is written.
        batch = plain_batch(bytearray(records), run.settings, run.now_ms)
        if batch is None:
            return False
        run.batches.append(batch)
        run.requests.append((connection, shape, correlation_id))
        run.size_bytes += len(records)
        run.frame_bytes += frame_bytes
        return True

    def _begin(self, shape: Shape) -> Run | None:
        """A run for requests of this shape: the one at hand, if it is for the same partition."""
        broker = self._broker
        partition = self._partition(shape)
        if partition is None:
            return None
        run = self._run
        if run is None or run.partition is not partition or run.size_bytes >= run.most_bytes - MOST_BATCH_BYTES:
            self.end()
            self._run = run = Run(partition, broker.clock_ms())
            broker.loop.call_soon(self.end)
        self._shape = shape
        return run

    def _partition(self, shape: Shape) -> Partition | None:
        """Where requests of this shape go; None when they must go the long way."""
        broker, topic = self._broker, shape.topic
        if broker.durability.waits_for_all or broker.quotas.are_set:
            return None
        if shape.header.version >= FIRST_VERSION_WITH_TOPIC_IDS:
            partition = broker.topics.partition_by_id(topic.topic_id, shape.partition)
        else:
            partition = broker.topics.partition(topic.name, shape.partition)
        return None if partition is None or partition.log.config.has_flush_limits else partition

    def _write_alone(
        self, connection: Connection, shape: Shape, correlation_id: int, records: memoryview, frame_bytes: int
    ) -> bool:
        """Write the batch from where it was received, behind the run, and answer; False: it would be refused."""
        partition = self._partition(shape)
        if partition is None:
            return False
        self.end()
        broker, version = self._broker, shape.header.version
        metrics = broker.metrics
        try:
            appended, log_append_time_ms = partition.produce(
                records, version=version, has_transactional_id=False, now_ms=broker.clock_ms()
            )
        except (InvalidRecords, LargeBatch):
            return False  # it is as it came
        except LogError as refusal:
            answer = _refused(shape, correlation_id, refusal, partition.log.log_start_offset)
        except Exception:
            broker.report_bug(shape.header)
            connection.close("the broker failed")
            return True
        else:
            metrics.produced_bytes += len(records)
            answer = shape.answer.frame(
                correlation_id, appended.base_offset, log_append_time_ms, partition.log.log_start_offset
            )
        metrics.requests[PRODUCE.name] += 1
        metrics.received_bytes += frame_bytes
        connection.answer(answer)
        return True

    def end(self) -> None:
        """Write the run, if there is one, and answer its requests."""
        run = self._run
        self._run = None
        if run is None or not run.batches:
            return
        metrics = self._broker.metrics
        metrics.requests[PRODUCE.name] += len(run.batches)
        metrics.received_bytes += run.frame_bytes
        try:
            answers = _written(run)
            metrics.produced_bytes += run.size_bytes
            for connection, frames in answers:
                connection.answer(b"".join(frames))
        except Exception:
            self._broker.report_bug(run.requests[0][1].header)
            for connection, _, _ in run.requests:
                connection.close("the broker failed")

    def learn(self, header: RequestHeader, request: ProduceRequest, response: ProduceResponse) -> None:
        """Remember the shape of the request that was last looked at, and went the long way."""
        if self._is_known or header.version < FIRST_VERSION:
            return
        if request.transactional_id is not None or request.acks not in ACKS or len(request.topic_data) != 1:
            return
        topic = request.topic_data[0]
        if len(topic.name) > LONGEST_NAME_BYTES or len(topic.partition_data) != 1:
            return
        if response.responses[0].partition_responses[0].error_code:
            return
        answer = _answer(topic, topic.partition_data[0].index, header.version)
        if answer is None:
            return
        if len(self._shapes) >= MOST_SHAPES:
            self._shapes.clear()
        known_by, shape = _shape(header, request, topic, answer)
        self._shapes[header.version, known_by] = shape


def _may_go_with_others(records: memoryview) -> bool:
    """Seen by its header alone: what is large, compressed or idempotent is not copied to find out."""
    return (
        HEADER_SIZE <= len(records) < MOST_BATCH_BYTES
        and records[ATTRIBUTES_AT + 1] == 0  # the lower half: no codec, not transactional
        and records[PRODUCER_ID_AT] > MOST_OF_A_POSITIVE  # so the number is negative: there is none
    )


def _written(run: Run) -> list[tuple[Connection, list[bytes]]]:
    """Append the batches; the answers of each connection, in the order of its requests."""
    answers: list[tuple[Connection, list[bytes]]] = []
    log_start_offset = run.partition.log.log_start_offset
    refusal = None
    offset = -1
    try:
        offset = run.partition.produce_all(run.batches, run.now_ms)
    except LogError as error:
        refusal = error
    last: Connection | None = None
    for (connection, shape, correlation_id), (_, header) in zip(run.requests, run.batches, strict=True):
        if connection is not last:
            frames: list[bytes] = []
            answers.append((connection, frames))
            last = connection
        if refusal is None:
            pack, size, middle, end = shape.answer
            frames.append(pack(size, correlation_id, middle, offset, -1, log_start_offset, end))
            offset += header.last_offset_delta + 1
        else:
            frames.append(_refused(shape, correlation_id, refusal, log_start_offset))
    return answers


def _refused(shape: Shape, correlation_id: int, refusal: LogError, log_start_offset: int) -> bytes:
    answer = PartitionProduceResponse(
        index=shape.partition,
        error_code=ErrorCode(refusal.code),
        base_offset=-1,
        log_start_offset=log_start_offset,
    )
    return _encoded(shape.topic, answer, shape.header.version, correlation_id)


def _encoded(topic: TopicProduceData, answer: PartitionProduceResponse, version: int, correlation_id: int) -> bytes:
    answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
    return _joined(encode_response(correlation_id, ProduceResponse(responses=[answered]), version))


def _joined(parts: object) -> bytes:
    return b"".join(cast("list[Buffer]", parts))


def _answer(topic: TopicProduceData, index: int, version: int) -> Answer | None:
    """What the long way writes, cut where two answers differ."""

    def encoded(offset: int) -> bytes:
        answer = PartitionProduceResponse(
            index=index, error_code=0, base_offset=offset, log_append_time_ms=-1, log_start_offset=offset
        )
        return _encoded(topic, answer, version, 0)

    frame, other = encoded(0), encoded(-1)
    at = next(position for position, byte in enumerate(frame) if byte != other[position])
    end = frame[at + _OFFSETS.size :]
    middle = frame[_CLIENT_ID_AT:at]
    answer = Answer(struct.Struct(f">4si{len(middle)}sqqq{len(end)}s").pack, frame[:4], middle, end)
    is_right = answer.frame(0, 0, -1, 0) == frame and answer.frame(0, -1, -1, -1) == other
    return answer if is_right else None


def _shape(
    header: RequestHeader, request: ProduceRequest, topic: TopicProduceData, answer: Answer
) -> tuple[bytes, Shape]:
    """The shape, and the bytes from the client id to the batch by which it is known, as the wire writes them."""
    index = topic.partition_data[0].index
    named = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[])
    one_byte = PartitionProduceData(index=index, records=b"\0")
    filled = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[one_byte])
    plain = ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=[filled])
    head, _, tail = cast("list[bytes]", encode_request(0, header.client_id, plain, header.version))
    known_by = head[4 + _CLIENT_ID_AT : -1]  # without the frame's size before it, and the batch's behind
    return known_by, Shape(header, named, index, tail, answer)
