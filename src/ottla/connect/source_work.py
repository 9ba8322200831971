"""One task of a source at work: what it yields goes to topics in transactions that hold the position, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.client import EARLIEST, LATEST, ClientOptions, NewRecord, Producer, Reader
from ottla.connect.configuration import ConnectorConfiguration
from ottla.connect.dead_letters import of_source
from ottla.connect.interface import ConnectorRefused, Source, SourceBatch, SourceRecord, Task
from ottla.connect.metrics import TaskMetrics
from ottla.connect.positions import Positions, transactional_id_of
from ottla.connect.topics import ensure_topic

TRANSACTION_BYTES = 8 << 20
TRANSACTION_TIMEOUT_MS = 60_000
POSITION_SECONDS = 5.0
"""How often a position is written that has no records before it: after a crash they are passed over again."""


class Gathered:
    """What waits to be committed together, without I/O."""

    def __init__(self, connector: str, task: int, dead_letter: str | None) -> None:
        self._connector = connector
        self._task = task
        self._dead_letter = dead_letter
        self.clear()

    def clear(self) -> None:
        self.by_topic: dict[str, list[NewRecord]] = {}
        self.batches: list[SourceBatch] = []
        self.position: Any = None
        self.count = self.size_bytes = self.dead_letters = 0
        self.since: float | None = None
        """When the first of it came; None: there is nothing."""

    def add(self, records: Any, position: Any, now: float) -> None:
        if self.since is None:
            self.since = now
        self.position = position
        by_topic = self.by_topic
        size_bytes = 0
        for record in records:
            if isinstance(record, SourceBatch):
                self.batches.append(record)
                self.count += record.record_count - 1
                size_bytes += record.size_bytes
                continue
            topic, value, key, headers, partition, timestamp_ms, problem = record
            if problem is not None:
                self._bury(record)
                continue
            made = NewRecord(value, key, headers, partition, timestamp_ms)
            size_bytes += len(value or b"") + len(key or b"")
            into = by_topic.get(topic)
            if into is None:
                by_topic[topic] = [made]
            else:
                into.append(made)
        self.count += len(records)
        self.size_bytes += size_bytes

    def _bury(self, record: SourceRecord) -> None:
        if self._dead_letter is None:
            raise ConnectorRefused(
                f"{record.problem}; with dead_letter = TOPIC such records are kept there, and the others go on"
            )
        letter = of_source(self._connector, self._task, record)
        self.by_topic.setdefault(self._dead_letter, []).append(letter)
        self.dead_letters += 1

    @property
    def has_records(self) -> bool:
        return bool(self.by_topic or self.batches)

    def is_due(self, now: float, transaction_ms: int, transaction_records: int) -> bool:
        if self.since is None:
            return False
        is_full = self.count >= transaction_records or self.size_bytes >= TRANSACTION_BYTES
        return is_full or now - self.since >= transaction_ms / 1000


class SourceWork:
    def __init__(
        self, bootstrap: str, options: ClientOptions, configuration: ConnectorConfiguration, positions: Positions,
        metrics: TaskMetrics, progressed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._bootstrap = bootstrap
        self._options = options
        self._configuration = configuration
        self._positions = positions
        self._metrics = metrics
        self._progressed = progressed
        self._source: Source

    def make_task(self, number: int, count: int) -> Task:
        return Task(
            self._configuration.name,
            number,
            count,
            read_topic=lambda topic: Reader(
                self._bootstrap, topic, start=EARLIEST, end=LATEST, reset=EARLIEST, options=self._options
            ),
            create_topic=partial(ensure_topic, self._bootstrap, self._options),
        )

    def run(self, task: Task) -> None:
        """Until it is told to stop, or something fails. To open the producer fences whoever ran the task before."""
        source = self._source = self._configuration.make()
        with Producer(
            self._bootstrap,
            transactional_id=transactional_id_of(task.connector, task.number),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            options=self._options,
        ) as producer:
            position = self._positions.read_own(task.number)
            batches = source.read(task, position)
            try:
                self._move(batches, producer, task, position)
            finally:
                close = getattr(batches, "close", None)
                if close is not None:
                    close()

    def _move(self, batches: Any, producer: Producer, task: Task, position: Any) -> None:
        common = self._configuration.common
        gathered = Gathered(task.connector, task.number, common.dead_letter)
        given = iter(batches)
        while True:
            try:
                yielded = next(given)
            except StopIteration:
                break
            except Exception:
                self._settle(producer, task, gathered, position)  # what came before it failed is sound
                raise
            now = time.monotonic()
            if yielded is not None:
                records, behind = yielded
                gathered.add(records, behind, now)
            if task.is_stopping:
                break
            if task.is_commit_wanted and yielded is not None:
                is_due, task.is_commit_wanted = True, False
            elif gathered.has_records:
                is_due = yielded is None or gathered.is_due(now, common.transaction_ms, common.transaction_records)
            else:
                is_due = gathered.since is not None and now - gathered.since >= POSITION_SECONDS
            if is_due:
                position = self._settle(producer, task, gathered, position)
        self._settle(producer, task, gathered, position)

    def _settle(self, producer: Producer, task: Task, gathered: Gathered, position: Any) -> Any:
        """Commits what says something new; the position that is committed then."""
        if gathered.since is not None:
            if gathered.has_records or gathered.position != position:
                position = self._commit(producer, task, gathered)
            gathered.clear()
        return position

    def _commit(self, producer: Producer, task: Task, gathered: Gathered) -> Any:
        """The position that is committed then."""
        position = gathered.position
        with producer.transaction():
            for topic, records in gathered.by_topic.items():
                producer.send_many(topic, records)
            if gathered.batches:
                offsets = producer.send_batches([(batch.place, batch.batch) for batch in gathered.batches])
                position = self._source.placed(position, list(zip(gathered.batches, offsets, strict=True)))
            producer.send_many(self._positions.topic, [self._positions.record(task.number, position)])
        self._metrics.add(gathered.count, gathered.size_bytes, time.monotonic())
        self._metrics.dead_letters += gathered.dead_letters
        self._progressed()
        return position
