"""What a request costs, client's part of the socket included: CPU time of one process, so others count for little."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory

from bench.clients_groups import commit_request
from bench.clients_raw import SIZE, VERSIONS, frame_of, produce_request
from bench.report import Result, spread_of
from ottla.broker.broker import Broker
from ottla.broker.dispatch import Dispatch
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import run_to_end
from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import Limits
from ottla.broker.network.receive_buffers import ReceiveBuffers
from ottla.log.files import DiskFiles
from ottla.wire.messages.create_topics import CreatableTopic
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

TOPICS = 100
SOCKET_BYTES = 1 << 20
RECEIVE_BYTES = 1 << 16
CALLS_A_SAMPLE = 2_000
WARM_UP = 100
OLD_VERSION = 7  # of Produce, as clients of some years ago send it


@contextmanager
def connected() -> Iterator[Callable[[bytes], None]]:
    """A broker with a connection; gives what sends bytes over it and lets the broker answer all of them."""
    with TemporaryDirectory(prefix="ottla-bench-") as folder:
        loop = Loop()
        broker = Broker(loop, DiskFiles(), folder)
        broker.open()
        run_to_end(loop, broker.topic_requests.create([_topic(number) for number in range(TOPICS)]))
        client, served = socket.socketpair()
        for end in (client, served):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        handle = Dispatch(broker).handle
        connection = Connection(loop, served, "", ReceiveBuffers(), Limits(), handle, lambda _connection, _reason: None)

        answer_bytes: dict[bytes, int] = {}  # to what was sent before

        def exchange(data: bytes) -> None:
            client.sendall(data)
            left = answer_bytes.get(data)
            if left is None:
                answer_bytes[data] = _receive_all(loop, client, _count_frames(data))
                return
            while left > 0:
                loop.run_once()
                try:
                    left -= len(client.recv(RECEIVE_BYTES))
                except BlockingIOError:
                    continue

        try:
            yield exchange
        finally:
            connection.close("the bench is over")
            client.close()
            broker.stop()
            loop.close()


def _count_frames(data: bytes) -> int:
    count = position = 0
    while len(data) - position >= SIZE.size and (end := position + SIZE.size + SIZE.unpack_from(data, position)[0]):
        if end > len(data):
            break
        count, position = count + 1, end
    return count


def _receive_all(loop: Loop, client: socket.socket, count: int) -> int:
    """Receive so many answers; how many bytes they are."""
    received = b""
    while _count_frames(received) < count:
        loop.run_once()
        with suppress(BlockingIOError):
            received += client.recv(RECEIVE_BYTES)
    return len(received)


def _topic(number: int) -> CreatableTopic:
    return CreatableTopic(name=f"topic-{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[])


def _frames() -> Iterator[tuple[str, bytes, int, str]]:
    """What is sent at once, and of how many things that is."""
    one = produce_request(["topic-0"], value_bytes=100)
    for count, target in ((1, ""), (4, "< 20"), (16, "< 15")):
        yield f"Produce of one record, {count} at once", frame_of(one) * count, count, target
    for count, target in ((1, ""), (4, ""), (16, "< 25")):
        name = f"Produce of one record, version {OLD_VERSION}, {count} at once"
        yield name, frame_of(one, OLD_VERSION) * count, count, target
    ten = produce_request([f"topic-{number}" for number in range(10)], value_bytes=100)
    for version in (VERSIONS["Produce"], OLD_VERSION):
        for count, target in ((1, ""), (16, "< 97")):
            yield (
                f"Produce of 10 partitions, v{version}, {count} at once",
                frame_of(ten, version) * count,
                count,
                target,
            )
    everywhere = produce_request([f"topic-{number}" for number in range(TOPICS)], value_bytes=1_000)
    yield f"a record in a Produce of {TOPICS} topics", frame_of(everywhere), TOPICS, "< 30"
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="topic-1", partitions=[wanted])])
    assert VERSIONS["Fetch"] <= 12  # the last that name topics
    yield "Fetch of 1 KB", frame_of(fetch), 1, ""
    commit = frame_of(commit_request("group", "topic-0"))
    for count in (1, 16):
        yield f"OffsetCommit of one partition, {count} at once", commit * count, count, ""


def _cpu_seconds(exchange: Callable[[bytes], None], data: bytes, times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        exchange(data)
    return time.process_time() - started


def run(quick: bool) -> list[Result]:
    results = []
    with connected() as exchange:
        for name, data, count, target in _frames():
            _cpu_seconds(exchange, data, WARM_UP)
            times = CALLS_A_SAMPLE // count + 1
            samples = [_cpu_seconds(exchange, data, times) / times / count for _ in range(5 if quick else 25)]
            results.append(Result.of(name, spread_of(samples), "us", target, scale=1e6))
    return results
