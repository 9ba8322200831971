"""A broker with many topics, many connections, or a long log: what it costs, and how soon it is there again."""

import resource
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from bench import clients_raw as raw
from bench.broker_servers import Ottla, Server, servers
from bench.report import Result
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.uuids import ZERO_UUID

MEGABYTE = 1 << 20
TOPIC = "long"
IN_FLIGHT = 32
CONNECTIONS = 5_000
SPARE_FILES = 100
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
VALUE_BYTES = {"16 KB": 16_000, "1 KB": 900}


def run(quick: bool) -> list[Result]:
    results: list[Result] = []
    for part in (many_topics, many_connections, long_log):
        results += part(quick)
    return results


@contextmanager
def running() -> Iterator[Server]:
    with servers([Ottla]) as (server,):
        raw.start_to_first_record(server)
        yield server


def figure(name: str, value: float, unit: str, target: str = "") -> Result:
    return Result(name, value, unit, value, value, target)


def timed(name: str, server: Server, work: Callable[[], object]) -> list[Result]:
    """Seconds, and of them those in which the broker's process was busy."""
    cpu, started = server.cpu_seconds(), time.perf_counter()
    work()
    taken = time.perf_counter() - started
    return [figure(name, taken, "s"), figure(f"{name}, CPU of the broker", server.cpu_seconds() - cpu, "s")]


def memory(name: str, server: Server) -> Result:
    return figure(name, server.memory_bytes() / MEGABYTE, "MB")


# Topics


def many_topics(quick: bool) -> list[Result]:
    names = [f"topic-{number}" for number in range(500 if quick else 5_000)]
    at_size = f"{len(names):,} topics"
    with running() as server:
        results = [memory("memory without topics", server)]
        with raw.RawClient(server.address) as client:
            results += timed(f"create {at_size}", server, lambda: raw.create_topics(client, names))
            results.append(memory(f"memory with {at_size} without records", server))
            results += timed(f"first record to each of {at_size}", server, lambda: raw.write_to_each(client, names))
            results += timed(f"another record to each of {at_size}", server, lambda: raw.write_to_each(client, names))
        results.append(memory(f"memory with {at_size}", server))
        results.append(seconds(f"clean stop with {at_size}", server.stop))
        results += restarted(f"start after it with {at_size}", server, names[:1])
        results.append(memory(f"memory then with {at_size}", server))
        kill(server)
        results += restarted(f"start after kill -9 with {at_size}", server, names[:1])
        with raw.RawClient(server.address) as client:
            results += timed(f"delete {at_size}", server, lambda: delete(client, names))
    return results


def seconds(name: str, work: Callable[[], object]) -> Result:
    started = time.perf_counter()
    work()
    return figure(name, time.perf_counter() - started, "s")


def kill(server: Server) -> None:
    server.process.kill()
    server.stop()


def restarted(name: str, server: Server, topics: list[str]) -> list[Result]:
    """From the start of the process to the first record that is acknowledged in a topic that is there."""

    def start() -> None:
        server.start()
        while True:
            try:
                with raw.RawClient(server.address) as client:
                    raw.write_to_each(client, topics)
                    return
            except ConnectionError:
                time.sleep(0.002)

    taken = seconds(name, start)
    return [taken, figure(f"{name}, CPU of the broker", server.cpu_seconds(), "s")]


def delete(client: raw.RawClient, names: list[str]) -> None:
    for first in range(0, len(names), raw.TOPICS_A_REQUEST):
        topics = [
            DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names[first : first + raw.TOPICS_A_REQUEST]
        ]
        client.ask(DeleteTopicsRequest(topics=topics, timeout_ms=30_000))


# Connections


def many_connections(quick: bool) -> list[Result]:
    count = 500 if quick else CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(count + SPARE_FILES, hard)), hard))
    try:
        with running() as server, ExitStack() as stack:
            before = server.memory_bytes()
            clients = [stack.enter_context(raw.RawClient(server.address)) for _ in range(count)]
            results = timed(f"a request from each of {count:,} connections", server, lambda: ask_each(clients))
            grown = (server.memory_bytes() - before) / MEGABYTE
            return [*results, figure(f"memory of {count:,} connections", grown, "MB")]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ask_each(clients: list[raw.RawClient]) -> None:
    for client in clients:
        client.socket.sendall(API_VERSIONS)
    for client in clients:
        client.receive_frame()


# A long log


def long_log(quick: bool) -> list[Result]:
    """Killed right behind the last acknowledgement. The recovery point is where the housekeeping had brought it."""
    results = []
    megabytes = 128 if quick else 1_000
    for name, value_bytes in VALUE_BYTES.items():
        with running() as server:
            raw.new_topic(server, TOPIC)
            label = f"write {megabytes:,} MB in batches of {name}"
            taken = seconds(label, partial(fill, server, megabytes, value_bytes))
            kill(server)
            label = f"kill -9 to first record and fetch, {megabytes:,} MB in batches of {name}"
            started = time.perf_counter()
            again = restarted(label, server, [TOPIC])
            with raw.RawClient(server.address) as client:
                client.ask(raw.fetch_request(TOPIC, 0))
            results += [taken, figure(label, time.perf_counter() - started, "s", "< 1"), again[1]]
    return results


def fill(server: Server, megabytes: int, value_bytes: int) -> None:
    request = raw.produce_request([TOPIC], value_bytes=value_bytes)
    frame = raw.frame_of(request)
    left = megabytes * MEGABYTE // len(frame)
    under_way = 0
    with raw.RawClient(server.address) as client:
        while left or under_way:
            count = min(left, IN_FLIGHT - under_way)
            if count:
                client.socket.sendall(frame * count)
                left -= count
                under_way += count
            client.receive_frame()
            under_way -= 1
