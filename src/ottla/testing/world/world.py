"""One clock, one seed, one thread: a broker, a network and an event loop for the client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple, Self, TypeVar

from ottla.broker.broker import Broker
from ottla.broker.config.layers import BrokerSettings
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import run_to_end
from ottla.controller.local_store import LocalStore
from ottla.controller.memory_nodes import MemoryNodes, MemoryTree
from ottla.log.errors import LogError
from ottla.records.build import build_batch
from ottla.records.read import Batch, read_batches
from ottla.testing.files import SimulatedFiles
from ottla.testing.local_broker import QUICK_SETTINGS
from ottla.testing.simulated_system import SimulatedSystem
from ottla.testing.simulation.broker_machine import FOLDER, make_data_folder
from ottla.testing.simulation.randomness import taken_over
from ottla.testing.world.event_loop import SimulatedEventLoop
from ottla.testing.world.faults import Odds, WorldFaults
from ottla.testing.world.network import Network
from ottla.wire.errors import ApiError
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

T = TypeVar("T")

PATIENCE_SECONDS = 3600.0
PORT = 9092
READ_BYTES = 1 << 20
MOST_BROKER_ROUNDS = 1_000_000
COMMIT_MARKER = 1


class StandsStill(AssertionError):
    """Nobody will ever do anything again, and the client still waits: what it waits for was lost."""


class TooLate(AssertionError):
    """The client still waits when its time is over."""


class Stored(NamedTuple):
    """A record as it lies in the log."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    producer_epoch: int
    is_committed: bool


