"""A computer in memory for a loop to run on: the twin of `ottla.broker.system.LinuxSystem`.

Everything that happens is decided by a seed: which of those who are ready go first, who has to wait for another round,
how many bytes a socket gives or takes at once, and when a job on the other thread is done. Time stands still while
anything can happen, and then jumps to when the loop wants to be called again, but never beyond what `advance` allows.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.system import READ, WRITE, Buffer, Finished, ReadyCallback, Socket, SocketBuffers, Watched

if TYPE_CHECKING:
    from ottla.broker.loop import Loop
    from ottla.log.files import File

STREAM_BYTES = 1 << 16  # what a socket holds that the other end has not taken
START_CLOCK_MS = 1_767_225_600_000  # the first of January 2026
FIRST_EPHEMERAL_PORT = 40_000
MOST_ROUNDS_AT_ONCE = 1_000_000


class Stream:
    """Bytes on their way from one end of a connection to the other."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_ended = False

    @property
    def room_bytes(self) -> int:
        return STREAM_BYTES - len(self.data)


class SimulatedSocket:
    """One end of a connection. It never blocks, and moves fewer bytes at a time than it could."""

    def __init__(self, system: SimulatedSystem, incoming: Stream, outgoing: Stream, host: str) -> None:
        self._system = system
        self._number = system.next_number()
        self._incoming = incoming
        self._outgoing = outgoing
        self.host = host

    def fileno(self) -> int:
        return self._number

    @property
    def is_ended(self) -> bool:
        """Whether the other end takes nothing more."""
        return self._outgoing.is_ended

    def ready_events(self) -> int:
        is_readable = self._incoming.data or self._incoming.is_ended
        is_writable = self._outgoing.room_bytes > 0 or self._outgoing.is_ended
        return (READ if is_readable else 0) | (WRITE if is_writable else 0)

    def recv(self, size_bytes: int, /) -> bytes:
        incoming = self._incoming
        if not incoming.data:
            if incoming.is_ended:
                return b""
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        count = self._system.part_of(min(size_bytes, len(incoming.data)))
        taken = bytes(incoming.data[:count])
        del incoming.data[:count]
        return taken

    def recv_into(self, buffer: memoryview, /) -> int:
        taken = self.recv(len(buffer))
        buffer[: len(taken)] = taken
        return len(taken)

    def send(self, data: Buffer, /) -> int:
        outgoing = self._outgoing
        if outgoing.is_ended:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if not outgoing.room_bytes:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        count = self._system.part_of(min(len(data), outgoing.room_bytes))
        outgoing.data += memoryview(data)[:count]
        return count

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        return self.send(b"".join(buffers))

    def close(self) -> None:
        self._number = -1
        self._incoming.is_ended = self._outgoing.is_ended = True


class SimulatedListener:
    def __init__(self, system: SimulatedSystem, port: int) -> None:
        self._system = system
        self._port = port
        self._number = system.next_number()
        self.waiting: deque[SimulatedSocket] = deque()

    def fileno(self) -> int:
        return self._number

    def port(self) -> int:
        return self._port

    def ready_events(self) -> int:
        return READ if self.waiting else 0

    def accept(self) -> tuple[SimulatedSocket, str]:
        if not self.waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        accepted = self.waiting.popleft()
        return accepted, accepted.host

    def close(self) -> None:
        del self._system.listeners[self._port]
        for sock in self.waiting:
            sock.close()


