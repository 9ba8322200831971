"""Connections that send whatever they like, beside a client that works: it notices nothing, and memory stays flat.

OTTLA_FUZZ_SECONDS is for how long.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ottla.wire import apis
from ottla.wire.apis import APIS, Api
from ottla.wire.frames import encode_request
from ottla.wire.registry import REQUESTS
from tests.compat.client import Fetched
from tests.compat.confluent_client import ConfluentClient
from tests.compat.samples import numbered
from tests.faults.broker_process import BrokerProcess
from tests.fuzz.test_wire import mutated
from tests.wire.joined import joined
from tests.wire.strategies import filled

SECONDS = float(os.environ.get("OTTLA_FUZZ_SECONDS", "6"))
WARM_UP_SHARE = 0.3
OPEN_CONNECTIONS = 100
MOST_BYTES = 64 << 20  # for all those connections
MOST_GROWTH_BYTES = 16 << 20  # once they are all there
TOPIC = "undisturbed"
# What creates things on purpose is no leak: these are sent broken, but not whole.
CREATING = (apis.CREATE_TOPICS, apis.CREATE_PARTITIONS, apis.METADATA)
VERSIONS = [(api, version) for api in APIS for version in range(api.least_served, api.highest + 1)]


def request(pair: tuple[Api, int]) -> bytes:
    api, version = pair
    return joined(encode_request(7, "fuzz", filled(REQUESTS[api.key], version), version))[4:]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def some_bytes(choices: random.Random) -> bytes:
    """What one connection sends at a time: noise, a frame of noise, a good request, a broken one, half of one."""
    pair = choices.choice(VERSIONS)
    match choices.randrange(6):
        case 0:
            return choices.randbytes(choices.randrange(200))
        case 1:
            return framed(choices.randbytes(choices.randrange(200)))
        case 2 if pair[0] not in CREATING:
            return framed(request(pair))
        case 3:
            return struct.pack(">i", choices.choice([-1, 0, 2**31 - 1, 100_000_000, 5]))
        case 4:
            whole = framed(request(pair))
            return whole[: choices.randrange(len(whole))]
    return framed(mutated(request(pair), choices))


class Fuzzer:
    """Keeps many connections open, each of which says something wrong now and then."""

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        self._address = address
        self._choices = random.Random(seed)
        self._open: list[socket.socket] = []
        self.sent = 0

    def run(self, until: Callable[[], bool]) -> None:
        try:
            while not until():
                self._turn()
        finally:
            for connection in self._open:
                connection.close()

    def _turn(self) -> None:
        if len(self._open) < OPEN_CONNECTIONS:
            self._open.append(socket.create_connection(self._address, 10))
        index = self._choices.randrange(len(self._open))
        connection = self._open[index]
        connection.setblocking(False)
        # A connection that began a large frame holds, rightly, all that it sent: so none lives for long.
        is_over = self._choices.random() < 0.05
        try:
            connection.send(some_bytes(self._choices))
            self.sent += 1
            with suppress(BlockingIOError):
                is_over |= not connection.recv(1 << 16)
        except OSError:
            is_over = True
        if is_over:
            self._open.pop(index).close()


@contextmanager
def fuzzing(address: tuple[str, int], seed: int) -> Iterator[Fuzzer]:
    fuzzer = Fuzzer(address, seed)
    ended = threading.Event()
    thread = threading.Thread(target=fuzzer.run, args=(ended.is_set,))
    thread.start()
    try:
        yield fuzzer
    finally:
        ended.set()
        thread.join()


def work(client: ConfluentClient, first_offset: int) -> int:
    """Write a little and read it back; the next offset."""
    records = numbered(20)
    client.write(TOPIC, 0, records, codec="none", acks=-1)
    expected = [Fetched(offset, record) for offset, record in enumerate(records, first_offset)]
    assert client.read(TOPIC, 0, first_offset, len(records)) == expected
    return first_offset + len(records)


def test_a_client_beside_fuzzed_connections(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with BrokerProcess(tmp_path) as broker:
        with ConfluentClient(broker.bootstrap) as client:
            client.create_topic(TOPIC, 1, {})
            idle_bytes = broker.memory_bytes()
            with fuzzing(broker.address, seed) as fuzzer:
                started = time.monotonic()
                offset, warm_bytes = 0, 0
                while (passed := time.monotonic() - started) < SECONDS:
                    offset = work(client, offset)
                    if not warm_bytes and passed > SECONDS * WARM_UP_SHARE:
                        warm_bytes = broker.memory_bytes()
            end_bytes = broker.memory_bytes()
            print(f"{fuzzer.sent} pieces, {offset} records, {idle_bytes}, {warm_bytes}, {end_bytes} bytes of memory")
        assert fuzzer.sent > 100
        assert warm_bytes - idle_bytes < MOST_BYTES
        assert end_bytes - warm_bytes < MOST_GROWTH_BYTES
        assert broker.errors() == ""
