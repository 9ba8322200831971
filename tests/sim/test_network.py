"""The simulated network: order, delays, ways that are blocked, machines that die, connections that break."""

from __future__ import annotations

from random import Random

import pytest

from ottla.broker.loop.system import READ, WRITE, SocketBuffers
from ottla.testing.simulated_system import SimulatedSystem
from ottla.testing.simulation.network import Delays, SimulatedListener, SimulatedNetwork, SimulatedSocket
from ottla.testing.simulation.timeline import Timeline

NEAR, FAR, PORT = "10.0.0.1", "10.0.0.2", 9092


class Pair:
    """Two machines with a connection between them."""

    def __init__(self, seed: int = 1) -> None:
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline, Random(seed), Delays())
        self.near = SimulatedSystem(seed, self.network, NEAR)
        self.far = SimulatedSystem(seed + 1, self.network, FAR)
        self.listener: SimulatedListener = self.far.listen("", PORT, 1, SocketBuffers())

    def connect(self) -> tuple[SimulatedSocket, SimulatedSocket]:
        near = self.near.connect(FAR, PORT)
        self.run(1.0)
        self.near.check_connected(near)
        return near, self.listener.accept()[0]

    def run(self, seconds: float) -> None:
        end = self.timeline.seconds + seconds
        while self.timeline.next_due() <= end:
            self.timeline.jump_to(self.timeline.next_due())
            self.timeline.run_due()
        self.timeline.jump_to(end)


def received(sock: SimulatedSocket) -> bytes:
    data = b""
    try:
        while part := sock.recv(1 << 16):
            data += part
    except BlockingIOError:
        pass
    return data


def send(sock: SimulatedSocket, data: bytes) -> None:
    while data:
        data = data[sock.send(data) :]


@pytest.mark.parametrize("seed", range(10))
def test_bytes_take_a_while_and_stay_in_order(seed: int) -> None:
    pair = Pair(seed)
    near, far = pair.connect()
    for number in range(100):
        send(near, b"%d," % number)
    assert received(far) == b""
    pair.run(5.0)
    assert received(far) == b"".join(b"%d," % number for number in range(100))


def test_a_port_that_nobody_listens_on_refuses_and_a_machine_without_power_says_nothing() -> None:
    pair = Pair()
    refused = pair.near.connect(FAR, PORT + 1)
    assert refused.ready_events() == 0
    pair.run(1.0)
    with pytest.raises(ConnectionRefusedError):
        pair.near.check_connected(refused)
    pair.network.power_off(FAR)
    silent = pair.near.connect(FAR, PORT)
    pair.run(60.0)
    assert silent.ready_events() == 0
    pair.listener.close()
    pair.network.power_on(FAR)
    pair.run(1.0)
    with pytest.raises(ConnectionRefusedError):
        pair.near.check_connected(silent)


def test_what_is_sent_on_a_blocked_way_arrives_when_it_is_open_again() -> None:
    pair = Pair()
    near, far = pair.connect()
    pair.network.block(NEAR, FAR)
    send(near, b"held ")
    send(far, b"heard")
    pair.run(10.0)
    assert (received(far), received(near)) == (b"", b"heard")
    send(near, b"back")
    pair.network.unblock(NEAR, FAR)
    pair.run(1.0)
    assert received(far) == b"held back"


def test_a_connection_to_a_machine_that_lost_its_power_is_half_open_until_somebody_writes() -> None:
    pair = Pair()
    near, _far = pair.connect()
    pair.network.power_off(FAR)
    pair.run(100.0)
    assert near.ready_events() == WRITE
    send(near, b"are you there")
    pair.run(100.0)
    assert not near.is_ended
    pair.network.power_on(FAR)
    pair.run(1.0)
    assert near.is_ended
    assert near.recv(1) == b""
    with pytest.raises(BrokenPipeError):
        near.send(b"x")


def test_a_close_is_found_behind_what_was_sent_before_it() -> None:
    pair = Pair()
    near, far = pair.connect()
    send(near, b"last words")
    near.close()
    assert not far.is_ended
    pair.run(2.0)
    assert received(far) == b"last words"
    assert far.recv(1) == b""
    assert pair.network.connections() == []


def test_a_cut_breaks_both_ends_and_loses_what_was_on_its_way() -> None:
    pair = Pair()
    near, far = pair.connect()
    send(near, b"never seen")
    [connection] = pair.network.connections(NEAR)
    pair.network.cut(connection)
    pair.run(2.0)
    assert near.is_ended
    assert far.is_ended
    assert far.ready_events() == READ | WRITE


def test_a_writer_waits_while_the_other_end_reads_nothing() -> None:
    pair = Pair()
    near, far = pair.connect()
    sent = 0
    while near.ready_events() & WRITE:
        sent += near.send(bytes(1000))
    with pytest.raises(BlockingIOError):
        near.send(b"x")
    pair.run(5.0)
    assert near.ready_events() == 0
    assert len(received(far)) == sent
    assert near.ready_events() == WRITE


def test_a_machine_that_was_off_has_not_heard_of_who_wants_to_connect() -> None:
    pair = Pair()
    pair.network.block(NEAR, FAR)
    near = pair.near.connect(FAR, PORT)
    pair.run(1.0)
    pair.network.power_off(FAR)
    pair.network.close_all(FAR)
    pair.network.power_on(FAR)
    listener = pair.far.listen("", PORT, 1, SocketBuffers())
    pair.network.unblock(NEAR, FAR)
    pair.run(1.0)
    far, _ = listener.accept()
    send(near, b"hello")
    pair.run(1.0)
    assert (received(far), far.fileno() > 0) == (b"hello", True)
