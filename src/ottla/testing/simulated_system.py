"""A computer in memory for a loop to run on: the twin of `ottla.broker.loop.system.LinuxSystem`.

Everything that happens is decided by a seed: which of those who are ready go first, who has to wait for another round,
how many bytes a socket gives or takes at once, and when a job on the other thread is done. Time stands still while
anything can happen, and then jumps to when the loop wants to be called again, but never beyond what `advance` allows.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.loop.system import Finished, ReadyCallback, Socket, SocketBuffers, Watched
from ottla.testing.simulation.network import SimulatedListener, SimulatedNetwork, SimulatedSocket
from ottla.testing.simulation.timeline import Timeline

if TYPE_CHECKING:
    from ottla.broker.loop.loop import Loop
    from ottla.log.files import File
    from ottla.testing.files import SimulatedFiles

START_CLOCK_MS = 1_767_225_600_000  # the first of January 2026
FIRST_EPHEMERAL_PORT = 40_000
MOST_ROUNDS_AT_ONCE = 1_000_000


class SimulatedSystem:
    """A machine that is alone, or one of many on a network that they share with their time."""

    def __init__(
        self,
        seed: int | str,
        network: SimulatedNetwork | None = None,
        address: str = "127.0.0.1",
        files: SimulatedFiles | None = None,
    ) -> None:
        self.random = Random(seed)
        self.network = network or SimulatedNetwork(Timeline(), self.random)
        self.network.machines[address] = self
        self.address = address
        self.is_touched = True
        self._files = files
        self.clock_ahead_ms = 0
        """How far its clock is from the true time."""
        self._timeline = self.network.timeline
        self._horizon = 0.0  # up to when time may pass
        self._numbers = 0
        self._ports = FIRST_EPHEMERAL_PORT
        self._watched: dict[int, tuple[Any, int, ReadyCallback]] = {}
        self._slow_worker = SimulatedWorker(self)
        # The first is that of `run_blocking`.
        self._workers: list[SimulatedWorker] = [SimulatedWorker(self), self._slow_worker]
        self._is_woken = False
        self._is_killed = False  # and no process since

    @property
    def is_dead(self) -> bool:
        """Whether the machine has stopped in the middle of a round: nothing leaves it any more."""
        return self._files is not None and self._files.is_down

    # Time

    def now(self) -> float:
        return self._timeline.seconds

    def clock_ms(self) -> int:
        return START_CLOCK_MS + int(self._timeline.seconds * 1000) + self.clock_ahead_ms

    def advance(self, loop: Loop, seconds: float) -> None:
        """Let the loop run until so much time has passed."""
        self.run_until(loop, lambda: False, seconds)

    def run_until(self, loop: Loop, is_done: Callable[[], bool], most_seconds: float) -> bool:
        """Let the loop run until something is the case, or the time is over; whether it is the case."""
        self._horizon = end = self.now() + most_seconds
        for _ in range(MOST_ROUNDS_AT_ONCE):
            if is_done():
                return True
            if self.now() >= end and not loop.is_busy() and not self.can_go_on():
                return False
            loop.run_once()
        raise RuntimeError(f"the loop comes round and round at {self.now()} seconds")

    def jump_to(self, seconds: float) -> None:
        """For whoever has the time in hand, in place of `advance`."""
        self._timeline.jump_to(seconds)

    def can_go_on(self) -> bool:
        """Whether something can happen before time passes."""
        if self.is_touched:
            self.is_touched = bool(self._is_woken or self._busy_workers() or self._ready())
        return self.is_touched

    def expect_soon(self) -> None:
        """Nothing takes long here."""

    # Sockets

    def listen(self, host: str, port: int, backlog: int, buffers: SocketBuffers) -> SimulatedListener:
        return self.network.listen(self, port or self._next_port())

    def resolve(self, host: str) -> str:
        return "127.0.0.1"

    def connect(self, address: str, port: int) -> SimulatedSocket:
        """One that nobody listens for is found to be refused."""
        return self.network.connect(self, self.address, address, port)

    def check_connected(self, sock: Socket) -> None:
        if cast("SimulatedSocket", sock).is_refused:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    def connect_client(self, port: int, host: str = "10.0.0.1") -> SimulatedSocket:
        """A client's end of a new connection."""
        made = self.network.connect(self, host, self.address, port)
        self.check_connected(made)
        return made

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
        self._is_killed = False
        self.is_touched = True
        self._watched[watched.fileno()] = watched, events, callback

    def change(self, watched: Any, events: int, callback: ReadyCallback) -> None:
        assert watched.fileno() in self._watched
        self.is_touched = True
        self._watched[watched.fileno()] = watched, events, callback

    def forget(self, watched: Any) -> None:
        if not self._is_killed:
            del self._watched[watched.fileno()]

    @property
    def watched_count(self) -> int:
        return len(self._watched)

    def _ready(self) -> list[tuple[ReadyCallback, int]]:
        found = ((callback, watched.ready_events() & events) for watched, events, callback in self._watched.values())
        return [(callback, events) for callback, events in found if events]

    def wait(self, seconds: float) -> list[tuple[ReadyCallback, int]]:
        if self.is_dead:
            return []
        if (busy := self._busy_workers()) and self.random.random() < 0.5:
            self.random.choice(busy).run_one()
        ready = self._ready()
        if ready:
            # In any order, and not all of them: the others were a moment later.
            return self.random.sample(ready, self.random.randint(1, len(ready)))
        if busy := self._busy_workers():
            self.random.choice(busy).run_one()
        if not self._is_woken:
            self._timeline.jump_to(min(self.now() + seconds, self._horizon))
        self._is_woken = False
        return []

    # The other thread

    def wake(self) -> None:
        self._is_woken = self.is_touched = True

    def run_blocking(self, job: Callable[[], None], finished: Finished) -> None:
        self._workers[0].run(job, finished)

    def run_slow(self, job: Callable[[], None], finished: Finished) -> None:
        self._slow_worker.run(job, finished)

    def hold_jobs(self, until: float) -> None:
        """What blocks takes until then at least, as syncs do on a busy disk."""
        self._workers[0].is_held = lambda: self.now() < until

    def finish_jobs(self) -> None:
        self._workers[0].finish()
        self._slow_worker.finish()

    def make_worker(self, name: str) -> SimulatedWorker:
        self._workers.append(worker := SimulatedWorker(self))
        return worker

    def _busy_workers(self) -> list[SimulatedWorker]:
        return [] if self.is_dead else [worker for worker in self._workers if worker.jobs and not worker.must_wait()]

    def kill(self) -> None:
        """As the kernel does for a process that is killed: jobs are not done, sockets are closed."""
        for worker in self._workers:
            worker.abandon()
        del self._workers[2:]
        self._watched.clear()
        self.network.close_all(self.address)
        self._is_killed = True
        self._is_woken = False

    def close(self) -> None:
        for worker in self._workers:
            worker.finish()
        del self._workers[2:]


class SimulatedWorker:
    """A thread that runs a job when the simulation comes to it."""

    def __init__(self, system: SimulatedSystem) -> None:
        self._system = system
        self.jobs: deque[tuple[Callable[[], None], Finished]] = deque()
        self.is_held: Callable[[], bool] | None = None
        """Whether what it works on cannot be reached now."""
        self.has_waited = False
        """Since somebody last set it to False."""

    def must_wait(self) -> bool:
        if self.is_held is None or not self.is_held():
            return False
        self.has_waited = True
        return True

    def run(self, job: Callable[[], None], finished: Finished) -> None:
        self._system.is_touched = True
        self.jobs.append((job, finished))

    def run_one(self) -> None:
        job, finished = self.jobs.popleft()
        failure: Exception | None = None
        try:
            job()
        except Exception as error:
            failure = error
        finished(failure)

    def finish(self) -> None:
        while self.jobs:
            self.run_one()

    close = finish

    def abandon(self) -> None:
        self.jobs.clear()
