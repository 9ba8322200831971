"""Takes in connections at one address, and waits when the system has no room for more."""

from __future__ import annotations

import errno
from collections.abc import Callable

from ottla.broker.events import Events
from ottla.broker.loop.loop import READ, Loop, Timer
from ottla.broker.loop.system import Socket, SocketBuffers

events = Events("ottla.broker")

Admit = Callable[[Socket, str], None]
ACCEPTS_A_ROUND = 100
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})  # out of files or memory
EXHAUSTED_PAUSE_SECONDS = 0.25
REPORT_SECONDS = 60.0  # between two lines in the log on the same trouble


class Acceptor:
    """Calls `admit` with each new connection and its address; from then on the connection is the callee's."""

    def __init__(
        self,
        loop: Loop,
        host: str,
        port: int,
        backlog: int,
        admit: Admit,
        buffers: SocketBuffers | None = None,
        *,
        begins: bool = True,
    ) -> None:
        """`begins`: at once; otherwise who connects waits in the system's queue until `begin`."""
        self._loop = loop
        self._admit = admit
        self._socket = loop.system.listen(host, port, backlog, buffers or SocketBuffers())
        self.port = self._socket.port()
        self._resumes: Timer | None = None  # set while no connections are taken in
        self._is_closed = False
        self._next_report = loop.now()
        self._unreported = 0
        self._has_begun = False
        if begins:
            self.begin()

    def begin(self) -> None:
        self._has_begun = True
        self._loop.watch(self._socket, READ, self._accept)

    def _accept(self, _events: int) -> None:
        for _ in range(ACCEPTS_A_ROUND):
            if self._resumes is not None or self._is_closed:
                return  # since the system said that it is ready, or `admit` asked for a pause
            try:
                accepted, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._report(error)
                if error.errno in EXHAUSTED:
                    # The connection stays in the queue, and the listener ready: trying at once would fail for ever.
                    self.pause(EXHAUSTED_PAUSE_SECONDS)
                    return
                continue  # the client gave up; the next may not have
            try:
                self._admit(accepted, address)
            except OSError as error:
                accepted.close()
                self._report(error)
            except Exception:
                accepted.close()
                raise

    def _report(self, error: OSError) -> None:
        """Thousands of connections may fail in a second, and one line says it."""
        self._unreported += 1
        now = self._loop.now()
        if now >= self._next_report:
            events.warning("connections could not be accepted", count=self._unreported, reason=error.strerror or error)
            self._unreported = 0
            self._next_report = now + REPORT_SECONDS

    def pause(self, seconds: float) -> None:
        """Take in nobody for so long: who connects waits in the system's queue."""
        if self._resumes is None:
            self._loop.forget(self._socket)
        else:
            self._resumes.cancel()
        self._resumes = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._resumes = None
        self._loop.watch(self._socket, READ, self._accept)

    def close(self) -> None:
        self._is_closed = True
        if self._resumes is not None:
            self._resumes.cancel()
        elif self._has_begun:
            self._loop.forget(self._socket)
        self._socket.close()
