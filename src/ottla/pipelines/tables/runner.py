"""Running a pipeline: a stream for each table, progress while it runs, again after what passes, folds and cleaning."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ottla.client import ClientError
from ottla.pipelines.tables.applier import Applier, BadEvent, ColumnsUnsettled
from ottla.pipelines.tables.apply import start_stream
from ottla.pipelines.tables.columns import DoesNotFit
from ottla.pipelines.tables.java_end import was_java_told_to_end, why_java_ended, why_memory
from ottla.pipelines.tables.layout import TableRefused
from ottla.pipelines.tables.pipeline import Pipeline, Table
from ottla.pipelines.tables.plain_table import StoreFailed
from ottla.pipelines.tables.reasons import first_line
from ottla.pipelines.tables.rules import RulesRefused
from ottla.pipelines.tables.table import WriterFenced
from ottla.pipelines.tables.topic_ends import (
    Span,
    TopicChanged,
    check_mark,
    lag_records,
    spans,
    starting_offsets,
    topic_mark,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 0.2
_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 15.0
_LAG_TIMEOUT_MS = 2_000
# What another attempt would not make better.
FINAL = (BadEvent, ColumnsUnsettled, DoesNotFit, RulesRefused, TableRefused, TopicChanged, WriterFenced)


class PipelineFailed(Exception):
    """The pipeline cannot go on; the text says why."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How one table stands. `lag_seconds` is the age of the newest change when it was committed to the table."""

    time: float
    table: str
    applied: int
    bad: int
    rate: float
    lag_records: int | None
    lag_seconds: float | None
    last_commit: float | None
    offsets: dict[str, int]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


Tell = Callable[[Progress], None]
Say = Callable[[str], None]


