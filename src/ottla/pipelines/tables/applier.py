"""Batches of changes into one table: decode, add columns, send away what is bad, append, fold when it is time."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ottla.client import NewRecord, Producer
from ottla.pipelines.tables.columns import Columns, merged
from ottla.pipelines.tables.frames import are_messages, decoded, typed
from ottla.pipelines.tables.rules import DeadLetters, Rules
from ottla.pipelines.tables.table import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMN_ROUNDS = 10
# A fold may take this much of the time between two batches.
FOLD_SECONDS = 0.5
FOLD_SHARE = 8
LEAST_FOLD_ROWS = 100_000
MOST_FOLD_ROWS = 5_000_000


class BadEvent(Exception):
    """A message is no change, and the pipeline was asked to stop for that."""


class ColumnsUnsettled(Exception):
    """A batch keeps asking for other columns."""


@dataclass(frozen=True, slots=True)
class BadMessage:
    topic: str | None
    partition: int | None
    offset: int | None
    key: bytes | None
    value: bytes | None
    reason: str


@dataclass(slots=True)
class Outcome:
    """What became of a batch, or the columns that are needed first."""

    changes: int = 0
    bad: list[BadMessage] = field(default_factory=list)
    offsets: Offsets = field(default_factory=dict)
    newest_commit_time_ms: int | None = None
    needed_columns: list[Columns] = field(default_factory=list)


class Engine(Protocol):
    """Keeps the table. `deltalake` does it in this process, `spark` on Spark's executors; the result is equal."""

    def columns(self) -> Columns: ...
    def create(self, columns: Columns) -> None: ...
    def offsets(self, partitions: list[tuple[str, int]]) -> Offsets: ...
    def judge(self, rows: DataFrame) -> Outcome:
        """Look at a batch, and keep it for `append`."""
        ...

    def append(self, outcome: Outcome) -> int: ...
    def begin_fold(self) -> bool: ...
    def fold_step(self) -> bool: ...
    def clean(self, retention_hours: int) -> None: ...
    def replace_with(self, fresh: Any) -> None: ...
    def base_rows(self) -> int: ...
    def open_rows(self) -> int: ...
    @property
    def is_folding(self) -> bool: ...


def engine_of(path: str, rules: Rules, spark: object) -> Engine:
    from ottla.pipelines.tables.local_engine import LocalEngine

    return LocalEngine(path, rules.layout, rules.storage_options)


class Applier:
    """Applies batches to the table at `target`. Calls may come from several threads, one at a time is done."""

    def __init__(self, target: str, rules: Rules, spark: object = None) -> None:
        self.target = target
        self.rules = rules
        self.engine = engine_of(target, rules, spark)
        self.failure: BaseException | None = None
        self.last_outcome: Outcome | None = None
        self.applied_changes = 0
        self.bad_messages = 0
        self.last_commit_time: float | None = None
        self._lock = threading.Lock()
        if rules.columns:
            self.engine.create(merged(self.engine.columns(), rules.columns))

    def apply(self, frame: DataFrame, batch_id: int = 0) -> Outcome:
        """One batch. For `foreachBatch`; what fails is kept in `failure`, for Spark makes a text of it."""
        with self._lock:
            try:
                outcome = self._apply(frame)
                self.fold_for(FOLD_SECONDS)
            except BaseException as error:
                self.failure = error
                raise
            return outcome

    def _apply(self, frame: DataFrame) -> Outcome:
        outcome = self._judged(frame)
        if outcome.bad:
            self._send_away(outcome.bad)
        if outcome.changes or outcome.offsets:
            outcome.changes = self.engine.append(outcome)
            self.last_commit_time = time.time()
        self.applied_changes += outcome.changes
        self.bad_messages += len(outcome.bad)
        self.last_outcome = outcome
        return outcome

    def _judged(self, frame: DataFrame) -> Outcome:
        """The batch in the columns that it needs; they are added to the table on the way."""
        is_of_messages = are_messages(frame)
        for _ in range(_COLUMN_ROUNDS):
            known = self.engine.columns()
            if is_of_messages:
                rows = decoded(frame, self.rules.decoding(known), self.rules.buckets)
            else:
                rows = typed(frame, self.rules)
                known = merged(known, _typed_columns(rows))
                if known != self.engine.columns():
                    self.engine.create(known)
            outcome = self.engine.judge(rows)
            if not outcome.needed_columns:
                return outcome
            wanted = known
            for columns in outcome.needed_columns:
                wanted = merged(wanted, columns)
            self.engine.create(wanted)
        raise ColumnsUnsettled(f"{self.target}: the columns of a batch do not settle")

    def _send_away(self, bad: list[BadMessage]) -> None:
        """To the dead letters, before the offsets behind them are committed: none is lost, one may come twice."""
        letters = self.rules.dead_letters
        if self.rules.on_error == "stop" or letters is None:
            first = bad[0]
            raise BadEvent(f"{_place(first)}: {first.reason}")
        send_dead_letters(letters, bad)

    def fold_for(self, seconds: float) -> None:
        """Go on with a fold, or begin one if enough has come together."""
        engine = self.engine
        if not engine.is_folding and engine.open_rows() < self._fold_rows():
            return
        until = time.monotonic() + seconds
        if engine.begin_fold():
            while engine.fold_step() and time.monotonic() < until:
                pass

    def fold(self) -> None:
        """Fold everything."""
        with self._lock:
            while self.engine.begin_fold():
                while self.engine.fold_step():
                    pass

    def clean(self, retention_hours: int) -> None:
        with self._lock:
            self.engine.clean(retention_hours)

    def _fold_rows(self) -> int:
        return min(max(self.engine.base_rows() // FOLD_SHARE, LEAST_FOLD_ROWS), MOST_FOLD_ROWS)


def _typed_columns(rows: DataFrame) -> Columns:
    from ottla.pipelines.tables.columns import type_named

    return {name: type_named(kind) for name, kind in rows.dtypes if not name.startswith("_")}


def _place(message: BadMessage) -> str:
    if message.topic is None:
        return "a row of the source"
    return f"{message.topic}, partition {message.partition}, offset {message.offset}"


def send_dead_letters(letters: DeadLetters, bad: list[BadMessage]) -> None:
    """Each with its own key and value, and in headers where it came from and what is wrong with it."""
    records = [
        NewRecord(
            message.value,
            key=message.key,
            headers=[
                ("ottla.error", message.reason.encode()),
                ("ottla.topic", (message.topic or "").encode()),
                ("ottla.partition", str(message.partition).encode()),
                ("ottla.offset", str(message.offset).encode()),
            ],
        )
        for message in bad
    ]
    with Producer(letters.bootstrap, create_topics=True) as producer:
        producer.send_many(letters.topic, records)


def needed_columns(texts: list[str]) -> list[Columns]:
    return [json.loads(text) for text in texts]
