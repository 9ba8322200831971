"""Listening: connections are taken in, counted and bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from ottla.broker.connection import Connection, Limits
from ottla.broker.events import Events
from ottla.broker.loop import READ, Loop
from ottla.broker.receive_memory import ReceiveMemory
from ottla.broker.system import Socket

events = Events("ottla.broker")

Handle = Callable[[Connection, memoryview], None]
ACCEPTS_A_ROUND = 100
NO_LIMIT = 2**31 - 1


class Admission:
    """How many connections there are and may be, in all and from one address, through whatever listener."""

    def __init__(self, max_connections: int = NO_LIMIT, max_connections_per_ip: int = NO_LIMIT) -> None:
        self.max_connections = max_connections
        self.max_connections_per_ip = max_connections_per_ip
        self.limits_by_address: Mapping[str, int] = {}  # where others hold
        self._by_address: Counter[str] = Counter()
        self._count = 0

    def enter(self, address: str) -> str | None:
        """Count one more; or why it may not be."""
        if self._count >= self.max_connections:
            return f"there are {self.max_connections} already"
        limit = self.limits_by_address.get(address, self.max_connections_per_ip)
        if self._by_address[address] >= limit:
            return f"there are {limit} from there already"
        self._count += 1
        self._by_address[address] += 1
        return None

    def leave(self, address: str) -> None:
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


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
    ) -> None:
        self._loop = loop
        self._handle = handle
        self._limits = limits or Limits()
        self._listener = listener
        self._admission = admission or Admission()
        self._max_idle_seconds = max_idle_seconds
        self._memory = ReceiveMemory()
        self.connections: set[Connection] = set()
        self._socket = loop.system.listen(host, port, backlog)
        self.host = host
        self.port = self._socket.port()
        loop.watch(self._socket, READ, self._accept)
        self._idle_timer = loop.call_later(max_idle_seconds / 4, self._close_idle)

    def _close_idle(self) -> None:
        for connection in [each for each in self.connections if each.is_idle(self._max_idle_seconds)]:
            connection.close(f"nothing came for {self._max_idle_seconds:g} seconds")
        self._idle_timer = self._loop.call_later(self._max_idle_seconds / 4, self._close_idle)

    def _accept(self, _events: int) -> None:
        for _ in range(ACCEPTS_A_ROUND):
            try:
                accepted, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                events.warning("a connection could not be accepted", reason=error)
                return
            self._admit(accepted, address)

    def _admit(self, accepted: Socket, address: str) -> None:
        refusal = self._admission.enter(address)
        if refusal is not None:
            events.warning("a connection was refused", address=address, reason=refusal)
            accepted.close()
            return
        connection = Connection(self._loop, accepted, self._memory, self._limits, self._handle, self._closed)
        connection.listener = self._listener
        self.connections.add(connection)

    def _closed(self, connection: Connection, reason: str) -> None:
        self.connections.discard(connection)
        address = connection.peer[0]
        self._admission.leave(address)
        tell = events.warning if connection.was_refused else events.debug
        tell("a connection was ended", address=address, reason=reason)

    def close(self) -> None:
        """Take no more connections and end those there are."""
        self._idle_timer.cancel()
        self._loop.forget(self._socket)
        self._socket.close()
        for connection in list(self.connections):
            connection.close("the broker stops")
