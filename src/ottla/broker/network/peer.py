"""The connection of this broker to another one, on the broker's own loop.

It is made when there is something to send, and made again when it was lost. If it had worked, that is done at once.
While the other broker cannot be reached or gives no answer, the pause before it grows. Requests go out as they come,
and answers come back in their order.

Nobody waits: an answer, or why there is none, is a later call on the loop. What was given to a connection that ends may
have been done or not, and its senders are told at once. What was not given to it yet goes with the next one.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from itertools import islice
from typing import NamedTuple, cast

from ottla.broker.events import Events
from ottla.broker.loop.loop import READ, WRITE, Loop, Timer
from ottla.broker.loop.system import Buffer, Socket
from ottla.wire.apis import FETCH, Api
from ottla.wire.errors import ProtocolError
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.header import read_correlation_id
from ottla.wire.schema import Request, Response

events = Events("ottla.broker")

SIZE_BYTES = 4
RECEIVE_BYTES = 1 << 16
MOST_READS = 16  # of a large answer, before others have their turn
CLOSED = "it was closed by the other broker"
MOST_PARTS = 100  # that are sent with one call
MOST_WAITING = 10_000  # requests that are not sent yet
MOST_ANSWER_BYTES = 100 << 20
MOST_CORRELATION_ID = 0x7FFF_FFFF


class PeerFailure(Exception):
    """Why a request has no answer."""


class PeerUnreachable(PeerFailure):
    """It was never sent: no connection could be made, or too much waits for one."""


class PeerRefused(PeerUnreachable):
    """Nobody listens there: the other machine says so."""


class PeerLost(PeerFailure):
    """The connection ended behind the request, which may have been done or not."""


class PeerTimedOut(PeerFailure):
    """There was no answer in time; the request may have been done or not, unless it was never sent."""


Answered = Callable[[Response | PeerFailure], None]


class PeerSettings(NamedTuple):
    connect_seconds: float = 10.0
    request_seconds: float = 30.0
    least_backoff_seconds: float = 0.05  # after the first connection that cannot be made; twice as long each time
    most_backoff_seconds: float = 1.0


class PeerState(Enum):
    IDLE = "idle"  # there is nothing to send
    RESOLVING = "resolving"  # the name of the host
    CONNECTING = "connecting"
    OPEN = "open"
    BACKING_OFF = "backing off"
    CLOSED = "closed"


TRANSITIONS: dict[PeerState, frozenset[PeerState]] = {
    PeerState.IDLE: frozenset({PeerState.RESOLVING, PeerState.CONNECTING, PeerState.CLOSED}),
    PeerState.RESOLVING: frozenset({PeerState.CONNECTING, PeerState.BACKING_OFF, PeerState.CLOSED}),
    PeerState.CONNECTING: frozenset({PeerState.OPEN, PeerState.BACKING_OFF, PeerState.CLOSED}),
    PeerState.OPEN: frozenset({PeerState.IDLE, PeerState.BACKING_OFF, PeerState.CLOSED}),
    PeerState.BACKING_OFF: frozenset({PeerState.IDLE, PeerState.CLOSED}),
    PeerState.CLOSED: frozenset(),
}


class _Asked(NamedTuple):
    correlation_id: int
    api: Api
    version: int
    parts: list[Buffer]
    due: float
    answered: Answered


class Peer:
    """One other broker. Connections to it are made and made again until `close`."""

    def __init__(
        self,
        loop: Loop,
        host: str,
        port: int,
        client_id: str,
        settings: PeerSettings | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """`chance`: spreads the attempts of many brokers."""
        self.host, self.port = host, port
        self.state = PeerState.IDLE
        self._loop = loop
        self._client_id = client_id
        self._settings = settings or PeerSettings()
        self._chance = chance or random.Random()
        self._waiting: deque[_Asked] = deque()
        self._in_flight: deque[_Asked] = deque()
        self._unsent: deque[Buffer] = deque()
        self._received = bytearray()
        self._frame: memoryview | None = None  # a large answer that is not whole yet
        self._filled_bytes = 0  # of it
        self._socket: Socket | None = None
        self._events = 0
        self._attempt = 0  # the number of the connection that is made, or was last
        self._failures = 0  # of connections, since there was an answer
        self._has_answered = False  # on the connection that is open, or was last
        self._correlation_id = 0
        self._end_reason = ""
        self._timer: Timer | None = None  # of the connection that is made, or of the pause before the next
        self._deadline: Timer | None = None  # of the requests

    def __repr__(self) -> str:
        return f"<Peer {self.host}:{self.port}, {self.state.value}>"

    def _become(self, state: PeerState) -> None:
        assert state in TRANSITIONS[self.state], f"{self!r} cannot be {state.value} next"
        self.state = state

    # Asking

    def send(self, request: Request, version: int, answered: Answered, timeout_seconds: float | None = None) -> None:
        """Ask, and call back once, later: with the answer, or with why there is none."""
        if self.state is PeerState.CLOSED or len(self._waiting) >= MOST_WAITING:
            reason = self._end_reason if self.state is PeerState.CLOSED else "too many requests wait for it"
            self._tell(answered, PeerUnreachable(f"{self.host}:{self.port}: {reason}"))
            return
        self._correlation_id = (self._correlation_id + 1) & MOST_CORRELATION_ID
        parts = cast("list[Buffer]", encode_request(self._correlation_id, self._client_id, request, version))
        seconds = self._settings.request_seconds if timeout_seconds is None else timeout_seconds
        due = self._loop.now() + seconds
        self._waiting.append(_Asked(self._correlation_id, request.api, version, parts, due, answered))
        self._watch_deadline(due)
        if self.state is PeerState.OPEN:
            self._send_waiting()
        elif self.state is PeerState.IDLE:
            self._connect()

    def _tell(self, answered: Answered, answer: Response | PeerFailure) -> None:
        self._loop.call_soon(lambda: answered(answer))

    # Connecting

    def _connect(self) -> None:
        self._attempt += 1
        if _is_address(self.host):
            self._connect_to(self.host)
            return
        self._become(PeerState.RESOLVING)
        attempt, found = self._attempt, list[str]()

        def resolved(failure: Exception | None) -> None:
            if self.state is PeerState.RESOLVING and self._attempt == attempt:
                if failure is not None:
                    self._back_off(f"its name is not known: {failure}")
                else:
                    self._connect_to(found[0])

        self._loop.run_slow(lambda: found.append(self._loop.system.resolve(self.host)), resolved)

    def _connect_to(self, address: str) -> None:
        self._become(PeerState.CONNECTING)
        try:
            self._socket = self._loop.system.connect(address, self.port)
        except OSError as error:
            self._not_connected(error)
            return
        self._watch(WRITE)
        self._timer = self._loop.call_later(
            self._settings.connect_seconds, lambda: self._back_off("the connection takes too long")
        )

    def _connected(self) -> None:
        assert self._socket is not None
        try:
            self._loop.system.check_connected(self._socket)
        except OSError as error:
            self._not_connected(error)
            return
        self._cancel_timer()
        self._become(PeerState.OPEN)
        self._has_answered = False
        self._watch(READ)
        self._send_waiting()

    def _not_connected(self, error: OSError) -> None:
        kind = PeerRefused if isinstance(error, ConnectionRefusedError) else PeerUnreachable
        self._back_off(error.strerror or str(error), kind)

    def _back_off(self, reason: str, kind: type[PeerUnreachable] = PeerUnreachable) -> None:
        """No connection can be made: tell those who wait for it, and try again later, if somebody asks then."""
        self._drop_socket()
        self._pause(reason)
        waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            self._tell(asked.answered, kind(f"{self.host}:{self.port}: {reason}"))

    def _pause(self, reason: str) -> None:
        self._become(PeerState.BACKING_OFF)
        least, most = self._settings.least_backoff_seconds, self._settings.most_backoff_seconds
        seconds = min(least * 2.0 ** min(self._failures, 30), most) * self._chance.uniform(0.8, 1.2)
        self._failures += 1
        if self._failures == 1:
            events.warning("a broker cannot be reached", address=f"{self.host}:{self.port}", reason=reason)
        self._cancel_timer()
        self._timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._become(PeerState.IDLE)
        if self._waiting:
            self._connect()

    # Sending and receiving

    def _ready(self, sock: Socket, ready: int) -> None:
        if sock is not self._socket:
            return  # it was closed since the system said that it is ready
        if self.state is PeerState.CONNECTING:
            self._connected()
            return
        try:
            if ready & READ:
                self._receive()
            if ready & WRITE and self.state is PeerState.OPEN:
                self._send()
        except (OSError, ProtocolError) as error:
            self._lose(getattr(error, "strerror", None) or str(error))

    def _send_waiting(self) -> None:
        while self._waiting:
            asked = self._waiting.popleft()
            self._in_flight.append(asked)
            self._unsent.extend(asked.parts)
        if self._unsent and not self._events & WRITE:
            try:
                self._send()
            except OSError as error:
                self._lose(error.strerror or str(error))

    def _send(self) -> None:
        sock, unsent = self._socket, self._unsent
        assert sock is not None
        try:
            while unsent:
                left = sock.sendmsg(list(islice(unsent, MOST_PARTS)))
                while left or (unsent and not len(unsent[0])):
                    part = unsent.popleft()
                    if left < len(part):
                        unsent.appendleft(memoryview(part)[left:])
                        break
                    left -= len(part)
        except BlockingIOError:
            pass
        self._watch(READ | WRITE if unsent else READ)

    def _receive(self) -> None:
        assert self._socket is not None
        if self._frame is not None:
            self._receive_frame(self._frame)
            return
        received = self._received
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ProtocolError(CLOSED)
        received += data
        position = 0
        while len(received) - position >= SIZE_BYTES and self.state is PeerState.OPEN:
            size = int.from_bytes(received[position : position + SIZE_BYTES], "big", signed=True)
            if not SIZE_BYTES <= size <= MOST_ANSWER_BYTES:
                raise ProtocolError(f"an answer of {size} bytes")
            end = position + SIZE_BYTES + size
            if len(received) < end:
                if size > RECEIVE_BYTES:
                    self._begin_frame(size, received[position + SIZE_BYTES :])
                    position = len(received)
                break
            self._answer(bytes(memoryview(received)[position + SIZE_BYTES : end]))
            position = end
        del received[:position]

    def _begin_frame(self, size_bytes: int, first: bytearray) -> None:
        """A large answer gets memory of its own, and is read into that."""
        self._frame = memoryview(bytearray(size_bytes))
        self._frame[: len(first)] = first
        self._filled_bytes = len(first)

    def _receive_frame(self, frame: memoryview) -> None:
        assert self._socket is not None
        for _ in range(MOST_READS):
            try:
                got = self._socket.recv_into(frame[self._filled_bytes :])
            except BlockingIOError:
                return
            if not got:
                raise ProtocolError(CLOSED)
            self._filled_bytes += got
            if self._filled_bytes == len(frame):
                self._frame = None
                self._answer(frame)
                return

    def _answer(self, frame: bytes | memoryview) -> None:
        if not self._in_flight:
            raise ProtocolError("an answer that nobody asked for")
        asked = self._in_flight[0]
        if read_correlation_id(frame) != asked.correlation_id:
            raise ProtocolError("an answer out of its turn")
        if asked.api is not FETCH:  # whose records stay where they are
            frame = bytes(frame)
        _, response = decode_response(frame, asked.api, asked.version)
        self._in_flight.popleft()
        self._failures = 0
        self._has_answered = True
        self._tell(asked.answered, response)

    def _watch(self, wanted: int) -> None:
        assert self._socket is not None
        if wanted == self._events:
            return
        tell = self._loop.change if self._events else self._loop.watch
        tell(self._socket, wanted, partial(self._ready, self._socket))
        self._events = wanted

    # Ends

    def _watch_deadline(self, due: float) -> None:
        if self._deadline is None or due < self._deadline.due:
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = self._loop.call_at(due, self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        self._deadline = None
        now = self._loop.now()
        if any(asked.due <= now for asked in self._in_flight):
            # Answers come in their order, so those behind it would wait for ever, too.
            self._lose("an answer does not come in time", now)
        late = [asked for asked in self._waiting if asked.due <= now]
        if late:
            self._waiting = deque(asked for asked in self._waiting if asked.due > now)
        for asked in late:
            self._tell(asked.answered, PeerTimedOut(f"{self.host}:{self.port}: no connection in time"))
        dues = [asked.due for asked in (*self._in_flight, *self._waiting)]
        if dues:
            self._watch_deadline(min(dues))

    def _lose(self, reason: str, now: float | None = None) -> None:
        """A connection ends that was made: who waits for answers is told, and the others wait for the next."""
        self._drop_socket()
        if self._has_answered:
            self._become(PeerState.IDLE)
        else:
            self._pause(reason)
        sentence = f"{self.host}:{self.port}: {reason}"
        in_flight, self._in_flight = self._in_flight, deque()
        for asked in in_flight:
            is_late = now is not None and asked.due <= now
            self._tell(asked.answered, PeerTimedOut(sentence) if is_late else PeerLost(sentence))
        if self._waiting and self.state is PeerState.IDLE:
            self._connect()

    def _drop_socket(self) -> None:
        if self._socket is not None:
            if self._events:
                self._loop.forget(self._socket)
            self._socket.close()
        self._socket = None
        self._events = 0
        self._unsent.clear()
        self._received.clear()
        self._frame = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self, reason: str = "the broker stops") -> None:
        """End for good. Everybody who waits for an answer is told that there will be none."""
        if self.state is PeerState.CLOSED:
            return
        self._end_reason = reason
        self._drop_socket()
        self._cancel_timer()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._become(PeerState.CLOSED)
        for asked in self._in_flight:
            self._tell(asked.answered, PeerLost(f"{self.host}:{self.port}: {reason}"))
        for asked in self._waiting:
            self._tell(asked.answered, PeerUnreachable(f"{self.host}:{self.port}: {reason}"))
        self._in_flight.clear()
        self._waiting.clear()


def _is_address(host: str) -> bool:
    """Whether it is no name, which takes a while to look up."""
    return ":" in host or host.replace(".", "").isdigit()
