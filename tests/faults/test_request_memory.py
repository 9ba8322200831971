"""Large requests of many clients have a bound of memory together, and none of them keeps the others from theirs."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.loop.loop import Loop
from ottla.broker.network import request_memory
from ottla.broker.network.limits import Limits
from ottla.broker.network.receive_buffers import MOST_LENT_BYTES
from ottla.broker.network.request_memory import LEAST_RATE, PATIENCE_SECONDS, TOO_SLOW, Pool, RequestMemory
from tests.broker.test_connection import Server, framed
from tests.faults.broker_process import BrokerProcess

WAIT_S = 60.0
MOST_REQUEST_BYTES = 20 << 20
MOST_BYTES = 2 * MOST_REQUEST_BYTES
CLIENTS = 15


def begin_request(broker: BrokerProcess, size_bytes: int, sent_bytes: int) -> socket.socket:
    """Send as much of a large request as the broker takes, and no more."""
    client = socket.create_connection(broker.address)
    client.settimeout(0.3)
    with contextlib.suppress(TimeoutError, ConnectionError):
        client.sendall(size_bytes.to_bytes(4) + bytes(sent_bytes))
    return client


def test_parts_of_requests_have_a_bound_together_and_hold_up_nobody(tmp_path: Path) -> None:
    settings = {"socket.request.max.bytes": MOST_REQUEST_BYTES, "queued.max.request.bytes": MOST_BYTES}
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with BrokerProcess(tmp_path / "data", "--log-level", "warning", *options) as broker:
        before = broker.memory_bytes()
        clients = [begin_request(broker, MOST_REQUEST_BYTES, MOST_REQUEST_BYTES - 1) for _ in range(CLIENTS)]
        assert broker.memory_bytes("VmHWM") - before < MOST_BYTES + 3 * MOST_REQUEST_BYTES
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 0})
        written = []
        for _ in range(5):
            producer.produce("t", bytes(900_000), on_delivery=lambda error, _message: written.append(error))
        assert producer.flush(WAIT_S) == 0
        assert written == [None] * 5
        clients[0].settimeout(WAIT_S)  # it came first
        with contextlib.suppress(ConnectionError):
            assert clients[0].recv(1) == b""
        for client in clients:
            client.close()
        assert "came too slowly" in broker.errors()


def test_many_who_send_at_the_same_time_are_served_in_turn(tmp_path: Path) -> None:
    """More than there is memory for, and nobody is slow: nobody is turned away."""
    settings = {"socket.request.max.bytes": 4 << 20, "queued.max.request.bytes": 4 << 20}
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with BrokerProcess(tmp_path / "data", "--log-level", "warning", *options) as broker:
        config = {"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 0, "message.max.bytes": 1_100_000}
        producers = [Producer(config) for _ in range(10)]
        written: list[object] = []
        for _ in range(10):
            for producer in producers:
                producer.produce("t", bytes(900_000), on_delivery=lambda error, _message: written.append(error))
        deadline = time.monotonic() + WAIT_S
        for producer in producers:
            assert producer.flush(max(deadline - time.monotonic(), 0)) == 0
        assert written == [None] * 100
        assert broker.errors() == ""


def waiting_fetch(topic: bytes, offset: int) -> bytes:
    """A fetch of version 4 that waits for weeks."""
    header = struct.pack(">hhih", 1, 4, 0, -1)
    asks = struct.pack(">iiiibi", -1, 2**31 - 1, 1, 1 << 20, 0, 1)
    return header + asks + struct.pack(">h", len(topic)) + topic + struct.pack(">iiqi", 1, 0, offset, 1 << 20)


def test_who_has_too_many_requests_under_way_does_not_keep_others_from_memory(tmp_path: Path) -> None:
    settings = {"socket.request.max.bytes": 2 << 20, "queued.max.request.bytes": 2 << 20}
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with BrokerProcess(tmp_path / "data", "--log-level", "warning", *options) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 0})
        written = []
        producer.produce("t", b"", on_delivery=lambda error, _message: written.append(error))
        assert producer.flush(WAIT_S) == 0
        fetches = framed(*[waiting_fetch(b"t", 1)] * Limits().max_requests_in_flight)
        clients = []
        for _ in range(60):
            clients.append(client := socket.create_connection(broker.address))
            client.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                client.sendall(fetches + (2 << 20).to_bytes(4) + bytes(500_000))
        for _ in range(5):
            producer.produce("other", bytes(900_000), on_delivery=lambda error, _message: written.append(error))
        assert producer.flush(WAIT_S) == 0
        assert written == [None] * 6
        for client in clients:
            client.close()


def test_very_large_requests_that_stall_do_not_keep_ordinary_ones_waiting() -> None:
    loop = Loop()
    loop.now = lambda: 0.0  # so that nobody is given up
    memory = RequestMemory(loop, 12 << 20)
    large = [Server(request_memory=memory, loop=loop) for _ in range(4)]
    for server in large:
        unsent = memoryview((4 << 20).to_bytes(4) + bytes((4 << 20) - 1))
        for _ in range(200):
            with contextlib.suppress(BlockingIOError):
                unsent = unsent[server.client.send(unsent) :]
            server.turn(1)
    assert memory.is_scarce
    ordinary = Server(request_memory=memory, loop=loop)
    for _ in range(5):
        ordinary.send(framed(bytes(1_000_000)))
        ordinary.slots[-1].answer([b"done"])
    assert len(ordinary.frames) == 5
    for server in (*large, ordinary):
        assert server.reasons == []
        server.connection.close("the test is over")
        server.client.close()
        server.slots.clear()
    assert memory.held_bytes == 0
    loop.close()


def test_those_who_stall_are_given_up_together() -> None:
    """However many hold a part of the memory, they do not stall one after the other."""
    now = 0.0
    loop = Loop()
    loop.now = lambda: now
    memory = RequestMemory(loop, 12 << 20)
    request = framed(bytes(1_900_000))
    stalling = [(Server(request_memory=memory, loop=loop), [memoryview(request)[:-1]]) for _ in range(20)]
    honest = Server(request_memory=memory, loop=loop), [memoryview(request)]

    def send_on(server: Server, unsent: list[memoryview]) -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            unsent[0] = unsent[0][server.client.send(unsent[0]) :]
        server.turn(1)

    for _ in range(50):
        for server, unsent in stalling:
            send_on(server, unsent)
    rounds = 0
    while not honest[0].frames:
        for _ in range(50):
            for server, unsent in (*stalling, honest):
                send_on(server, unsent)
        rounds += 1
        now += PATIENCE_SECONDS
        memory.ordinary._look()
    assert 1 < rounds <= 10
    assert honest[0].reasons == []
    for server, _ in (*stalling, honest):
        server.connection.close("the test is over")
        server.client.close()
        server.slots.clear()
    assert memory.held_bytes == 0
    loop.close()


def test_a_buffer_that_cannot_be_lent_takes_no_memory() -> None:
    memory = RequestMemory(loop := Loop())
    server = Server(request_memory=memory, loop=loop)
    size_bytes = MOST_LENT_BYTES // 2 + 1
    server.send(framed(bytes(size_bytes)))
    server.slots[-1].answer([b"done"])
    server.send((MOST_LENT_BYTES + 1).to_bytes(4) + bytes(100_000))
    assert 0 < memory.held_bytes < 1_000_000
    server.close()
    assert memory.held_bytes == 0


class Holder:
    """A connection that takes what it gets."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.received_bytes = 0
        self.grown = 0
        self.reason = ""

    def grow(self) -> None:
        self.grown += 1

    def refuse(self, reason: str) -> None:
        self.reason = reason


