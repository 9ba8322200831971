"""Batches of changes into one table: decode, add columns, send away what is bad, append, fold when it is time."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ottla.pipelines.tables.columns import Columns, DoesNotFit, check_keys, check_name, merged
from ottla.pipelines.tables.dead_letters import BadMessage, send_dead_letters
from ottla.pipelines.tables.frames import are_messages, check_frame, decoded, typed
from ottla.pipelines.tables.rules import Rules
from ottla.pipelines.tables.table import Offsets
from ottla.pipelines.tables.topic_ends import COUNT, MARK, check_count, check_mark

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


@dataclass(slots=True)
class Outcome:
    """What became of a batch, or the columns that are needed first."""

    changes: int = 0
    bad: list[BadMessage] = field(default_factory=list)
    offsets: Offsets = field(default_factory=dict)
    newest_commit_time_ms: int | None = None
    needed_columns: list[Columns] = field(default_factory=list)


class Engine(Protocol):
    """Keeps the table. `deltalake` does it in this process, `delta-spark` on Spark's executors; the result is equal."""

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
    def expire_tombstones(self, hours: float) -> int: ...
    def replace_with(self, fresh: Any) -> None: ...
    def base_rows(self) -> int: ...
    def open_rows(self) -> int: ...
    @property
    def is_folding(self) -> bool: ...


def engine_of(path: str, rules: Rules, spark: Any) -> Engine:
    if rules.engine == "delta-spark":
        from ottla.pipelines.tables.spark_engine import SparkEngine

        return SparkEngine(path, rules.layout, spark)
    from ottla.pipelines.tables.local_engine import LocalEngine

    return LocalEngine(path, rules.layout, rules.storage_options)


class Applier:
    """Applies batches to the table at `target`. Calls may come from several threads, one at a time is done."""

    def __init__(self, target: str, rules: Rules, spark: object = None) -> None:
        self.target = target
        self.rules = rules
        self.engine = engine_of(target, rules, spark)
        self.failure: BaseException | None = None
        self.mark: Offsets = {}
        """Of the topic that the batches are from; kept with their offsets."""
        self.sends_letters = True
        self.last_outcome: Outcome | None = None
        self.applied_changes = 0
        self.bad_messages = 0
        self.last_commit_time: float | None = None
        self._lock = threading.Lock()
        if rules.columns:
            self._create(merged(self.engine.columns(), rules.columns))

    def apply(self, frame: DataFrame, read_through: Offsets | None = None) -> Outcome:
        """One batch. For `foreachBatch`; what fails is kept in `failure`, for Spark makes a text of it.

        `read_through` are the last offsets that were read for the batch. They may be those of records that nobody
        sees: the markers of transactions, and what was aborted. The marks of topics, and how
        many partitions they have, may be among them.
        """
        with self._lock:
            try:
                outcome = self._apply(frame, read_through or {})
                self._fold_for(FOLD_SECONDS)
            except BaseException as error:
                self.failure = error
                raise
            return outcome

    def _apply(self, frame: DataFrame, read_through: Offsets) -> Outcome:
        kept = self._checked_mark(read_through) | self._checked_count(read_through)
        read_through = {place: last for place, last in read_through.items() if place[1] >= 0}
        check_frame(frame, self.rules)
        outcome = self._judged(frame)
        if outcome.bad:
            self._send_away(outcome.bad)
        if read_through and are_messages(frame):
            known = self.engine.offsets(list(read_through)) | outcome.offsets
            outcome.offsets |= {place: last for place, last in read_through.items() if last > known.get(place, -1)}
        if outcome.offsets:
            outcome.offsets |= kept
        if outcome.changes or outcome.offsets:
            outcome.changes = self.engine.append(outcome)
            self.last_commit_time = time.time()
        self.applied_changes += outcome.changes
        self.bad_messages += len(outcome.bad)
        self.last_outcome = outcome
        return outcome

    def _checked_mark(self, read_through: Offsets) -> Offsets:
        """The mark to keep. Offsets of a topic that was created again say nothing beside those that the table has."""
        read = {place: number for place, number in read_through.items() if place[1] == MARK}
        if read != self.mark:
            check_mark(read, self.mark or self.engine.offsets(list(read)))
        return self.mark or read

    def _checked_count(self, read_through: Offsets) -> Offsets:
        count = {place: number for place, number in read_through.items() if place[1] == COUNT}
        if self.rules.event_order != "offset" or not count:
            return {}
        check_count(count, self.engine.offsets(list(count)))
        return count

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
                    self._create(known)
            outcome = self.engine.judge(rows)
            if not outcome.needed_columns:
                return outcome
            self._create(self._together(known, outcome.needed_columns))
        raise ColumnsUnsettled(f"{self.target}: the columns of a batch do not settle")

    def _together(self, known: Columns, needed: list[Columns]) -> Columns:
        """Messages of one batch may contradict each other: the first is believed, and the next round refuses others."""
        wanted = known
        for columns in needed:
            with contextlib.suppress(DoesNotFit):
                asked = merged(wanted, columns)
                for name in columns.keys() - wanted.keys():
                    check_name(name, asked)
                check_keys(self.rules.keys, wanted, asked)
                wanted = asked
        return wanted

    def _create(self, columns: Columns) -> None:
        check_keys(self.rules.keys, self.engine.columns(), columns)
        self.engine.create(columns)

    def _send_away(self, bad: list[BadMessage]) -> None:
        """To the dead letters, before the offsets behind them are committed: none is lost, one may come twice."""
        letters = self.rules.dead_letters
        if self.rules.on_error == "stop" or letters is None:
            raise BadEvent(str(bad[0]))
        if self.sends_letters:
            send_dead_letters(letters, bad)

    def _fold_for(self, seconds: float, *, is_due: bool = False) -> None:
        """Go on with a fold, or begin one if enough has come together or it is due."""
        engine = self.engine
        if not engine.is_folding and engine.open_rows() < (1 if is_due else self._fold_rows()):
            return
        until = time.monotonic() + seconds
        if engine.begin_fold():
            while engine.fold_step() and time.monotonic() < until:
                pass

    def fold_between_batches(self, *, is_due: bool) -> None:
        """Some steps of a fold while no batch is applied; a batch that comes waits for one step at most."""
        if self._lock.acquire(blocking=False):
            try:
                self._fold_for(FOLD_SECONDS, is_due=is_due)
            finally:
                self._lock.release()

    def fold(self) -> None:
        """Fold everything."""
        with self._lock:
            while self.engine.begin_fold():
                while self.engine.fold_step():
                    pass

    def clean(self, retention_hours: int, tombstone_hours: float) -> None:
        """Join and remove files, and forget deletes that are older than `tombstone_hours`; below 0 they stay."""
        with self._lock:
            if tombstone_hours >= 0 and not self.engine.is_folding:
                self.engine.expire_tombstones(tombstone_hours)
            self.engine.clean(retention_hours)

    def _fold_rows(self) -> int:
        return min(max(self.engine.base_rows() // FOLD_SHARE, LEAST_FOLD_ROWS), MOST_FOLD_ROWS)


def _typed_columns(rows: DataFrame) -> Columns:
    from ottla.pipelines.tables.columns import type_named

    return {name: type_named(kind) for name, kind in rows.dtypes if not name.startswith("_")}


def needed_columns(texts: list[str]) -> list[Columns]:
    return [json.loads(text) for text in texts]
