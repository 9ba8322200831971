"""Clients on bare sockets: frames made beforehand, so that the broker is what takes the time."""

import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from bench.broker_servers import Server
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.wire.apis import FETCH, PRODUCE, Api
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.parts import Buffer
from ottla.wire.schema import Request
from ottla.wire.uuids import ZERO_UUID

SIZE = struct.Struct(">i")
VERSIONS = {
    "ApiVersions": 3,
    "ConsumerGroupHeartbeat": 1,
    "CreateTopics": 5,
    "DeleteTopics": 6,
    "EndTxn": 5,
    "Fetch": 12,
    "FindCoordinator": 3,
    "IncrementalAlterConfigs": 1,
    "InitProducerId": 5,
    "JoinGroup": 9,
    "Metadata": 12,
    "OffsetCommit": 8,
    "Produce": 12,
    "SyncGroup": 5,
}
RECEIVE_BYTES = 1 << 20
START_SECONDS = 60
TOPICS_A_REQUEST = 100
TOPIC_ALREADY_EXISTS = 36


class Refused(Exception):
    """The broker answered with an error."""


class RawClient:
    """One connection; a request after the other, or frames as the caller sends them."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=START_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: Request) -> Any:
        """The answer to a request, when nothing else is under way."""
        self.socket.sendall(frame_of(request))
        return answer_of(request.api, self.receive_frame())

    def receive_frame(self) -> bytes:
        """The next frame, without its size."""
        while (frame := self.take_frame()) is None:
            self.receive_more()
        return frame

    def receive_more(self) -> None:
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._received += data

    def take_frame(self) -> bytes | None:
        """A frame that has been received whole."""
        received = self._received
        if len(received) < SIZE.size:
            return None
        end = SIZE.size + SIZE.unpack_from(received)[0]
        if len(received) < end:
            return None
        frame = bytes(received[SIZE.size : end])
        del received[:end]
        return frame


def frame_of(request: Request, version: int | None = None) -> bytes:
    asked = VERSIONS[request.api.name] if version is None else version
    return b"".join(cast(list[Buffer], encode_request(1, "bench", request, asked)))


def answer_of(api: Api, frame: bytes) -> Any:
    return decode_response(frame, api, VERSIONS[api.name])[1]


def produce_request(topics: Sequence[str], value_bytes: int, acks: int = 1) -> ProduceRequest:
    """One record to partition 0 of each topic."""
    batch = bytes(build_batch([b"x" * value_bytes], timestamp=time.time_ns() // 1_000_000))
    data = [
        TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]) for topic in topics
    ]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data)


def create_topics(client: RawClient, names: Sequence[str]) -> None:
    """Create them with one partition each; their files go soon when they are deleted."""
    configs = [CreatableTopicConfig(name="file.delete.delay.ms", value="1000")]
    for first in range(0, len(names), TOPICS_A_REQUEST):
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
            for name in names[first : first + TOPICS_A_REQUEST]
        ]
        for topic in client.ask(CreateTopicsRequest(topics=topics)).topics:
            if topic.error_code not in (0, TOPIC_ALREADY_EXISTS):
                raise Refused(f"creating {topic.name}: error {topic.error_code}, {topic.error_message}")


def delete_topic(client: RawClient, name: str) -> None:
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=30_000))


def write_to_each(client: RawClient, names: Sequence[str]) -> None:
    """One record to each topic, again to those that do not take it yet."""
    for first in range(0, len(names), TOPICS_A_REQUEST):
        missing = list(names[first : first + TOPICS_A_REQUEST])
        deadline = time.monotonic() + START_SECONDS
        while missing:
            if time.monotonic() > deadline:
                raise Refused(f"{len(missing)} topics take no record, {missing[0]} among them")
            missing = _refused_by(client.ask(produce_request(missing, value_bytes=100)))


def _refused_by(answer: Any) -> list[str]:
    return [topic.name for topic in answer.responses if any(each.error_code for each in topic.partition_responses)]


def new_topic(server: Server, name: str) -> None:
    """Create a topic, and return when it takes records."""
    with RawClient(server.address) as client:
        create_topics(client, [name])
        write_to_each(client, [name])


def start_to_first_record(server: Server) -> float:
    """Seconds from the start of the process to the first acknowledged record, in a topic created for it."""
    started = time.monotonic()
    server.start()
    while time.monotonic() - started < START_SECONDS:
        server.process.pid  # noqa: B018 - says so if it has ended
        try:
            new_topic(server, "first")
        except (OSError, Refused):
            time.sleep(0.005)
        else:
            return time.monotonic() - started
    raise TimeoutError(f"{server.name} took no record within {START_SECONDS} s")


# One-record requests


def requests_a_second(server: Server, topic: str, *, connections: int, in_flight: int, seconds: float) -> float:
    """Requests of one record of 100 B, a fixed number of them always under way on each connection."""
    request = produce_request([topic], value_bytes=100)
    return pipelined(server, request, _refuse_errors, connections=connections, in_flight=in_flight, seconds=seconds)


def pipelined(
    server: Server,
    request: Request,
    check: Callable[[Any], None],
    *,
    connections: int,
    in_flight: int,
    seconds: float,
) -> float:
    """How many a second of one request, over and over; `check` raises what is wrong with an answer."""
    frame = frame_of(request)
    clients = [RawClient(server.address) for _ in range(connections)]
    try:
        for client in clients:  # the answers that follow are all as long as this one
            client.socket.sendall(frame)
            answer = client.receive_frame()
            check(answer_of(request.api, answer))
        pipelines = [Pipeline(client, frame, SIZE.size + len(answer)) for client in clients]
        started = time.perf_counter()
        for pipeline in pipelines:
            pipeline.send(in_flight)
        _keep_going(pipelines, started + seconds)
        answered = sum(pipeline.answered for pipeline in pipelines)
        taken = time.perf_counter() - started
        for pipeline in pipelines:
            check(answer_of(request.api, pipeline.finish()))
    finally:
        for client in clients:
            client.socket.close()
    return answered / taken


class Pipeline:
    """A connection with requests of one kind under way, whose answers are counted by their bytes."""

    def __init__(self, client: RawClient, frame: bytes, answer_bytes: int) -> None:
        self._client = client
        self._frame = frame
        self._answer_bytes = answer_bytes
        self._partial_bytes = 0
        self._last = b""
        self.sent = 0
        self.answered = 0

    def fileno(self) -> int:
        return self._client.socket.fileno()

    def send(self, count: int) -> None:
        self.sent += count
        self._client.socket.sendall(self._frame * count)

    def receive(self) -> int:
        """How many answers came whole with the bytes that are there; waits for the first of these."""
        data = self._client.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._last = (self._last + data)[-self._answer_bytes :]
        count, self._partial_bytes = divmod(self._partial_bytes + len(data), self._answer_bytes)
        self.answered += count
        return count

    def finish(self) -> bytes:
        """Take the answers still to come; the last one, without its size."""
        while self.answered < self.sent:
            self.receive()
        return self._last[SIZE.size :]


def _keep_going(pipelines: list[Pipeline], until: float) -> None:
    """Send a request for each answer, until the time is over."""
    if len(pipelines) == 1:
        pipeline = pipelines[0]
        while time.perf_counter() < until:
            pipeline.send(pipeline.receive())
        return
    by_number = {pipeline.fileno(): pipeline for pipeline in pipelines}
    with select.epoll() as poll:
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        while time.perf_counter() < until:
            for number, _ in poll.poll(1):
                pipeline = by_number[number]
                pipeline.send(pipeline.receive())


def _refuse_errors(answer: Any) -> None:
    if names := _refused_by(answer):
        raise Refused(f"{names[0]} did not take a record: {answer}")


# Many topics


def records_a_second_to_topics(server: Server, names: Sequence[str], seconds: float) -> float:
    """One record of 1 KB to each topic, in requests of a hundred topics, over and over."""
    requests = [
        produce_request(names[first : first + TOPICS_A_REQUEST], value_bytes=1_000)
        for first in range(0, len(names), TOPICS_A_REQUEST)
    ]
    frames = [frame_of(request) for request in requests]
    written = 0
    with RawClient(server.address) as client:
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            for frame in frames:
                client.socket.sendall(frame)
                answer = client.receive_frame()
            written += len(names)
        taken = time.perf_counter() - started
        _refuse_errors(answer_of(PRODUCE, answer))
    return written / taken


# Latency


def end_to_end_seconds(server: Server, topic: str, *, rate: int, seconds: float, acks: int = 1) -> list[float]:
    """From when each record was due to be sent until a waiting consumer has it, at a fixed rate of records."""
    frame = frame_of(produce_request([topic], value_bytes=100, acks=acks))
    with RawClient(server.address) as producer, RawClient(server.address) as consumer:
        producer.socket.sendall(frame)
        first = answer_of(PRODUCE, producer.receive_frame())
        next_offset = first.responses[0].partition_responses[0].base_offset + 1
        total, taken = int(rate * seconds), list[float]()
        sent, base_offset = 0, next_offset
        consumer.socket.sendall(frame_of(fetch_request(topic, next_offset)))
        start = time.perf_counter()
        while len(taken) < total:
            due = start + sent / rate
            wait = max(0.0, due - time.perf_counter()) if sent < total else 5.0
            readable, _, _ = select.select([producer.socket, consumer.socket], [], [], wait)
            if producer.socket in readable:
                producer.receive_more()
                while producer.take_frame() is not None:
                    pass
            if consumer.socket in readable:
                consumer.receive_more()
                if (answer := consumer.take_frame()) is not None:
                    now = time.perf_counter()
                    end_offset = _end_of(answer, next_offset)
                    taken += [now - start - (offset - base_offset) / rate for offset in range(next_offset, end_offset)]
                    next_offset = end_offset
                    consumer.socket.sendall(frame_of(fetch_request(topic, next_offset)))
            if sent < total and time.perf_counter() >= due:
                producer.socket.sendall(frame)
                sent += 1
    return taken


def fetch_request(topic: str, offset: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])])


def _end_of(frame: bytes, offset: int) -> int:
    """The offset behind the last record of a fetch's answer; `offset` if there are none."""
    (partition,) = answer_of(FETCH, frame).responses[0].partitions
    if partition.error_code:
        raise Refused(f"fetching: error {partition.error_code}")
    records, position = memoryview(partition.records or b""), 0
    while position < len(records):
        header = read_header(records[position:])
        position += header.size
        offset = header.next_offset
    return offset
