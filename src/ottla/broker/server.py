"""Listening: connections are taken in, counted and bounded."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable

from ottla.broker.connection import RECEIVE_BYTES, Connection, Limits
from ottla.broker.loop import READ, Loop

logger = logging.getLogger("ottla.broker")

Handle = Callable[[Connection, memoryview], None]
ACCEPTS_A_ROUND = 100
BACKLOG = 1024


class Server:
    """One listening socket and the connections that came through it."""

    def __init__(
        self,
        loop: Loop,
        host: str,
        port: int,
        handle: Handle,
        *,
        limits: Limits | None = None,
        max_connections: int = 2**31 - 1,
        max_connections_per_ip: int = 2**31 - 1,
        max_idle_seconds: float = 600.0,
    ) -> None:
        self._loop = loop
        self._handle = handle
        self._limits = limits or Limits()
        self._max_connections = max_connections
        self._max_connections_per_ip = max_connections_per_ip
        self._max_idle_seconds = max_idle_seconds
        self._receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._by_address: Counter[str] = Counter()
        self.connections: set[Connection] = set()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._socket.setblocking(False)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
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
                logger.warning("a connection could not be accepted: %s", error)
                return
            self._admit(accepted, address[0])

    def _admit(self, accepted: socket.socket, address: str) -> None:
        if len(self.connections) >= self._max_connections:
            refusal = f"there are {self._max_connections} already"
        elif self._by_address[address] >= self._max_connections_per_ip:
            refusal = f"there are {self._max_connections_per_ip} from there already"
        else:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(
                self._loop, accepted, self._receive_buffer, self._limits, self._handle, self._closed
            )
            self.connections.add(connection)
            self._by_address[address] += 1
            return
        logger.warning("a connection from %s was refused: %s", address, refusal)
        accepted.close()

    def _closed(self, connection: Connection, reason: str) -> None:
        self.connections.discard(connection)
        address = connection.peer[0]
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        logger.debug("the connection from %s ended: %s", address, reason)

    def close(self) -> None:
        """Take no more connections and end those there are."""
        self._idle_timer.cancel()
        self._loop.forget(self._socket)
        self._socket.close()
        for connection in list(self.connections):
            connection.close("the broker stops")