def test_the_first_in_the_row_goes_on_though_all_is_stopped() -> None:
    loop = Loop()
    pool = Pool(loop, 100)
    holders = [Holder() for _ in range(5)]
    assert all(pool.take(holder, 20) for holder in holders)
    assert pool.take(holders[0], 20)  # or all would wait for each other
    assert not any(pool.take(holder, 20) for holder in holders[1:])
    assert pool.take(holders[0], 20)
    pool.received(holders[0])
    assert [holder.grown for holder in holders] == [0, 1, 0, 0, 0]
    pool.give_back(60)
    assert [holder.grown for holder in holders] == [0, 1, 0, 0, 0]
    pool.give_back(20)
    assert [holder.grown for holder in holders] == [0, 1, 1, 0, 0]
    pool.received(holders[1])
    assert [holder.grown for holder in holders] == [0, 1, 1, 1, 0]
    pool.give_back(40)
    assert [holder.grown for holder in holders] == [0, 1, 1, 1, 1]
    loop.close()


def test_who_is_slow_is_given_up_only_while_others_wait() -> None:
    loop = Loop()
    now = 0.0
    loop.now = lambda: now
    pool = Pool(loop, 10 * LEAST_RATE)
    slow, busy, first, other = (Holder() for _ in range(4))
    busy.is_stopped = True
    assert pool.take(slow, 4 * LEAST_RATE)
    assert pool.take(busy, 5 * LEAST_RATE)
    now = 1000.0
    pool._look()
    assert slow.reason == ""
    assert pool.take(first, 20 * LEAST_RATE)
    assert not pool.take(other, 2 * LEAST_RATE)
    pool._look()
    assert [holder.reason == "" for holder in (slow, busy, first, other)] == [False, True, True, True]
    for _ in range(3):
        now += PATIENCE_SECONDS
        first.received_bytes += int(PATIENCE_SECONDS * LEAST_RATE)
        pool._look()
    assert first.reason == ""
    now += PATIENCE_SECONDS  # it stalls, though it was quick before
    pool._look()
    assert first.reason
    assert not other.reason
    loop.close()


