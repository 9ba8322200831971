"""The connection to another broker: answers in order, timeouts, losses, back-off; on a simulated and a real network."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from ottla.broker.loop.loop import READ, WRITE, Loop
from ottla.broker.loop.system import SocketBuffers
from ottla.broker.network.peer import (
    MOST_WAITING,
    Peer,
    PeerFailure,
    PeerLost,
    PeerRefused,
    PeerSettings,
    PeerState,
    PeerTimedOut,
    PeerUnreachable,
)
from ottla.testing import LocalBroker
from ottla.testing.simulated_system import SimulatedSystem
from ottla.testing.simulation.network import SimulatedListener, SimulatedSocket, Stream
from ottla.wire import apis
from ottla.wire.frames import encode_response
from ottla.wire.header import read_request_header
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.schema import Response
from tests.conformance import requests
from tests.sim.simulated_broker import SimulatedBroker

PORT = 9092
SIZE_BYTES = 4
Answer = Response | PeerFailure


class Other:
    """A broker of a test: it answers what it is told to."""

    def __init__(self, system: SimulatedSystem) -> None:
        self._system = system
        self.listener: SimulatedListener | None = None
        self.socket: SimulatedSocket | None = None
        self._received = bytearray()
        self._unsent = bytearray()
        self.correlation_ids: list[int] = []
        self.connections = 0

    def listen(self) -> None:
        self.listener = self._system.listen("", PORT, 1, SocketBuffers())

    def step(self) -> None:
        """Take in what came, and send what is to be sent."""
        if self.listener is not None and self.listener.waiting:
            self.socket, _ = self.listener.accept()
            self.connections += 1
            self._received.clear()
            self._unsent.clear()
        if self.socket is None:
            return
        try:
            while data := self.socket.recv(1 << 20):
                self._received += data
        except BlockingIOError:
            pass
        while len(self._received) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(self._received[:SIZE_BYTES], "big")
            if len(self._received) < end:
                break
            self.correlation_ids.append(read_request_header(bytes(self._received[SIZE_BYTES:end])).correlation_id)
            del self._received[:end]
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except OSError:
            pass

    def answer(self, correlation_id: int | None = None, *, keys: int = 0) -> None:
        number = self.correlation_ids.pop(0) if correlation_id is None else correlation_id
        versions = ApiVersion(api_key=1, min_version=0, max_version=1)
        response = ApiVersionsResponse(error_code=number, api_keys=[versions] * keys)
        self.send(b"".join(encode_response(number, response, 0)))  # type: ignore[arg-type]

    def send(self, data: bytes) -> None:
        self._unsent += data

    def cut(self) -> None:
        assert self.socket is not None
        self.socket.close()
        self.socket = None
        self.correlation_ids.clear()


class Scene:
    """A peer, the broker at its other end, and the answers."""

    def __init__(self, seed: int, **settings: float) -> None:
        self.system = SimulatedSystem(seed)
        self.loop = Loop(self.system)
        self.other = Other(self.system)
        self.peer = Peer(self.loop, "127.0.0.1", PORT, "peer", PeerSettings(**settings), Random(seed))
        self.answers: list[Answer] = []

    def ask(self, timeout_seconds: float | None = None) -> None:
        before = len(self.answers)
        self.peer.send(ApiVersionsRequest(), 0, self.answers.append, timeout_seconds)
        assert len(self.answers) == before  # never within the call

    def run(self, seconds: float = 0.0) -> None:
        def step() -> bool:
            self.other.step()
            return False

        self.system.run_until(self.loop, step, seconds)

    def run_until(self, is_so: Callable[[], bool]) -> None:
        def step() -> bool:
            self.other.step()
            return is_so()

        assert self.system.run_until(self.loop, step, 60.0)

    def numbers(self) -> list[int]:
        """The answers that came, which tell the correlation ids of their requests."""
        found = []
        for answer in self.answers:
            assert isinstance(answer, ApiVersionsResponse), answer
            found.append(answer.error_code)
        return found

    def failures(self) -> list[type]:
        return [type(answer) for answer in self.answers]


@pytest.fixture(params=range(5))
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    scene = Scene(request.param)
    yield scene
    scene.peer.close()
    scene.run()
    assert not scene.system._watched.keys() - {scene.other.listener.fileno() if scene.other.listener else -1}


def test_requests_go_out_as_they_come_and_answers_come_back_in_order(scene: Scene) -> None:
    scene.other.listen()
    for _ in range(50):
        scene.ask()
    scene.run_until(lambda: len(scene.other.correlation_ids) == 50)
    assert scene.answers == []
    for _ in range(50):
        scene.other.answer()
    scene.run_until(lambda: len(scene.answers) == 50)
    assert scene.numbers() == list(range(1, 51))
    scene.ask()
    scene.run_until(lambda: bool(scene.other.correlation_ids))
    scene.other.answer()
    scene.run_until(lambda: len(scene.answers) == 51)
    assert scene.other.connections == 1


def test_who_cannot_be_reached_is_told_at_once_and_tried_again_later_each_time(scene: Scene) -> None:
    scene.ask()
    scene.ask()
    scene.run()
    assert scene.failures() == [PeerRefused] * 2
    assert scene.system.now() == 0.0
    pauses = []
    for count in range(3, 9):
        began = scene.system.now()
        scene.ask()  # waits for the next attempt
        scene.run_until(lambda: len(scene.answers) == count)  # noqa: B023
        pauses.append(scene.system.now() - began)
    expected = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert all(0.79 * each <= pause <= 1.21 * each for pause, each in zip(pauses, expected, strict=True)), pauses
    scene.other.listen()
    scene.ask()
    scene.run_until(lambda: bool(scene.other.correlation_ids))
    scene.other.answer()
    scene.run_until(lambda: len(scene.answers) == 9)
    assert isinstance(scene.answers[-1], ApiVersionsResponse)


def test_what_the_system_said_of_a_closed_socket_is_not_taken_for_the_next_one(scene: Scene) -> None:
    """A round finds several sockets ready, and its timers may come before all of them are served."""
    scene.other.listen()
    scene.ask()
    scene.run_until(lambda: bool(scene.other.correlation_ids))
    scene.other.answer()
    scene.run_until(lambda: bool(scene.answers))
    [late] = [callback for watched, _, callback in scene.system._watched.values() if watched is scene.peer._socket]
    scene.other.cut()
    scene.run_until(lambda: scene.peer.state is PeerState.IDLE)
    late(READ | WRITE)
    scene.ask()
    assert scene.peer.state is PeerState.CONNECTING
    late(READ | WRITE)
    assert scene.peer.state is PeerState.CONNECTING
    scene.run_until(lambda: bool(scene.other.correlation_ids))
    scene.other.answer()
    scene.run_until(lambda: len(scene.answers) == 2)


def test_nobody_is_asked_for_nothing(scene: Scene) -> None:
    scene.ask()
    scene.run(10)
    assert scene.failures() == [PeerRefused]
    assert scene.peer.state is PeerState.IDLE  # until somebody asks


def test_a_lost_connection_is_told_and_made_again(scene: Scene) -> None:
    scene.other.listen()
    scene.ask()
    scene.run_until(lambda: bool(scene.other.correlation_ids))
    scene.other.answer()
    scene.run_until(lambda: bool(scene.answers))
    scene.ask()
    scene.ask()
    scene.run_until(lambda: len(scene.other.correlation_ids) == 2)
    scene.other.cut()
    scene.run()
    assert scene.failures()[1:] == [PeerLost, PeerLost]
    began = scene.system.now()
    scene.ask()
    scene.run_until(lambda: bool(scene.other.correlation_ids))
    assert scene.system.now() == began  # it worked before
    assert scene.other.connections == 2


def test_a_broker_that_takes_connections_and_gives_no_answer_is_not_asked_again_at_once(scene: Scene) -> None:
    scene.other.listen()
    began = scene.system.now()
    for count in range(1, 5):
        scene.ask()
        scene.run_until(lambda: bool(scene.other.correlation_ids))
        scene.other.cut()
        scene.run_until(lambda: len(scene.answers) == count)  # noqa: B023
    assert scene.failures() == [PeerLost] * 4
    assert scene.system.now() - began > 0.04 + 0.08 + 0.16


def test_an_answer_that_does_not_come_ends_the_connection_and_all_behind_it(scene: Scene) -> None:
    scene.other.listen()
    scene.ask(5.0)
    scene.run(1.0)
    scene.ask(30.0)
    scene.run(3.0)
    assert scene.answers == []
    scene.run(1.0)
    assert scene.failures() == [PeerTimedOut, PeerLost]
    assert scene.system.now() == pytest.approx(5.0)
    scene.ask()
    scene.run(1.0)
    assert scene.other.connections == 2


def test_a_connection_that_takes_too_long_and_a_request_that_waits_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(1, connect_seconds=3.0)

    class NeverReady(SimulatedSocket):
        def ready_events(self) -> int:
            return 0

    monkeypatch.setattr(
        scene.system, "connect", lambda _address, _port: NeverReady(scene.system, Stream(), Stream(), "127.0.0.1")
    )
    scene.ask(1.0)
    scene.ask(20.0)
    scene.run(1.0)
    assert scene.failures() == [PeerTimedOut]
    scene.run(2.0)
    assert scene.failures() == [PeerTimedOut, PeerUnreachable]
    scene.peer.close()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xff\xff\xff\xff",
        (0).to_bytes(4, "big"),
        (1 << 30).to_bytes(4, "big"),
        b"\0\0\0\x08\0\0\0\x63\0\0\0\0",  # the answer to another request
        b"\0\0\0\x06\0\0\0\x01\0\0",  # too short
    ],
)
def test_nonsense_ends_the_connection(scene: Scene, nonsense: bytes) -> None:
    scene.other.listen()
    scene.ask()
    scene.run_until(lambda: bool(scene.other.correlation_ids))
    scene.other.send(nonsense)
    scene.run(0.001)
    assert scene.failures() == [PeerLost]


def test_an_answer_that_nobody_asked_for_ends_the_connection(scene: Scene) -> None:
    scene.other.listen()
    scene.ask()
    scene.run_until(lambda: bool(scene.other.correlation_ids))
    scene.other.answer(1)
    scene.other.answer(1)
    scene.run()
    assert scene.numbers() == [1]
    assert scene.peer.state is PeerState.IDLE


def test_what_waits_is_bounded() -> None:
    scene = Scene(1)
    for _ in range(MOST_WAITING + 1):
        scene.ask()
    scene.loop.call_soon(lambda: None)
    scene.loop.run_once()
    assert PeerUnreachable in scene.failures()[:1]
    scene.peer.close()


def test_a_closed_peer_tells_everybody(scene: Scene) -> None:
    scene.other.listen()
    scene.ask()
    scene.run_until(lambda: bool(scene.other.correlation_ids))
    scene.peer.close()
    scene.peer.close()
    scene.ask()
    scene.run()
    assert scene.failures() == [PeerLost, PeerUnreachable]


@pytest.mark.parametrize("seed", range(5))
def test_a_broker_is_asked_on_its_own_loop(tmp_path: Path, seed: int) -> None:
    broker = SimulatedBroker(tmp_path, seed)
    broker.create("t", 3)
    peer = Peer(broker.loop, "localhost", broker.broker.address.port, "peer")  # by its name
    answers: list[Answer] = []
    peer.send(requests.metadata("t"), MetadataRequest.api.highest, answers.append)
    peer.send(ApiVersionsRequest(), 0, answers.append)
    broker.system.run_until(broker.loop, lambda: len(answers) == 2, 10.0)
    assert isinstance(answers[0], MetadataResponse)
    assert len(answers[0].topics[0].partitions) == 3
    assert isinstance(answers[1], ApiVersionsResponse)
    peer.close()
    broker.stop()


def test_on_a_real_network(ottla: LocalBroker) -> None:
    loop = Loop()
    answers: list[Answer] = []
    for host in (ottla.host, "localhost"):
        peer = Peer(loop, host, ottla.port, "peer")
        for _ in range(3):
            peer.send(requests.metadata(), apis.METADATA.highest, answers.append)
        loop.run_until(lambda: len(answers) == 3)
        assert all(isinstance(answer, MetadataResponse) for answer in answers)
        answers.clear()
        with ottla.down():
            peer.send(ApiVersionsRequest(), 0, answers.append)
            loop.run_until(lambda: bool(answers))
            assert isinstance(answers[0], PeerLost | PeerUnreachable)
        answers.clear()
        while not answers or isinstance(answers[-1], PeerFailure):
            peer.send(ApiVersionsRequest(), 0, answers.append)
            count = len(answers)
            loop.run_until(lambda: len(answers) > count)  # noqa: B023
        peer.close()
        answers.clear()
    loop.close()


def test_a_real_port_that_nobody_listens_at_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    loop = Loop()
    answers: list[Answer] = []
    peer = Peer(loop, "127.0.0.1", port, "peer")
    peer.send(ApiVersionsRequest(), 0, answers.append)
    loop.run_until(lambda: bool(answers))
    assert isinstance(answers[0], PeerUnreachable)
    peer.close()
    loop.close()


def test_answers_of_any_size_come_whole(scene: Scene) -> None:
    scene.other.listen()
    sizes = (0, 20_000, 3, 40_000, 11_000)  # in keys; some answers are larger than what is read at once
    for _ in sizes:
        scene.ask()
    scene.run_until(lambda: len(scene.other.correlation_ids) == len(sizes))
    for size in sizes:
        scene.other.answer(keys=size)
    scene.run_until(lambda: len(scene.answers) == len(sizes))
    told = [len(answer.api_keys) for answer in scene.answers if isinstance(answer, ApiVersionsResponse)]
    assert told == list(sizes)