class TableRun:
    """The stream into one table, started again when it broke."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, table: Table, say: Say) -> None:
        self._spark, self._pipeline, self.table, self._say = spark, pipeline, table, say
        self.applier = Applier(table.target, pipeline.rules(table), spark)
        self._query: StreamingQuery | None = None
        self._wait_seconds = _FIRST_WAIT_SECONDS
        self._not_before = 0.0
        self._told_changes = 0
        self._told_time = time.monotonic()
        self._last_fold = self._last_clean = time.monotonic()
        self._seen: dict[int, Span] = {}
        self._is_stale = False
        self.is_complete = False

    def keep_running(self, *, is_once: bool) -> None:
        """Start the stream if it should run and does not. Raises what cannot be mended by another attempt."""
        if self._query is not None and not self._query.isActive:
            self._ended(is_once=is_once)
        if self._query is None and not self.is_complete and time.monotonic() >= self._not_before:
            try:
                self._look_again()
                self._start(is_once=is_once)
            except (ClientError, OSError, StoreFailed) as error:
                self._again_later(error)

    def _start(self, *, is_once: bool) -> None:
        self.applier.failure = None
        source = messages_after(self._spark, self._pipeline, self.table, self.applier)
        trigger: dict[str, Any] = {"availableNow": True}
        if not is_once:
            trigger = {"processingTime": f"{round(self._pipeline.trigger_seconds * 1000)} milliseconds"}
        self._query = start_stream(source, self.applier, trigger)

    def _ended(self, *, is_once: bool) -> None:
        assert self._query is not None
        error = self.applier.failure or self._query.exception()
        self._query = None
        if error is None:
            self.is_complete = is_once
        elif isinstance(error, FINAL):
            raise PipelineFailed(f"{self.table.name}: {error}") from error
        elif (reason := why_java_ended() or why_memory(error)) is not None:
            raise PipelineFailed(f"{self.table.name}: {reason}") from error
        else:
            self._again_later(error)

    def _again_later(self, error: BaseException) -> None:
        if (reason := why_java_ended()) is not None:
            raise PipelineFailed(f"{self.table.name}: {reason}") from error
        self._say(f"{self.table.name}: {first_line(error)}; again in {self._wait_seconds:g} s")
        self._not_before = time.monotonic() + self._wait_seconds
        self._wait_seconds = min(self._wait_seconds * 2, _LONGEST_WAIT_SECONDS)
        self._is_stale = True

    def _look_again(self) -> None:
        """The engine may have seen a commit fail half-way: another looks at the table, as soon as that can be had."""
        if not self._is_stale:
            return
        old = self.applier
        try:
            fresh = Applier(self.table.target, self._pipeline.rules(self.table), self._spark)
        except (DeltaError, Py4JJavaError, PySparkException) as error:
            raise StoreFailed(first_line(error)) from error
        fresh.applied_changes, fresh.bad_messages = old.applied_changes, old.bad_messages
        fresh.last_commit_time, fresh.last_outcome = old.last_commit_time, old.last_outcome
        self.applier, self._is_stale = fresh, False

    def keep_house(self) -> None:
        """Fold what has waited long enough, step by step, and clean up, on a schedule."""
        now = time.monotonic()
        if self._is_stale and now < self._not_before:
            return
        try:
            self._look_again()
            self._keep_folding(now)
            if now - self._last_clean >= self._pipeline.clean_minutes * 60:
                self._last_clean = now
                self.applier.clean(self._pipeline.retention_hours, self._pipeline.tombstone_hours)
        except FINAL as error:
            raise PipelineFailed(f"{self.table.name}: {error}") from error
        except (OSError, DeltaError, Py4JError, PySparkException, StoreFailed) as error:
            self.stop()
            self._query = None
            self._again_later(error)

    def _keep_folding(self, now: float) -> None:
        """After `fold_minutes`, or when no change has come for `fold_idle_seconds`."""
        waiting = self.applier.engine.open_rows()
        last_commit = self.applier.last_commit_time
        idle_seconds = now - self._last_fold if last_commit is None else time.time() - last_commit
        is_idle = idle_seconds >= self._pipeline.fold_idle_seconds
        is_due = is_idle or now - self._last_fold >= self._pipeline.fold_minutes * 60
        if not waiting:
            self._last_fold = now
        elif is_due or self.applier.engine.is_folding:
            self.applier.fold_between_batches(is_due=is_due)

    def progress(self) -> Progress:
        applier, now = self.applier, time.monotonic()
        rate = (applier.applied_changes - self._told_changes) / max(now - self._told_time, 1e-9)
        if applier.applied_changes != self._told_changes:
            self._wait_seconds = _FIRST_WAIT_SECONDS
        self._told_changes, self._told_time = applier.applied_changes, now
        outcome = applier.last_outcome
        lag_seconds = None
        if outcome is not None and outcome.newest_commit_time_ms is not None and applier.last_commit_time is not None:
            lag_seconds = max(applier.last_commit_time - outcome.newest_commit_time_ms / 1000, 0.0)
        offsets = outcome.offsets if outcome is not None else {}
        return Progress(
            time=time.time(),
            table=self.table.name,
            applied=applier.applied_changes,
            bad=applier.bad_messages,
            rate=round(rate, 1),
            lag_records=self._lag_records(),
            lag_seconds=None if lag_seconds is None else round(lag_seconds, 3),
            last_commit=applier.last_commit_time,
            offsets={f"{topic}/{at}": offset for (topic, at), offset in offsets.items() if at >= 0},
        )

    def _lag_records(self) -> int | None:
        """None while nobody answers."""
        try:
            partitions = self._spans()
        except (ClientError, OSError):
            return None
        places = [(self.table.source, partition) for partition in partitions]
        return lag_records(self.table.source, partitions, self.applier.engine.offsets(places))

    def finish(self) -> None:
        """When no more batches come: fold what waits, if the table can be trusted to be what is known of it."""
        if not self._is_stale:
            self.applier.fold()

    def _spans(self) -> dict[int, Span]:
        pipeline = self._pipeline
        return spans(pipeline.bootstrap, self.table.source, pipeline.isolation(), timeout_ms=_LAG_TIMEOUT_MS)

    def stop(self) -> None:
        if self._query is not None and self._query.isActive:
            self._query.stop()


def messages_after(spark: SparkSession, pipeline: Pipeline, table: Table, applier: Applier) -> DataFrame:
    """The stream of messages behind those that the table has."""
    applier.mark = topic_mark(pipeline.bootstrap, table.source)
    check_mark(applier.mark, applier.engine.offsets(list(applier.mark)))
    partitions = spans(pipeline.bootstrap, table.source, pipeline.isolation())
    known = applier.engine.offsets([(table.source, partition) for partition in partitions])
    given = {name.lower(): value for name, value in pipeline.options.items()}
    is_strict = given.get("failondataloss", "true").lower() != "false"
    start = starting_offsets(table.source, partitions, known, fails_on_data_loss=is_strict)
    reader = spark.readStream.format(pipeline.format).option("subscribe", table.source)
    reader = reader.option("startingOffsets", json.dumps({table.source: start}))
    reader = reader.option("maxOffsetsPerTrigger", str(pipeline.max_offsets_per_trigger))
    if pipeline.format == "ottla":  # Spark's own source counts messages alone
        reader = reader.option("maxBytesPerTrigger", str(pipeline.max_bytes_per_trigger))
    if pipeline.group is not None:
        reader = reader.option("kafka.group.id", pipeline.group)
    messages = reader.options(**pipeline.source_options()).load()
    return table.transform(messages) if table.transform is not None else messages


def run_pipeline(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    is_once: bool = False,
    tell: Tell = lambda progress: None,
    say: Say = lambda text: None,
    tell_seconds: float = 1.0,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run until told to stop; with `is_once`, until all that was there at the start is in the tables."""
    runs = [TableRun(spark, pipeline, table, say) for table in pipeline.tables]
    try:
        _keep_running(runs, is_once=is_once, tell=tell, tell_seconds=tell_seconds, should_stop=should_stop)
        for run in runs:
            run.finish()
            tell(run.progress())
    except Exception as error:
        if should_stop() and was_java_told_to_end():
            say("Spark's Java process was told to end, too: what waits is folded by the next run")
            return
        reason = why_java_ended()
        if reason is None or isinstance(error, PipelineFailed):
            raise
        raise PipelineFailed(reason) from error


def _keep_running(
    runs: list[TableRun], *, is_once: bool, tell: Tell, tell_seconds: float, should_stop: Callable[[], bool]
) -> None:
    next_told = time.monotonic() + tell_seconds
    try:
        while not should_stop() and not all(run.is_complete for run in runs):
            for run in runs:
                run.keep_running(is_once=is_once)
                run.keep_house()
            if time.monotonic() >= next_told:
                for run in runs:
                    tell(run.progress())
                next_told = time.monotonic() + tell_seconds
            time.sleep(POLL_SECONDS)
    finally:
        for run in runs if why_java_ended() is None else ():
            run.stop()