def test_nobody_gains_time_by_asking_for_more() -> None:
    loop = Loop()
    now = 0.0
    loop.now = lambda: now
    pool = Pool(loop, 100)
    drops, other = Holder(), Holder()
    assert pool.take(drops, 200)
    assert not pool.take(other, 1)
    for _ in range(4):
        now += PATIENCE_SECONDS / 4
        drops.received_bytes += 200
        assert pool.take(drops, 200)
    pool._look()
    assert drops.reason
    loop.close()


@pytest.mark.parametrize("reason", ["held", "too many under way"])
def test_who_waits_for_the_broker_is_not_too_slow(reason: str) -> None:
    loop = Loop()
    now = 0.0
    loop.now = lambda: now
    memory = RequestMemory(loop, 300_000)
    pools = (memory.ordinary, memory.large)  # in this while it is stopped, in that while it comes
    server = Server(Limits(max_requests_in_flight=2), request_memory=memory, loop=loop)

    def look() -> None:
        for pool in pools:
            pool._look()

    server.send(framed(b"one", b"two", bytes(200_000))[:-90_000])
    if reason == "held":
        server.connection.hold()
        server.slots[0].answer([b"1"])
        server.slots[1].answer([b"2"])
    assert memory.held_bytes > 100_000
    for pool in pools:
        assert pool.take(Holder(), 300_000)  # who is favoured
        assert not pool.take(Holder(), 300_000)
    for _ in range(10):
        now += PATIENCE_SECONDS
        look()
    assert server.reasons == []
    if reason == "held":
        server.connection.release()
    else:
        server.slots[0].answer([b"1"])
        server.slots[1].answer([b"2"])
    server.turn()
    now += PATIENCE_SECONDS / 2
    look()
    assert server.reasons == []  # it has the time that others have
    now += PATIENCE_SECONDS
    look()
    assert server.reasons == [TOO_SLOW]
    server.close()


def test_a_request_behind_too_many_gets_memory_when_it_is_its_turn() -> None:
    memory = RequestMemory(loop := Loop())
    server = Server(Limits(max_requests_in_flight=1), request_memory=memory, loop=loop)
    large = random.Random(1).randbytes(900_000)
    data = framed(b"one", large, b"three")
    sent = server.client.send(data)
    assert 100_000 < sent < len(data)
    server.turn()
    assert memory.held_bytes <= sent
    server.slots[0].answer([b"1"])
    server.send(data[sent:])
    assert server.frames == [b"one", large]
    server.slots[1].answer([b"2"])
    server.turn()
    assert server.frames == [b"one", large, b"three"]
    assert memory.held_bytes == 0
    server.close()


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["send", "send", "rest", "answer", "hold", "release", "close"])),
        max_size=40,
    ),
    st.lists(st.integers(0, 300_000), min_size=1, max_size=10),
)
def test_all_memory_is_given_back_however_connections_end(steps: list[tuple[int, str]], sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_memory, "ORDINARY_BYTES", 150_000)
        give_back_all_memory(steps, sizes)


def give_back_all_memory(steps: list[tuple[int, str]], sizes: list[int]) -> None:
    loop = Loop()
    memory = RequestMemory(loop, 400_000)
    limits = Limits(max_frame_bytes=300_000, max_requests_in_flight=2)
    servers = [Server(limits, request_memory=memory, loop=loop) for _ in range(4)]
    unsent, held = [b""] * 4, [0] * 4
    for number, (which, step) in enumerate(steps):
        server, size_bytes = servers[which], sizes[number % len(sizes)]
        if not server.connection.is_open:
            continue
        if step in ("send", "rest"):
            data = unsent[which] + (framed(bytes(size_bytes)) if step == "send" else b"")
            with contextlib.suppress(BlockingIOError):
                data = data[server.client.send(data[: len(data) if step == "rest" else size_bytes]) :]
            unsent[which] = data
            server.turn(3)
        elif step == "answer":
            for slot in server.slots:
                if slot.parts is None:
                    slot.answer([b"done"])
            server.slots.clear()
        elif step == "hold":
            server.connection.hold(size_bytes)
            held[which] += 1
        elif step == "release" and held[which]:
            server.connection.release()
            held[which] -= 1
        elif step == "close":
            server.connection.close("the test says so")
        assert memory.held_bytes >= 0
        for pool in (memory.ordinary, memory.large):
            assert pool.is_scarce is (pool.held_bytes >= pool.most_bytes or bool(pool._waiting))
        assert memory.is_scarce is (memory.ordinary.is_scarce or memory.large.is_scarce)
    for server in servers:
        server.connection.close("the test is over")
        server.client.close()
        server.slots.clear()
    assert memory.held_bytes == 0
    assert not memory.is_scarce
    loop.close()
