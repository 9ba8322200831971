"""Listening: connections are taken in, counted and bounded."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.events import Events
from ottla.broker.loop.loop import Loop, Timer
from ottla.broker.loop.system import Socket, SocketBuffers
from ottla.broker.network.acceptor import Acceptor
from ottla.broker.network.admission import Admission
from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import Limits
from ottla.broker.network.receive_buffers import ReceiveBuffers
from ottla.broker.network.request_memory import RequestMemory
from ottla.broker.network.unsent_memory import UnsentMemory

events = Events("ottla.broker")

Handle = Callable[[Connection, memoryview], None]
MOST_KEPT_WAITING = 1000  # connections of addresses that connect too often
LEAST_IDLE_CHECK_SECONDS = 0.1


class Memory:
    """What all connections share, through whatever server they came."""

    def __init__(self, loop: Loop, most_request_bytes: int = -1) -> None:
        self.buffers = ReceiveBuffers()
        self.unsent = UnsentMemory()
        self.requests = RequestMemory(loop, most_request_bytes)


class Server:
    """One listening socket and the connections that came through it."""

    def __init__(
        self,
        loop: Loop,
        host: str,
        port: int,
        handle: Handle,
        *,
        listener: str = "PLAINTEXT",
        limits: Limits | None = None,
        admission: Admission | None = None,
        max_idle_seconds: float = 600.0,
        backlog: int = 50,
        buffers: SocketBuffers | None = None,
        begins: bool = True,
        memory: Memory | None = None,
    ) -> None:
        """`max_idle_seconds`: below 0, connections may be silent for ever. `begins`: to serve at once.

        `memory`: what it shares with other servers.
        """
        self._loop = loop
        self._handle = handle
        self._limits = limits or Limits()
        self._listener = listener
        self._admission = admission or Admission()
        self._max_idle_seconds = max_idle_seconds
        self._memory = memory or Memory(loop)
        self.connections: dict[Connection, None] = {}  # in the order in which they came
        self._kept_waiting: dict[Socket, Timer] = {}
        self._acceptor = Acceptor(loop, host, port, backlog, self._admit, buffers, begins=begins)
        self.begin = self._acceptor.begin
        self.host = host
        self.port = self._acceptor.port
        self._idle_timer: Timer | None = None
        if max_idle_seconds >= 0:
            self._set_idle_timer()

    def _set_idle_timer(self) -> None:
        delay = max(self._max_idle_seconds / 4, LEAST_IDLE_CHECK_SECONDS)
        self._idle_timer = self._loop.call_later(delay, self._close_idle)

    def _close_idle(self) -> None:
        for connection in [each for each in self.connections if each.is_idle(self._max_idle_seconds)]:
            connection.close(f"nothing came for {self._max_idle_seconds:g} seconds")
        self._set_idle_timer()

    def _admit(self, accepted: Socket, address: str) -> None:
        admission, now_ms = self._admission, int(self._loop.now() * 1000)
        pause_ms = admission.creation_throttle_ms(now_ms)
        if pause_ms:
            self._acceptor.pause(pause_ms / 1000)
        wait_ms = admission.address_throttle_ms(address, now_ms)
        if wait_ms:
            self._keep_waiting(accepted, wait_ms / 1000)
            return
        refusal = admission.enter(address)
        if refusal is not None:
            events.warning("a connection was refused", address=address, reason=refusal)
            accepted.close()
            return
        try:
            connection = Connection(
                self._loop,
                accepted,
                address,
                self._memory.buffers,
                self._limits,
                self._handle,
                self._closed,
                self._listener,
                unsent_memory=self._memory.unsent,
                request_memory=self._memory.requests,
            )
        except BaseException:
            admission.leave(address)
            raise
        self.connections[connection] = None

    def _keep_waiting(self, accepted: Socket, seconds: float) -> None:
        """Close it later: a client that is turned away at once would come back at once."""
        if len(self._kept_waiting) >= MOST_KEPT_WAITING:
            accepted.close()
            return

        def close() -> None:
            del self._kept_waiting[accepted]
            accepted.close()

        self._kept_waiting[accepted] = self._loop.call_later(seconds, close)

    def _closed(self, connection: Connection, reason: str) -> None:
        self.connections.pop(connection, None)
        address = connection.address
        self._admission.leave(address)
        tell = events.warning if connection.was_refused else events.debug
        tell("a connection was ended", address=address, reason=reason)

    def close(self) -> None:
        """Take no more connections and end those there are."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._acceptor.close()
        for accepted, timer in self._kept_waiting.items():
            timer.cancel()
            accepted.close()
        for connection in list(self.connections):
            connection.close("the broker stops")
