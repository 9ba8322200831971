"""Where the CPU of producing in bulk goes: the broker's, and what its parts cost when nothing else is done.

The same batches, made beforehand, go from a bare socket to a broker and to a loop that only receives, checks and writes
them, in turns. The loop is in Python, too, and waits where it receives: what the broker takes beyond it is what being a
broker costs, and less than what the interpreter takes. Seconds are of CPU and per GB of values.
"""

import multiprocessing
import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

from crc32c import crc32c

from bench import clients_raw as raw
from bench.broker_servers import Ottla, Server, servers
from bench.event_values import DIFFERENT_VALUES, event_values
from bench.report import Result, spread_of
from ottla.records.batch import ATTRIBUTES_AT, HEADER_SIZE, read_header
from ottla.records.build import build_batch
from ottla.records.codec import scan_records
from ottla.records.compression import NONE, codec_number, decompress_to_look
from ottla.wire.frames import encode_request
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.parts import Buffer

GIGABYTE = 1e9
IN_FLIGHT = 2
WARM_UP = 5
CLOCK = "looking at the clock"
FORK = multiprocessing.get_context("fork")


class Case(NamedTuple):
    """A request like those that librdkafka makes."""

    name: str
    value_bytes: int
    record_count: int
    codec: str

    def batch(self) -> bytes:
        values = event_values(self.value_bytes)
        chosen = [values[number % DIFFERENT_VALUES] for number in range(self.record_count)]
        return bytes(build_batch(chosen, timestamp=time.time_ns() // 1_000_000, codec=codec_number(self.codec)))

    def gigabytes(self, requests: int) -> float:
        return self.value_bytes * self.record_count * requests / GIGABYTE


CASES = [
    Case(f"{size}, {codec}", value_bytes, record_count, codec)
    for size, value_bytes, record_count in (("1 KB", 1_000, 980), ("100 B", 100, 4_000))
    for codec in ("none", "lz4")
]


def frame_of(topic: str, batch: bytes) -> bytes:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
    return b"".join(cast(list[Buffer], encode_request(1, "bench", request, raw.VERSIONS["Produce"])))


def broker_seconds(server: Server, batch: bytes, requests: int) -> float:
    topic = f"bulk-{time.time_ns()}"
    raw.new_topic(server, topic)
    frame = frame_of(topic, batch)
    with raw.RawClient(server.address) as client:
        for _ in range(WARM_UP):
            client.socket.sendall(frame)
            client.receive_frame()
        before = server.cpu_seconds()
        for number in range(requests):
            client.socket.sendall(frame)
            if number >= IN_FLIGHT - 1:
                client.receive_frame()
        for _ in range(IN_FLIGHT - 1):
            answer = client.receive_frame()
        taken = server.cpu_seconds() - before
        answered = raw.answer_of(ProduceRequest.api, answer).responses[0].partition_responses[0]
        if answered.error_code:
            raise raw.Refused(f"error {answered.error_code}")
        raw.delete_topic(client, topic)
    return taken


def bare_seconds(batch: bytes, requests: int, folder: Path) -> dict[str, float]:
    """By part: each batch is received whole, checked and written before the next."""
    header = read_header(batch)
    room = memoryview(bytearray(len(batch)))
    path = folder / "bare"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = FORK.Process(target=_send, args=(listener.getsockname(), batch, requests + WARM_UP))
        sender.start()
        served, _ = listener.accept()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    written = 0

    def receive() -> None:
        received = 0
        while received < len(room):
            received += served.recv_into(room[received:])

    def write() -> None:
        nonlocal written
        written += os.pwrite(descriptor, room, written)

    area: Buffer = room[HEADER_SIZE:]

    def unpack() -> None:
        nonlocal area
        area = decompress_to_look(header.codec, room[HEADER_SIZE:])

    parts: dict[str, Callable[[], object]] = {
        "receiving": receive,
        "checksum": lambda: crc32c(room[ATTRIBUTES_AT:]),
        "decompressing": unpack,
        "a look at each record": lambda: scan_records(area, header.count),
        "writing": write,
        CLOCK: lambda: None,
    }
    if header.codec == NONE:
        del parts["decompressing"]
    taken = dict.fromkeys(parts, 0.0)
    try:
        for number in range(requests + WARM_UP):
            if number == WARM_UP:
                taken = dict.fromkeys(parts, 0.0)
            for name, part in parts.items():
                started = time.thread_time()
                part()
                taken[name] += time.thread_time() - started
    finally:
        os.close(descriptor)
        path.unlink()
        served.close()
        sender.join()
    clock = taken.pop(CLOCK)
    return {name: seconds - clock for name, seconds in taken.items()}


def _send(address: tuple[str, int], batch: bytes, times: int) -> None:
    with socket.create_connection(address) as client:
        for _ in range(times):
            client.sendall(batch)


def run(quick: bool) -> list[Result]:
    rounds, requests = (2, 50) if quick else (9, 200)
    results = []
    with servers([Ottla]) as [server], TemporaryDirectory(prefix="ottla-bench-") as folder:
        raw.start_to_first_record(server)
        for case in CASES:
            batch = case.batch()
            samples: dict[str, list[float]] = defaultdict(list)
            for _ in range(rounds):
                whole = broker_seconds(server, batch, requests)
                parts = bare_seconds(batch, requests, Path(folder))
                for name, seconds in {"": whole, **parts, "beyond these": whole - sum(parts.values())}.items():
                    samples[name].append(seconds / case.gigabytes(requests))
            for name, taken in samples.items():
                label = f"{case.name}: {name}" if name else f"producing {case.name}"
                results.append(Result.of(label, spread_of(taken), "s/GB"))
    return results
