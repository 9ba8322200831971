"""What users want of connectors, and what runners tell of them: one compacted topic that all runners follow."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from ottla.client import EARLIEST, LATEST, ClientError, ClientOptions, NewRecord, Producer, Reader
from ottla.connect.topics import COMPACTED, ensure_topic, topic_exists

TOPIC = "ottla-connect-state"
POLL_MS = 500
RETRY_SECONDS = 1.0


class Wish(NamedTuple):
    """What users want of a connector."""

    is_paused: bool = False
    restarts: int = 0


@dataclass(slots=True)
class TaskStatus:
    """What a runner tells of a task, every few seconds and whenever it changes."""

    state: str
    runner: str
    time_ms: int
    records: int = 0
    bytes: int = 0
    records_per_second: float = 0.0
    dead_letters: int = 0
    retries: int = 0
    lag_seconds: float | None = None
    doing: str | None = None
    error: str | None = None
    error_at_ms: int | None = None
    partitions: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ConnectorState:
    wish: Wish = field(default_factory=Wish)
    tasks: dict[str, TaskStatus] = field(default_factory=dict)


def _key(connector: str, task: str | None = None) -> bytes:
    document: dict[str, Any] = {"connector": connector}
    if task is not None:
        document["task"] = task
    return json.dumps(document, separators=(",", ":")).encode()


def wish_record(connector: str, wish: Wish) -> NewRecord:
    return NewRecord(json.dumps({"paused": wish.is_paused, "restarts": wish.restarts}).encode(), key=_key(connector))


def status_record(connector: str, task: str, status: TaskStatus | None) -> NewRecord:
    value = None if status is None else json.dumps(asdict(status), ensure_ascii=False).encode()
    return NewRecord(value, key=_key(connector, task))


class States:
    """The topic, replayed."""

    def __init__(self) -> None:
        self.connectors: dict[str, ConnectorState] = {}

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """What nobody can read is passed over: a later version may have written it."""
        try:
            about = json.loads(key or b"null")
            document = None if value is None else json.loads(value)
            connector = self.connectors.setdefault(about["connector"], ConnectorState())
            task = about.get("task")
            if task is None:
                connector.wish = Wish() if document is None else Wish(document["paused"], document["restarts"])
            elif document is None:
                connector.tasks.pop(task, None)
            else:
                known = {name: document[name] for name in TaskStatus.__slots__ if name in document}
                connector.tasks[task] = TaskStatus(**known)
        except (ValueError, TypeError, KeyError):
            return

    def of(self, connector: str) -> ConnectorState:
        return self.connectors.get(connector) or ConnectorState()


def load_states(bootstrap: str, options: ClientOptions) -> tuple[States, int]:
    """As they are now, and the offset behind them."""
    states = States()
    if not topic_exists(bootstrap, options, TOPIC):
        return states, 0
    with Reader(bootstrap, TOPIC, [0], start=EARLIEST, end=LATEST, reset=EARLIEST, options=options) as reader:
        for fetched in reader:
            for record in fetched.records:
                states.replay(record.key, record.value)
        return states, reader.offsets.get(0, 0)


def make_wish(bootstrap: str, options: ClientOptions, connector: str, wish: Wish) -> None:
    ensure_topic(bootstrap, options, TOPIC, partitions=1, configs=COMPACTED)
    with Producer(bootstrap, options=options, linger_ms=0) as producer:
        producer.send_many(TOPIC, [wish_record(connector, wish)])


class StateFollower:
    """Follows the topic in a thread of its own, for a runner; and writes what the runner tells."""

    def __init__(self, bootstrap: str, options: ClientOptions) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._states, self._next_offset = States(), 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="connect-state", daemon=True)
        self._producer: Producer | None = None

    def open(self) -> None:
        """Where it fails, it can be tried again."""
        ensure_topic(self._bootstrap, self._options, TOPIC, partitions=1, configs=COMPACTED)
        self._states, self._next_offset = load_states(self._bootstrap, self._options)
        self._producer = Producer(self._bootstrap, options=self._options, linger_ms=0).open()
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._producer is not None:
            with contextlib.suppress(ClientError):  # the last words of a status are not worth more
                self._producer.close(5)

    def wish_for(self, connector: str) -> Wish:
        return self._states.of(connector).wish

    def tell(self, connector: str, task: str, status: TaskStatus | None) -> None:
        """Waits for nothing: what does not arrive is told again soon."""
        assert self._producer is not None
        record = status_record(connector, task, status)
        with contextlib.suppress(ClientError):
            self._producer.send(TOPIC, record.value, key=record.key)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                start = self._next_offset
                with Reader(self._bootstrap, TOPIC, [0], start=start, reset=EARLIEST, options=self._options) as reader:
                    while not self._stopping.is_set():
                        for fetched in reader.poll(POLL_MS):
                            for record in fetched.records:
                                self._states.replay(record.key, record.value)
                            self._next_offset = fetched.next_offset
            except ClientError:
                self._stopping.wait(RETRY_SECONDS)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Of a clock that nobody sets."""
    return time.monotonic_ns() // 1_000_000
