"""The network of a world: connections between the client's event loop and the broker's sockets.

Bytes take a while, as the seed decides, and stay in order. Requests and answers are told apart on the way, so that
`faults` can decide about each of them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, NamedTuple, cast

from ottla.testing.simulated_system import SimulatedSystem
from ottla.testing.simulation.network import SimulatedSocket
from ottla.testing.world.answers import alter, garble, refuse, spoil
from ottla.testing.world.faults import FaultKind, RequestFault, WorldFaults
from ottla.wire import apis
from ottla.wire.frames import decode_request_body
from ottla.wire.header import RequestHeader, read_correlation_id, read_request_header
from ottla.wire.schema import Request

SIZE_BYTES = 4
LEAST_DELAY_SECONDS, MOST_DELAY_SECONDS = 0.0001, 0.003
FULL_BYTES = 1 << 16  # so many that the broker has not taken make the client wait
HOLDS_BACK = (FaultKind.ERROR, FaultKind.SILENCE, FaultKind.CUT, FaultKind.CUT_REQUEST)


class Expected(NamedTuple):
    """An answer that is due on a connection, in its turn."""

    header: RequestHeader
    request: Request
    fault: RequestFault
    canned: bytes | None = None
    """What is answered in place of the broker."""


class Network:
    """`partition(seconds)` lets nothing through for a while; `delays` are the least and most for a way."""

    def __init__(
        self, system: SimulatedSystem, random: Random, faults: WorldFaults, crash: Callable[[float], None]
    ) -> None:
        self.system = system
        self.random = random
        self.faults = faults
        self.crash = crash
        self.delays = LEAST_DELAY_SECONDS, MOST_DELAY_SECONDS
        self.links: list[Link] = []
        self.trace: deque[str] = deque(maxlen=2000)
        """What happened last, for whoever looks for the reason of a failure."""
        self.traced = 0
        self._numbers = count(1)
        self._open_again_at = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    # Time

    def at(self, due: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._events, (due, next(self._numbers), callback))

    def next_due(self) -> float:
        return self._events[0][0] if self._events else float("inf")

    def deliver(self) -> bool:
        """Let arrive what is due; whether there was something."""
        is_any = False
        while self._events and self._events[0][0] <= self.system.now():
            is_any = True
            heapq.heappop(self._events)[2]()
        for link in list(self.links):
            is_any = link.move() or is_any
        return is_any

    def draw_arrival(self) -> float:
        return max(self.system.now(), self._open_again_at) + self.random.uniform(*self.delays)

    def partition(self, seconds: float) -> None:
        """Nothing arrives for so long; what is on its way arrives afterwards, as TCP has it."""
        self._open_again_at = self.system.now() + seconds
        self.note(f"the network is away for {seconds:.3f} s")

    def note(self, text: str) -> None:
        self.traced += 1
        self.trace.append(f"{self.system.now():10.4f} {text}")

    # Connections

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.at(self.draw_arrival(), lambda: _finish(arrived))
        await arrived
        link = Link(self, next(self._numbers), self.system.connect_client(port), factory())
        self.links.append(link)
        link.protocol.connection_made(link.transport)
        self.note(f"connection {link.number} is made")
        return link.transport, link.protocol

    def cut_all(self) -> None:
        for link in list(self.links):
            link.cut("is cut")


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Link:
    """One connection."""

    def __init__(self, network: Network, number: int, far: SimulatedSocket, protocol: asyncio.BaseProtocol) -> None:
        self.network = network
        self.number = number
        self.protocol: Any = protocol
        self.transport = SimulatedTransport(self)
        self.is_over = False
        self.is_mute = False
        """Half open: nothing passes any more, and nobody is told."""
        self._is_ignored = False
        """The broker does not look at it any more."""
        self._far = far
        self._written = bytearray()  # by the client, not yet a whole request
        self._answered = bytearray()  # by the broker, not yet a whole answer
        self._arrived = bytearray()  # at the broker, which has not taken it yet
        self._expected: deque[Expected] = deque()
        self._there_after = self._back_after = 0.0  # in order, both ways
        self._under_way_bytes = 0
        self._is_paused = False

    # From the client

    def write(self, data: bytes | bytearray | memoryview) -> None:
        written = self._written
        written += data
        while len(written) >= SIZE_BYTES and not (self.is_over or self.is_mute or self._is_ignored):
            end = SIZE_BYTES + int.from_bytes(written[:SIZE_BYTES], "big")
            if len(written) < end:
                break
            frame = bytes(written[:end])
            del written[:end]
            self._request(frame)
        self._look_whether_full()

    def _request(self, frame: bytes) -> None:
        header = read_request_header(frame[SIZE_BYTES:])
        request = decode_request_body(header, frame[SIZE_BYTES:])
        fault = self.network.faults.decide(header, request)
        self.network.note(f"connection {self.number}: {header.api.name} {header.correlation_id} {fault.kind.value}")
        if fault.kind is FaultKind.DELAY:
            self._there_after = max(self._there_after, self.network.system.now() + fault.seconds)
        if fault.kind is FaultKind.ERROR:
            canned = refuse(header, request, fault.code)
            if canned is None:  # it must be asked, to know what to refuse
                fault = fault._replace(kind=FaultKind.ERROR_AFTER)
            else:
                self._expected.append(Expected(header, request, fault, canned))
                self._send_canned()
                return
        if fault.kind is not FaultKind.CUT and not (header.api is apis.PRODUCE and cast(Any, request).acks == 0):
            self._expected.append(Expected(header, request, fault))
        if fault.kind not in HOLDS_BACK:
            self._send_there(frame)
        elif fault.kind is FaultKind.SILENCE:
            self._is_ignored = True
        elif fault.kind is FaultKind.CUT_REQUEST:
            self._send_there(frame[: len(frame) // 2])
            self.cut("is cut in a request")
        elif fault.kind is FaultKind.CUT:
            self.cut("is cut before a request")

    def _send_there(self, data: bytes) -> None:
        self._there_after = max(self._there_after, self.network.draw_arrival())
        self._under_way_bytes += len(data)
        self.network.at(self._there_after, lambda: self._arrive(data))

    def _arrive(self, data: bytes) -> None:
        self._under_way_bytes -= len(data)
        self._arrived += data

    def _look_whether_full(self) -> None:
        stuck_bytes = len(self._written) if self.is_mute or self._is_ignored else 0
        is_full = self._under_way_bytes + len(self._arrived) + stuck_bytes >= FULL_BYTES
        if is_full != self._is_paused and not self.is_over:
            self._is_paused = is_full
            self.protocol.pause_writing() if is_full else self.protocol.resume_writing()

    # At the broker

    def move(self) -> bool:
        """Bytes into and out of the broker's socket; whether there were any."""
        far, is_any = self._far, False
        while self._arrived:
            try:
                del self._arrived[: far.send(self._arrived)]
                is_any = True
            except OSError:  # full, or gone
                break
        while not self.is_over:
            try:
                data = far.recv(1 << 20)
            except BlockingIOError:
                break
            is_any = True
            if not data:
                self._ended_by_broker()
                break
            if not self.is_mute:
                self._answered += data
                self._read_answers()
        self._look_whether_full()
        return is_any

    def _ended_by_broker(self) -> None:
        if self.is_mute:
            self._forget()
        else:
            self.cut("is closed by the broker")

    # Back to the client

    def _read_answers(self) -> None:
        answered = self._answered
        while len(answered) >= SIZE_BYTES and not (self.is_over or self.is_mute):
            end = SIZE_BYTES + int.from_bytes(answered[:SIZE_BYTES], "big")
            if len(answered) < end:
                return
            frame = bytes(answered[:end])
            del answered[:end]
            expected = self._expected.popleft()
            assert read_correlation_id(frame[SIZE_BYTES:]) == expected.header.correlation_id
            self._answer(frame, expected)
            self._send_canned()

    def _answer(self, frame: bytes, expected: Expected) -> None:
        kind, code, seconds, change = expected.fault
        if kind is FaultKind.ERROR_AFTER:
            frame = spoil(frame, expected.header, expected.request, code)
        if change is not None:
            frame = alter(frame, expected.header, change)
        if kind is FaultKind.GARBLE:
            frame = garble(frame, self.network.random)
        if kind is FaultKind.DELAY_ANSWER:
            self._back_after = max(self._back_after, self.network.system.now() + seconds)
        if kind is FaultKind.LOSE_ANSWER:
            self.cut("is cut before an answer")
        elif kind is FaultKind.SWALLOW_ANSWER:
            self.network.note(f"connection {self.number} is half open from now on")
            self.is_mute = True
        elif kind is FaultKind.CRASH:
            self.network.crash(seconds)
        elif kind is FaultKind.CUT_ANSWER:
            self._send_back(frame[: len(frame) // 2])
            self.cut("is cut in an answer")
        else:
            self._send_back(frame)

    def _send_canned(self) -> None:
        while self._expected and (canned := self._expected[0].canned) is not None and not self.is_over:
            self._expected.popleft()
            self._send_back(canned)

    def _send_back(self, data: bytes) -> None:
        self._back_after = max(self._back_after, self.network.draw_arrival())
        self.network.at(self._back_after, lambda: self._give(data))

    def _give(self, data: bytes) -> None:
        if self.transport.is_lost or self.transport.is_closing():
            return
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            self.protocol.data_received(data)
            return
        while data and not self.transport.is_closing():
            buffer = memoryview(self.protocol.get_buffer(len(data)))
            part = self.network.random.randint(1, len(data)) if self.network.random.random() < 0.1 else len(data)
            size_bytes = min(part, len(buffer))
            buffer[:size_bytes] = data[:size_bytes]
            self.protocol.buffer_updated(size_bytes)
            data = data[size_bytes:]

    # The end

    def cut(self, how: str) -> None:
        """Both ends find it closed: the broker at once, the client after what is on its way to it."""
        if self.is_over:
            return
        self.network.note(f"connection {self.number} {how}")
        self._end_there(at_once=True)
        self._back_after = max(self._back_after, self.network.draw_arrival())
        self.network.at(self._back_after, lambda: self.transport.lose(ConnectionResetError(104, "reset by peer")))

    def end_by_client(self, *, is_aborted: bool) -> None:
        """What was written before still arrives, unless it is aborted."""
        if self.is_over:
            return
        self.network.note(f"connection {self.number} is closed by the client")
        if is_aborted or self.is_mute:
            self._end_there(at_once=True)
        else:
            self.is_over = True
            self._there_after = max(self._there_after, self.network.draw_arrival())
            self.network.at(self._there_after, self._finish_there)

    def _finish_there(self) -> None:
        """Once the broker has taken all."""
        self.move()
        if self._arrived and not self._far.is_ended:
            self.network.at(self.network.system.now() + MOST_DELAY_SECONDS, self._finish_there)
        else:
            self._end_there(at_once=True)

    def _end_there(self, *, at_once: bool) -> None:
        self.is_over = at_once
        self._arrived.clear()
        self._far.close()
        self._forget()

    def _forget(self) -> None:
        if self in self.network.links:
            self.network.links.remove(self)


class SimulatedTransport(asyncio.Transport):
    """The client's end."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._is_closing = False
        self.is_lost = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self._link.write(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The link has its own."""

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._end(is_aborted=False)

    def abort(self) -> None:
        self._end(is_aborted=True)

    def _end(self, *, is_aborted: bool) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._link.end_by_client(is_aborted=is_aborted)
            self._link.network.at(self._link.network.system.now(), lambda: self.lose(None))

    def lose(self, reason: Exception | None) -> None:
        if not self.is_lost:
            self._is_closing = self.is_lost = True
            self._link.protocol.connection_lost(reason)
