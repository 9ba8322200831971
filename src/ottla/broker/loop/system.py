"""What the loop asks of the computer it runs on: time, sockets, and a thread for what blocks.

`LinuxSystem` is the real one. `ottla.testing.simulated_system.SimulatedSystem` is its twin in memory, where time
passes only when nothing else can happen.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NamedTuple, Protocol

READ = select.EPOLLIN
WRITE = select.EPOLLOUT

FEW_WAITS = 16  # that were short: then the next may be

Buffer = bytes | bytearray | memoryview
ReadyCallback = Callable[[int], None]
Finished = Callable[[Exception | None], None]


class SocketBuffers(NamedTuple):
    """The sizes of the system's buffers for each connection; -1: the system decides, and adapts them."""

    send_bytes: int = -1
    receive_bytes: int = -1


class Watched(Protocol):
    def fileno(self) -> int: ...


class Socket(Watched, Protocol):
    """As much of a socket as connections need. Nothing blocks: BlockingIOError where it would."""

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def recv(self, size_bytes: int, /) -> bytes: ...

    def send(self, data: Buffer, /) -> int: ...

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int: ...

    def close(self) -> None: ...


class ListeningSocket(Watched, Protocol):
    def accept(self) -> tuple[Socket, str]:
        """The next connection, and the address that it comes from."""

    def port(self) -> int: ...

    def close(self) -> None: ...


class System(Protocol):
    """Only `wake` may be called from other threads than the loop's."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def clock_ms(self) -> int:
        """Milliseconds since 1970."""

    def listen(self, host: str, port: int, backlog: int, buffers: SocketBuffers) -> ListeningSocket: ...

    def resolve(self, host: str) -> str:
        """The address of a host. It may take long: to be called on another thread than the loop's."""

    def connect(self, address: str, port: int) -> Socket:
        """Begin to connect. The socket can be written to when that is done or has failed: `check_connected` tells."""

    def check_connected(self, sock: Socket) -> None:
        """OSError where the connection could not be made."""

    def send_file(self, sock: Socket, file: Watched, position: int, size_bytes: int) -> int:
        """Send bytes of a file, as many as go; how many those were."""

    def watch(self, watched: Watched, events: int, callback: ReadyCallback) -> None: ...

    def change(self, watched: Watched, events: int, callback: ReadyCallback) -> None: ...

    def forget(self, watched: Watched) -> None: ...

    def wait(self, seconds: float) -> list[tuple[ReadyCallback, int]]:
        """Wait until something is ready, somebody calls `wake`, or the time is over; whom to call with which events."""

    def expect_soon(self) -> None:
        """What the next `wait` waits for may come within microseconds."""

    def wake(self) -> None: ...

    def run_blocking(self, job: Callable[[], None], finished: Finished) -> None:
        """Run jobs one after the other on a thread of their own, where `finished` is called, too."""

    def run_slow(self, job: Callable[[], None], finished: Finished) -> None:
        """The same on one more thread, for jobs that may take very long."""

    def finish_jobs(self) -> None:
        """Return when the jobs that were given so far have run."""

    def make_worker(self, name: str) -> Worker:
        """One more thread, for jobs that shall not wait for those of `run_blocking`."""

    def close(self) -> None:
        """Wait for jobs under way, and let go of everything."""


class Worker(Protocol):
    """Runs jobs one after the other on a thread of its own, where `finished` is called, too."""

    def run(self, job: Callable[[], None], finished: Finished) -> None: ...

    def finish(self) -> None:
        """Return when the jobs that were given so far have run."""

    def close(self) -> None:
        """Likewise, and end the thread."""

    def abandon(self) -> None:
        """End the thread after the job under way; the others are not run."""