class World:
    """`settings` are the broker's, by Kafka's names; `odds` what happens to requests by chance."""

    def __init__(self, seed: int = 0, *, settings: Mapping[str, str] | None = None, odds: Odds | None = None) -> None:
        self.seed = seed
        self.random = random.Random(f"world {seed}")
        self.system = SimulatedSystem(seed)
        self.faults = WorldFaults(random.Random(f"faults {seed}"))
        if odds is not None:
            self.faults.at_random(odds)
        self.network = Network(self.system, random.Random(f"network {seed}"), self.faults, self.crash)
        self.bootstrap = f"127.0.0.1:{PORT}"
        self._settings = {"listeners": f"PLAINTEXT://{self.bootstrap}"} | QUICK_SETTINGS | dict(settings or {})
        self.store = MemoryTree()
        """What the cluster remembers, whatever becomes of its broker."""
        self._stack = ExitStack()
        self._broker: Broker | None = None
        self._loop: Loop | None = None
        self.event_loop: SimulatedEventLoop

    # Entering and leaving

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(taken_over(self.seed, self.now, self._time_ns))
            self.files = SimulatedFiles()
            make_data_folder(self.files)
            self.start()
            self.event_loop = SimulatedEventLoop(self)
            stack.callback(self._end)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _time_ns(self) -> int:
        return self.system.clock_ms() * 1_000_000

    def _end(self) -> None:
        self.faults.clear()
        tasks = asyncio.all_tasks(self.event_loop)
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                self.event_loop.run_until_complete(asyncio.wait(tasks, timeout=PATIENCE_SECONDS))
        finally:
            self.event_loop.close()
            if self._broker is not None:
                self._abandon()

    # The broker

    @property
    def broker(self) -> Broker:
        assert self._broker is not None, "the broker is down"
        return self._broker

    @property
    def is_up(self) -> bool:
        return self._broker is not None

    def start(self) -> None:
        """The broker is there, or there again, with the data that it has left."""
        if self._broker is not None:
            return
        self._loop = Loop(self.system)
        self._broker = Broker(
            self._loop, self.files, FOLDER, BrokerSettings(self._settings), open_store=self._open_store
        )
        self._broker.start()
        self.network.note("the broker starts")

    def _open_store(self, loop: Loop) -> LocalStore:
        return LocalStore(lambda: MemoryNodes(self.store), loop.make_worker("store"))

    def stop(self) -> None:
        """In good order. Connections are refused until it starts again."""
        broker = self.broker
        self._broker = None
        broker.stop()
        assert self._loop is not None
        self._loop.close()
        self.network.note("the broker stops")

    def crash(self, down_seconds: float = 1.0) -> None:
        """As by kill -9; it is there again after a while."""
        if self._broker is None:
            return
        self.network.note(f"the broker crashes for {down_seconds:.3f} s")
        self._abandon()
        self.network.cut_all()
        self.later(down_seconds, self.start)

    def _abandon(self) -> None:
        broker = self.broker
        self._broker = None
        self.system.kill()
        broker.crash()
        self.files.kill()

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
        asked = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=configs
        )
        assert self._loop is not None
        answer = run_to_end(self._loop, self.broker.topic_requests.create([asked]))[name]
        if isinstance(answer, ApiError):
            raise answer
        return name

    def put(self, topic: str, *values: bytes | None, partition: int = 0) -> None:
        """Append records without a client; LogError if that fails."""
        batch = build_batch(values, timestamp=self.system.clock_ms())
        found = self.broker.topics.by_name[topic].partitions[partition]
        _, end_offset, _ = found.writer.produce(batch, version=9, now_ms=self.system.clock_ms())
        failures: list[LogError | None] = []
        found.when_committed(end_offset, failures.append)
        found.end_round()  # nobody runs the loop meanwhile
        for failure in failures:
            if failure is not None:
                raise failure

    # What lies in the log

    def written(self, topic: str) -> list[Stored]:
        """All records, partition after partition, committed or not."""
        return [
            record for partition in self.broker.topics.by_name[topic].partitions for record in _records_of(partition)
        ]

    def committed(self, topic: str) -> list[Stored]:
        """What a reader of committed records must see, by the markers in the log alone."""
        return [record for record in self.written(topic) if record.is_committed]

    # Time

    def now(self) -> float:
        return self.system.now()

    @property
    def steps(self) -> int:
        return self.event_loop.steps

    def later(self, seconds: float, function: Callable[[], object]) -> None:
        """Called when so much time has passed, while the client runs."""
        self.network.at(self.now() + seconds, lambda: (function(), None)[1])

    def run(
        self, work: Coroutine[Any, Any, T], *, most_seconds: float = PATIENCE_SECONDS, cancel_at: int | None = None
    ) -> T:
        """The result of a coroutine; TooLate if it has none in time."""
        task = self.event_loop.create_task(work)
        if cancel_at is not None:
            self._cancel_at(task, cancel_at)
        limit = self.event_loop.call_later(most_seconds, self.event_loop.stop)
        try:
            return self.event_loop.run_until_complete(task)
        except RuntimeError as error:
            if "Event loop stopped" not in str(error):
                raise
            task.cancel()
            raise TooLate(f"not done after {most_seconds} s\n{self.trace()}") from None
        finally:
            limit.cancel()
            self.event_loop.before_step = None

    def run_cancelled(self, work: Coroutine[Any, Any, object], k: int) -> bool:
        """Run it and cancel it before its k-th round; whether it ended by itself before."""
        try:
            self.run(work, cancel_at=k)
        except asyncio.CancelledError:
            return False
        return not self._was_cancelled

    def _cancel_at(self, task: asyncio.Task[Any], k: int) -> None:
        last = self.event_loop.steps + k
        self._was_cancelled = False

        def look() -> None:
            if self.event_loop.steps > last and not self._was_cancelled and not task.done():
                self._was_cancelled = True
                task.cancel()

        self.event_loop.before_step = look

    def advance(self, seconds: float) -> None:
        """Let time pass: what the client left behind goes on."""
        self.run(asyncio.sleep(seconds))

    def pass_time(self, timeout: float | None) -> None:
        """For the event loop: until it has something to do, or so long at most."""
        end = float("inf") if timeout is None else self.now() + timeout
        for _ in range(MOST_BROKER_ROUNDS):
            is_busy = self.network.deliver()
            is_busy = self._run_broker() or is_busy
            if self.event_loop.has_ready or timeout == 0:
                return
            if is_busy:
                continue
            due = min(end, self.network.next_due(), self._broker_due())
            if due == float("inf"):
                raise StandsStill(f"nothing happens any more\n{self.trace()}")
            self.system.jump_to(due)
            if due >= end:
                return
        raise RuntimeError(f"the broker comes round and round at {self.now()} seconds")

    def _run_broker(self) -> bool:
        loop = self._loop
        if self._broker is None or loop is None:
            return False
        if not (loop.is_busy() or self.system.can_go_on() or self._broker_due() <= self.now()):
            return False
        loop.run_once()
        return True

    def _broker_due(self) -> float:
        if self._broker is None or self._loop is None:
            return float("inf")
        return self._loop.next_due()

    # Looking

    def trace(self) -> str:
        return "\n".join((f"seed {self.seed}", *self.network.trace))

    def leftovers(self) -> list[str]:
        """What is left after all clients were closed, and should not be."""
        left = [f"task {task!r}" for task in asyncio.all_tasks(self.event_loop)]
        left += [f"connection {link.number}" for link in self.network.links if not link.transport.is_closing()]
        scheduled = self.event_loop._scheduled  # type: ignore[attr-defined]
        return left + [f"timer {handle!r}" for handle in scheduled if not handle.cancelled()]


def _records_of(partition: Any) -> Iterator[Stored]:
    """Those of transactions without a marker are not committed."""
    found: list[Stored] = []
    open_at: dict[int, list[int]] = {}
    for batch in _batches_of(partition):
        header = batch.header
        if header.is_control:
            key = next(iter(batch.records())).key or b""
            is_commit = int.from_bytes(key[2:4], "big") == COMMIT_MARKER
            for place in open_at.pop(header.producer_id, ()):
                found[place] = found[place]._replace(is_committed=is_commit)
            continue
        for record in batch.records():
            if header.is_transactional:
                open_at.setdefault(header.producer_id, []).append(len(found))
            found.append(
                Stored(
                    partition.index, record.offset, record.key, record.value, header.producer_id,
                    header.producer_epoch, not header.is_transactional,
                )
            )  # fmt: skip
    yield from found


def _batches_of(partition: Any) -> Iterator[Batch]:
    offset = partition.log.log_start_offset
    while (read := partition.read(offset, READ_BYTES, committed_only=False)).records is not None:
        for batch in read_batches(read.records.read(), with_control=True):
            yield batch
            offset = batch.header.next_offset
