"""A real broker inside the process of a test, on a thread of its own, with data that goes when it goes.

    with ottla.testing.broker() as broker:
        broker.topic("orders", partitions=3)
        producer = Producer({"bootstrap.servers": broker.bootstrap})  # of any make

Everything in it is what `ottla serve` runs: only the settings that make people wait are shorter.
"""

from __future__ import annotations

import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.broker import Broker
from ottla.broker.config.layers import BrokerSettings
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import Steps
from ottla.broker.network.listeners import Endpoint, plaintext
from ottla.broker.topics import Topic
from ottla.log.errors import LogError
from ottla.records.build import build_batch
from ottla.testing.faults import Faults, FaultyDispatch
from ottla.testing.fresh_store import put_fresh_store
from ottla.testing.full_disk import FillableDisk
from ottla.testing.stored_records import StoredRecord, difference, stored_records
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from ottla.broker.stores import OpenStore

T = TypeVar("T")

# A group of a test knows who is in it, and a member that dies there is not missed for a minute.
QUICK_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    # Making their fifty partitions takes longer than all else in a short test.
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
LOOK_AGAIN_SECONDS = 0.005


class LocalBroker:
    """A running broker. Its methods may be called from any thread but its own."""

    def __init__(
        self,
        folder: str,
        *,
        port: int = 0,
        durability: str = "page-cache",
        settings: Mapping[str, object] | None = None,
        store: str | None = None,
    ) -> None:
        """`settings`: the broker's, by Kafka's names; numbers and booleans may be such.

        `store`: of a cluster that it belongs to, as for `ottla serve`.
        """
        self.folder = folder
        self._store = store
        self.faults = Faults()
        if durability not in ("page-cache", "fsync"):
            raise ValueError(f"durability is page-cache or fsync, not {durability!r}")
        self._syncs = durability == "fsync"
        self._disk = FillableDisk(syncs=self._syncs)
        self._settings = {name: _text(value) for name, value in (settings or {}).items()}
        self._is_up = False
        self._ending = threading.Lock()
        """Held by whoever ends the broker, and by whoever asks its thread for something."""
        self._asked: set[Future[Any]] = set()
        self._resumed = threading.Event()
        self._resumed.set()
        self._start(port)

    def _start(self, port: int) -> None:
        settings = {"listeners": plaintext("127.0.0.1", port)} | self._settings
        self._loop = Loop()
        parsed = BrokerSettings(settings)
        self._broker = Broker(
            self._loop,
            self._disk,
            self.folder,
            parsed,
            syncs=self._syncs,
            survives_power_loss=self._syncs,
            open_store=None if self._store is None else self._shared_store(self._store, parsed),
            make_dispatch=lambda broker: FaultyDispatch(broker, self.faults),
        )
        try:
            self._broker.start()
        except BaseException:
            self._broker.stop()
            self._loop.close()
            raise
        self._endpoints = dict(self._broker.frontend.endpoints)
        self._thread = threading.Thread(target=self._loop.run, name="ottla-broker", daemon=True)
        self._thread.start()
        self._is_up = True

    def _shared_store(self, text: str, settings: BrokerSettings) -> OpenStore:
        from ottla.broker.stores import shared_store

        seconds = settings.config.broker_session_timeout_ms / 1000
        return shared_store(text, session_seconds=seconds, survives_power_loss=self._syncs)

    # Where it is

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Where each listener is, by its name."""
        return self._endpoints  # also while it restarts

    @property
    def _address(self) -> Endpoint:
        return next(iter(self._endpoints.values()))

    @property
    def host(self) -> str:
        return self._address.host

    @property
    def port(self) -> int:
        return self._address.port

    @property
    def bootstrap(self) -> str:
        """What clients call `bootstrap.servers`."""
        return str(self._address)

    def __repr__(self) -> str:
        return f"<LocalBroker on {self.bootstrap}>"

    def call(self, function: Callable[[Broker], T]) -> T:
        """Call on the broker's own thread, where alone its state may be touched, and give back the result.

        As a request does, it finds all that came before it written.
        """

        def begin(broker: Broker, result: Future[T]) -> None:
            result.set_result(function(broker))

        return self._ask(begin)

    def _ask(self, begin: Callable[[Broker, Future[T]], object]) -> T:
        """The same for what is not there at once. RuntimeError when the broker ends before that, in another thread."""
        result: Future[T] = Future()

        def run() -> None:
            try:
                self._broker.rounds.write()
                begin(self._broker, result)
            except BaseException as error:
                result.set_exception(error)

        with self._ending:
            if not self._is_up:
                raise RuntimeError("the broker is down: look into it when it is up again")
            if not self._resumed.is_set():
                raise RuntimeError("the broker is paused: look into it when it has resumed")
            self._asked.add(result)
            self._loop.post(run)
        try:
            return result.result()
        finally:
            self._asked.discard(result)

    def run(self, steps: Callable[[Broker], Steps]) -> Any:
        """Run on the broker's own thread what waits for the store or for the disk, and give back the result."""

        def begin(broker: Broker, result: Future[Any]) -> None:
            def done(value: object, failure: Exception | None) -> None:
                if failure is None:
                    result.set_result(value)
                else:
                    result.set_exception(failure)

            broker.request_slices.start(steps(broker), done)

        return self._ask(begin)

    # Topics

    def topic(
        self, name: str, *, partitions: int = 1, replication: int = -1, config: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic; its name, to be used in the same line. Numbers and booleans of the `config` may be such."""
        asked = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=_text(value)) for key, value in (config or {}).items()],
        )
        answer = self.run(lambda broker: broker.topic_requests.create([asked]))[name]
        if isinstance(answer, ApiError):
            raise answer
        return name

    def put(
        self,
        topic: str,
        *values: bytes | None,
        key: bytes | None = None,
        partition: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
    ) -> None:
        """Append records without a client, so that there is something to read; LogError if that fails."""
        if timestamp is not None and timestamp < 0:
            raise ValueError(f"a timestamp is not negative: {timestamp}")
        batch = build_batch(
            values,
            timestamp=time.time_ns() // 1_000_000 if timestamp is None else timestamp,
            keys=[key] * len(values),
            headers=[tuple(headers)] * len(values),
        )

        def append(broker: Broker, written: Future[None]) -> None:
            def told(failure: LogError | None) -> None:
                if failure is None:
                    written.set_result(None)
                else:
                    written.set_exception(failure)

            partitions = _topic(broker, topic).partitions
            if partition not in range(len(partitions)):
                raise ValueError(f"topic {topic!r} has no partition {partition}: it has {len(partitions)}")
            found = partitions[partition]
            _, end_offset, _ = found.writer.produce(batch, version=9, now_ms=broker.clock_ms())
            found.when_committed(end_offset, told)

        self._ask(append)

    def records(self, topic: str, *, committed_only: bool = True) -> list[StoredRecord]:
        """What a consumer from the beginning would get, partition after partition."""
        return self.call(lambda broker: list(stored_records(_topic(broker, topic), committed_only)))

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.records(topic)]

    def assert_records(self, topic: str, values: Sequence[bytes | None], *, within: float = 10.0) -> None:
        """Wait until a topic has these values, in any order of partitions; AssertionError tells what it has instead."""
        __tracebackhide__ = True
        found: list[bytes | None] = []

        def has_all() -> bool:
            found[:] = self.values(topic)
            return len(found) >= len(values)

        _wait_until(has_all, within)
        if Counter(found) != Counter(values):
            raise AssertionError(difference(topic, found, values))

    def dump(self, topic: str) -> str:
        """A topic as text, a record a line: for a look when a test fails."""
        lines = [
            f"{topic}-{record.partition}@{record.offset} key={record.key!r} value={record.value!r}"
            + "".join(f" {name}={value!r}" for name, value in record.headers)
            for record in self.records(topic, committed_only=False)
        ]
        return "\n".join(lines)

    # Groups and transactions

    def lag(self, group: str) -> int:
        """The records that a group has not committed yet and would still get, in all partitions it has committed."""

        def look(broker: Broker) -> int:
            if not any(group in shard.machine.groups for shard in broker.groups.shards()):
                raise ValueError(f"there is no group {group!r}: nobody has joined it, or committed anything for it")
            return sum(lag.records for lag in broker.lags.of_group(group))

        return self.call(look)

    def wait_for_lag_zero(self, group: str, *, within: float = 10.0) -> None:
        """Until a group has committed all there is to get; AssertionError if it has not in time."""
        __tracebackhide__ = True

        def is_done() -> bool:
            lags = self.call(lambda broker: broker.lags.of_group(group))
            return bool(lags) and not any(lag.records for lag in lags)

        if not _wait_until(is_done, within):
            lags = self.call(lambda broker: broker.lags.of_group(group))
            behind = [f"{lag.topic}-{lag.partition} by {lag.records}" for lag in lags if lag.records]
            raise AssertionError(f"group {group!r} is behind: {', '.join(behind) or 'it has committed nothing'}")

    def rebalance(self, group: str) -> None:
        """Make a group rebalance: all members of a classic one join again, a consumer one begins another epoch."""
        from ottla.testing import coordinators

        self.call(lambda broker: coordinators.rebalance(broker, group))

    def expel(self, group: str, client_id: str) -> None:
        """Throw the members of one client out of a group, as if its heartbeats had not come for too long."""
        from ottla.testing import coordinators

        self.call(lambda broker: coordinators.expel(broker, group, client_id))

    def fence(self, transactional_id: str) -> None:
        """Take a transactional id over, as a second instance would: what is open is aborted, its producer is done."""
        from ottla.testing import coordinators

        self.run(lambda broker: broker.transactions.ensure_producer_ids())

        def take_over(broker: Broker, told: Future[ErrorCode]) -> None:
            coordinators.take_over(broker, transactional_id, told.set_result)

        code = ErrorCode.CONCURRENT_TRANSACTIONS
        while code is ErrorCode.CONCURRENT_TRANSACTIONS:  # until the open transaction has ended
            code = self._ask(take_over)
        if code is not ErrorCode.NONE:
            raise ValueError(f"{transactional_id!r} cannot be fenced: {code.name}")

    # What can happen to a broker

    @contextmanager
    def paused(self) -> Iterator[None]:
        """As a process that is stopped: connections stay, nothing is answered until it goes on."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def pause(self) -> None:
        is_paused = threading.Event()
        resumed = self._resumed

        def hold() -> None:
            is_paused.set()
            resumed.wait()

        with self._ending:
            if not self._is_up or not self._resumed.is_set():
                raise RuntimeError("the broker is down, or paused already")
            self._resumed.clear()
            self._loop.post(hold)
        is_paused.wait()

    def resume(self) -> None:
        self._resumed.set()

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Writes are refused with Kafka's storage error; reads go on."""
        self._disk.is_full = True
        try:
            yield
        finally:
            self._disk.is_full = False

    def restart(self, *, kill: bool = False) -> None:
        """Stop and start again on the same port with the same data; killed: without a word to anyone."""
        with self.down(kill=kill):
            pass

    @contextmanager
    def down(self, *, kill: bool = False) -> Iterator[None]:
        """Stopped, or killed, for a while: connections are refused. Then it is there again, with the same data."""
        if not self._is_up:
            raise RuntimeError("the broker is down already")
        port = self.port
        self._end(kill=kill)
        try:
            yield
        finally:
            self._start(port)

    def start(self) -> None:
        """Again, after `stop` or `kill`, on the same port with the same data."""
        if self._is_up:
            raise RuntimeError("the broker is up already")
        self._start(self.port)

    @property
    def is_up(self) -> bool:
        return self._is_up

    @property
    def is_paused(self) -> bool:
        return not self._resumed.is_set()

    def stop(self) -> None:
        self._end(kill=False)

    def kill(self) -> None:
        """End as a process that is killed."""
        self._end(kill=True)

    def abandon(self) -> None:
        """Stop, and leave the data as it is: for a folder that goes now, or as a crash would."""
        self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        """Nothing, where it has ended already: its user may stop it, and then leave the `with` block."""
        if not self._is_up:
            return
        self.resume()
        topics = self.call(lambda broker: set(broker.topics.by_name))
        with self._ending:
            self._is_up = False
            self.resume()
            self._loop.post(self._loop.stop)
        self._thread.join()
        if kill:
            self._broker.abandon()
        else:
            self._broker.stop()
        self._loop.close()
        for result in list(self._asked):
            if not result.done():
                result.set_exception(RuntimeError("the broker has ended meanwhile"))
        self._tell_of_lost_faults(topics)

    def _tell_of_lost_faults(self, names: set[str]) -> None:
        """One that waits for a topic that nobody has made was most likely meant for another."""
        for fault in self.faults.waiting:
            if not fault.count and not fault.is_over and fault.topic is not None and fault.topic not in names:
                warnings.warn(
                    f"{fault!r} waited for topic {fault.topic!r}, and there is none; there are {sorted(names)}",
                    stacklevel=2,
                )


@contextmanager
def broker(
    folder: str | None = None,
    *,
    port: int = 0,
    durability: str = "page-cache",
    settings: Mapping[str, object] | None = None,
) -> Iterator[LocalBroker]:
    """A broker that listens on loopback; without a folder its data is in one that is removed at the end.

    `settings` are the broker's, by Kafka's names, over those that make it quick.
    """
    all_settings = QUICK_SETTINGS | dict(settings or {})
    with ExitStack() as stack:
        data = folder or stack.enter_context(_new_folder())
        started = LocalBroker(data, port=port, durability=durability, settings=all_settings)
        stack.callback(started.stop if folder else started.abandon)
        yield started


@contextmanager
def _new_folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="ottla-broker-") as folder:
        put_fresh_store(folder)
        yield folder


def _text(value: object) -> str:
    """A setting as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _topic(broker: Broker, name: str) -> Topic:
    topic = broker.topics.by_name.get(name)
    if topic is None:
        raise ValueError(f"there is no topic {name!r}; there are {sorted(broker.topics.by_name)}")
    return topic


def _wait_until(is_so: Callable[[], bool], within: float) -> bool:
    """Look again and again; whether it was so in time."""
    deadline = time.monotonic() + within
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_AGAIN_SECONDS)
    return True