class LinuxSystem:
    def __init__(self, busy_poll_seconds: float = 0.0) -> None:
        """`busy_poll_seconds`: for how long a wait may poll in a loop for what is expected soon."""
        self._busy_poll_seconds = busy_poll_seconds
        self._expects_soon = False
        self._short_waits = 0  # for what was expected soon, one after the other
        self._epoll = select.epoll()
        self._callbacks: dict[int, ReadyCallback] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._callbacks[self._wake_read] = self._woken
        self._epoll.register(self._wake_read, READ)
        self._wakes_on_signals = False
        self._worker = WorkerThread("ottla-blocking")
        self._slow_worker = WorkerThread("ottla-slow")

    now = staticmethod(time.monotonic)  # asked for in every round

    def clock_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Sockets

    def listen(self, host: str, port: int, backlog: int, buffers: SocketBuffers) -> ListeningSocket:
        return SystemListener(host, port, backlog, buffers)

    def resolve(self, host: str) -> str:
        address: str = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]  # type: ignore[assignment]
        return address

    def connect(self, address: str, port: int) -> Socket:
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = made.connect_ex((address, port))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))  # noqa: TRY301
        except OSError:
            made.close()
            raise
        return made

    def check_connected(self, sock: Socket) -> None:
        assert isinstance(sock, socket.socket)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))

    def send_file(self, sock: Socket, file: Watched, position: int, size_bytes: int) -> int:
        return os.sendfile(sock.fileno(), file.fileno(), position, size_bytes)

    def watch(self, watched: Watched, events: int, callback: ReadyCallback) -> None:
        number = watched.fileno()
        self._epoll.register(number, events)
        self._callbacks[number] = callback

    def change(self, watched: Watched, events: int, callback: ReadyCallback) -> None:
        number = watched.fileno()
        self._epoll.modify(number, events)
        self._callbacks[number] = callback

    def forget(self, watched: Watched) -> None:
        number = watched.fileno()
        del self._callbacks[number]
        self._epoll.unregister(number)

    def wait(self, seconds: float) -> list[tuple[ReadyCallback, int]]:
        callbacks = self._callbacks
        found = self._busy_poll(seconds) if self._expects_soon else self._epoll.poll(seconds)
        return [
            # What failed or hung up is both: whoever tries will learn of it.
            (callbacks[number], events if events in (READ, WRITE) else READ | WRITE)
            for number, events in found
        ]

    def expect_soon(self) -> None:
        self._expects_soon = self._busy_poll_seconds > 0.0

    def _busy_poll(self, seconds: float) -> list[tuple[int, int]]:
        """Poll in a loop for a moment if the last waits were short: to be woken up takes longer than a request.

        Whoever else wants the core gets it.
        """
        poll, clock = self._epoll.poll, time.monotonic
        if seconds <= 0.0:
            return poll(0)
        self._expects_soon = False
        started = clock()
        if self._short_waits >= FEW_WAITS:
            while not (found := poll(0)):
                if clock() - started > min(self._busy_poll_seconds, seconds):
                    self._short_waits = 0
                    return poll(seconds)
                os.sched_yield()
            return found
        found = poll(seconds)
        self._short_waits = self._short_waits + 1 if clock() - started < 2 * self._busy_poll_seconds else 0
        return found

    # Threads

    def wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # it will wake up anyway

    def wake_on_signals(self) -> None:
        """A signal that comes just before a wait ends it: Python would see it only afterwards."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._wakes_on_signals = True

    def _woken(self, _events: int) -> None:
        os.read(self._wake_read, 4096)

    def run_blocking(self, job: Callable[[], None], finished: Finished) -> None:
        self._worker.run(job, finished)

    def run_slow(self, job: Callable[[], None], finished: Finished) -> None:
        self._slow_worker.run(job, finished)

    def finish_jobs(self) -> None:
        self._worker.finish()
        self._slow_worker.finish()

    def make_worker(self, name: str) -> WorkerThread:
        return WorkerThread(name)

    def close(self) -> None:
        self._worker.close()
        self._slow_worker.close()
        self._epoll.close()
        if self._wakes_on_signals:
            signal.set_wakeup_fd(-1)
        os.close(self._wake_read)
        os.close(self._wake_write)


class WorkerThread:
    """Begun by its first job."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[tuple[Callable[[], None], Finished] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_abandoned = False

    def run(self, job: Callable[[], None], finished: Finished) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((job, finished))

    def finish(self) -> None:
        if self._thread is not None:
            is_finished = threading.Event()
            self._jobs.put((is_finished.set, lambda _failure: None))
            is_finished.wait()

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None and not self._is_abandoned:
            job, finished = entry
            failure: Exception | None = None
            try:
                job()
            except Exception as error:
                failure = error
            finished(failure)

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def abandon(self) -> None:
        self._is_abandoned = True
        self.close()


class SystemListener:
    def __init__(self, host: str, port: int, backlog: int, buffers: SocketBuffers) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=backlog)
        self._socket.setblocking(False)
        # Connections have the listener's sizes from their first packet on, when the window is agreed.
        if buffers.send_bytes > 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers.send_bytes)
        if buffers.receive_bytes > 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers.receive_bytes)

    def accept(self) -> tuple[Socket, str]:
        accepted, address = self._socket.accept()
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            accepted.close()
            raise
        return accepted, address[0]

    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