class SimulatedSystem:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.listeners: dict[int, SimulatedListener] = {}
        self._seconds = 0.0
        self._horizon = 0.0  # up to when time may pass
        self._numbers = 0
        self._ports = FIRST_EPHEMERAL_PORT
        self._watched: dict[int, tuple[Any, int, ReadyCallback]] = {}
        self._jobs: deque[tuple[Callable[[], None], Finished]] = deque()
        self._is_woken = False

    # Time

    def now(self) -> float:
        return self._seconds

    def clock_ms(self) -> int:
        return START_CLOCK_MS + int(self._seconds * 1000)

    def advance(self, loop: Loop, seconds: float) -> None:
        """Let the loop run until so much time has passed."""
        self.run_until(loop, lambda: False, seconds)

    def run_until(self, loop: Loop, is_done: Callable[[], bool], most_seconds: float) -> bool:
        """Let the loop run until something is the case, or the time is over; whether it is the case."""
        self._horizon = end = self._seconds + most_seconds
        for _ in range(MOST_ROUNDS_AT_ONCE):
            if is_done():
                return True
            if self._seconds >= end and not loop.is_busy() and not self.can_go_on():
                return False
            loop.run_once()
        raise RuntimeError(f"the loop comes round and round at {self._seconds} seconds")

    def jump_to(self, seconds: float) -> None:
        """For whoever has the time in hand, in place of `advance`."""
        self._seconds = max(self._seconds, seconds)

    def can_go_on(self) -> bool:
        """Whether something can happen before time passes."""
        return bool(self._is_woken or self._jobs or self._ready())

    def expect_soon(self) -> None:
        """Nothing takes long here."""

    # Sockets

    def listen(self, host: str, port: int, backlog: int, buffers: SocketBuffers) -> SimulatedListener:
        number = port or self._next_port()
        if number in self.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self.listeners[number] = SimulatedListener(self, number)
        return listener

    def connect(self, port: int, host: str = "10.0.0.1") -> SimulatedSocket:
        """A client's end of a new connection."""
        if port not in self.listeners:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        there, back = Stream(), Stream()
        self.listeners[port].waiting.append(SimulatedSocket(self, there, back, host))
        return SimulatedSocket(self, back, there, "127.0.0.1")

    def send_file(self, sock: Socket, file: Watched, position: int, size_bytes: int) -> int:
        return sock.send(cast("File", file).read(position, size_bytes))

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _next_port(self) -> int:
        self._ports += 1
        return self._ports

    def part_of(self, size_bytes: int) -> int:
        """All of so many bytes, or, now and then, fewer."""
        return size_bytes if self.random.random() < 0.75 else self.random.randint(min(1, size_bytes), size_bytes)

    # Readiness

    def watch(self, watched: Any, events: int, callback: ReadyCallback) -> None:
        assert watched.fileno() not in self._watched
        self._watched[watched.fileno()] = watched, events, callback

    def change(self, watched: Any, events: int, callback: ReadyCallback) -> None:
        assert watched.fileno() in self._watched
        self._watched[watched.fileno()] = watched, events, callback

    def forget(self, watched: Any) -> None:
        del self._watched[watched.fileno()]

    def _ready(self) -> list[tuple[ReadyCallback, int]]:
        found = ((callback, watched.ready_events() & events) for watched, events, callback in self._watched.values())
        return [(callback, events) for callback, events in found if events]

    def wait(self, seconds: float) -> list[tuple[ReadyCallback, int]]:
        if self._jobs and self.random.random() < 0.5:
            self._run_job()
        ready = self._ready()
        if ready:
            # In any order, and not all of them: the others were a moment later.
            return self.random.sample(ready, self.random.randint(1, len(ready)))
        if self._jobs:
            self._run_job()
        if not self._is_woken:
            self._seconds = max(self._seconds, min(self._seconds + seconds, self._horizon))
        self._is_woken = False
        return []

    # The other thread

    def wake(self) -> None:
        self._is_woken = True

    def run_blocking(self, job: Callable[[], None], finished: Finished) -> None:
        self._jobs.append((job, finished))

    def finish_jobs(self) -> None:
        while self._jobs:
            self._run_job()

    def _run_job(self) -> None:
        job, finished = self._jobs.popleft()
        failure: Exception | None = None
        try:
            job()
        except Exception as error:
            failure = error
        finished(failure)

    def kill(self) -> None:
        """As the kernel does for a process that is killed: jobs are not done, sockets are closed."""
        self._jobs.clear()
        watched = [each for each, _, _ in self._watched.values()]
        self._watched.clear()
        for each in watched:
            each.close()

    def close(self) -> None:
        while self._jobs:
            self._run_job()
