"""The engine `delta-spark`: batches are written and folded by Spark's executors, with delta-spark's MERGE.

The table is laid out as `layout` says, and either engine goes on with a table of the other. One MERGE folds all
buckets: its work is spread over the executors, so it needs no steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark.sql.functions as fn
from pyspark import StorageLevel
from pyspark.sql.pandas.types import from_arrow_schema

from ottla.pipelines.tables.applier import Outcome, needed_columns
from ottla.pipelines.tables.columns import Columns, arrow_type, merged, type_named
from ottla.pipelines.tables.dead_letters import BadMessage
from ottla.pipelines.tables.delta_log import DeltaLog, delta_session, quoted
from ottla.pipelines.tables.layout import (
    BUCKET,
    FOLD_OF_ALL,
    FOLDED,
    GENERATION,
    OPEN,
    REPLACING,
    Layout,
    TableRefused,
    changes_path,
    check_whole,
    columns_of,
    folded_through,
    is_half_replaced,
    offset_id,
    place_of,
    tombstones_id,
)
from ottla.pipelines.tables.read_spark import Frames, in_schema, last_changes, without_truncated
from ottla.pipelines.tables.resolve import START
from ottla.pipelines.tables.table import ChangeTable, Offsets, WriterFenced, check_layout
from ottla.pipelines.tables.tombstones import plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NEVER = -1
_ATTEMPTS = 50
_PAUSE_SECONDS = 0.1
_BAD_COLUMNS = ("_topic", "_partition", "_offset", "_message_key", "_message_value", "_error")
# Other readers, deltalake among them, do not read deletion vectors.
_CONFIGURATION = {"delta.enableDeletionVectors": "false"}


class SparkEngine:
    """The table at `path`, made when it is not there. One writer at a time; readers as many as there are."""

    def __init__(self, path: str, layout: Layout, spark: SparkSession) -> None:
        self.path = path if "://" in path else str(Path(path).absolute())
        self.layout = layout
        self._session = delta_session(spark)
        self._base = DeltaLog(self._session, self.path)
        self._changes = DeltaLog(self._session, changes_path(self.path))
        if self._base.exists:
            check_layout(path, layout, Layout.from_configuration(self._base.configuration()))
        rows = self._rows_by_generation()
        self._open_generation = self._found_generation(rows)
        self._open_rows = self._waiting_rows(rows)
        self._base_rows = self._counted_base_rows()
        self._fold: _Fold | None = None
        self._judged: DataFrame | None = None

    # What is there

    @property
    def exists(self) -> bool:
        return self._base.exists and self._changes.exists

    def columns(self) -> Columns:
        known: Columns = {}
        for table in (self._base, self._changes):
            if table.exists:
                known = merged(known, columns_of(_schema(table)))
        return known

    def offsets(self, partitions: Sequence[tuple[str, int]]) -> Offsets:
        known = self._all_offsets()
        return {place: known[place] for place in partitions if place in known}

    def _all_offsets(self) -> Offsets:
        found = ((place_of(name), version) for name, version in self._changes.transactions.items())
        return {place: version for place, version in found if place is not None}

    def base_rows(self) -> int:
        return self._base_rows

    def open_rows(self) -> int:
        return self._open_rows

    # Appending

    def create(self, columns: Columns) -> None:
        configuration = self.layout.to_configuration() | _CONFIGURATION
        makes = ((self._base, self.layout.base_schema, BUCKET), (self._changes, self.layout.changes_schema, GENERATION))
        for table, make, partition in makes:
            if not table.exists:
                table.create(from_arrow_schema(make(columns)), partition, configuration)
            there = columns_of(_schema(table))
            wider = merged(there, columns)
            if {name: wider[name] for name in there} != there:
                # Seldom, and costs what the table costs.
                table.overwrite(in_schema(table.frame(), make(wider)), partition)
                self._fold = None
        if self._open_generation == _NEVER:
            self._open_generation = self._found_generation(self._rows_by_generation())
        self._changes.add_columns(from_arrow_schema(self.layout.changes_schema(columns)))

    def judge(self, rows: DataFrame) -> Outcome:
        self._forget_judged()
        rows = _beyond(rows, self._all_offsets())
        # It is looked at here, and written later: the executors keep it, and make it again where one is lost.
        self._judged = rows.persist(StorageLevel.MEMORY_AND_DISK)
        is_change = fn.col("_position").isNotNull()
        told = rows.groupBy("_topic", "_partition").agg(
            fn.max("_offset").alias("offset"),
            fn.count_if(is_change).alias("changes"),
            fn.count("_error").alias("errors"),
            fn.count("_new_columns").alias("needed"),
            fn.max(fn.when(is_change, fn.unix_millis("_commit_time"))).alias("newest"),
        )
        parts = told.collect()
        if any(part.needed for part in parts):
            needed = _needed_texts(rows)
            self._forget_judged()
            return Outcome(needed_columns=needed_columns(needed))
        newest = [part.newest for part in parts if part.newest is not None]
        return Outcome(
            changes=sum(part.changes for part in parts),
            bad=_bad_messages(rows) if any(part.errors for part in parts) else [],
            offsets={(part._topic, part._partition): part.offset for part in parts if part._topic is not None},
            newest_commit_time_ms=max(newest, default=None),
        )

    def append(self, outcome: Outcome) -> int:
        assert self._judged is not None
        if not self.exists:
            self.create({})
        self._check_open()
        kept = None
        if outcome.changes:
            rows = self._judged.where("_position IS NOT NULL")
            last = last_changes(rows, self._group()).withColumn(GENERATION, fn.lit(self._open_generation))
            kept = in_schema(last, _schema(self._changes))
        versions = {offset_id(*place): offset for place, offset in outcome.offsets.items()}
        versions[OPEN] = self._open_generation
        try:
            count = self._changes.commit(kept, versions, self._changes.transactions)
        finally:
            self._forget_judged()
        self._open_rows += count
        return count

    def _check_open(self) -> None:
        """What was read behind a commit of ours may hold what another writer has done meanwhile."""
        if self._changes.transactions.get(OPEN, _NEVER) > self._open_generation:
            raise WriterFenced(f"another writer has taken over {self.path}")
        check_whole(self.path, self._changes.transaction_version, self._base.transaction_version)

    def _group(self) -> list[str]:
        return [*self.layout.keys, "_position"] if self.layout.is_history else [*self.layout.keys]

    def _forget_judged(self) -> None:
        if self._judged is not None:
            self._judged.unpersist()
        self._judged = None

    # Folding

    @property
    def is_folding(self) -> bool:
        return self._fold is not None

    def begin_fold(self) -> bool:
        """Close the open generation, so that the next steps fold it. False if there is nothing to fold."""
        if self._fold is not None:
            return True
        if not self.exists:
            return False
        trimmed = self._trimmed()
        waiting = [generation for generation in self._rows_by_generation() if generation > trimmed]
        if not waiting:
            return False
        # A fold that was cut goes on with the generation that it had closed.
        done = [self._folded(bucket) for bucket in range(self.layout.buckets)]
        through = max(done) if max(done) > trimmed else max(waiting)
        self._open_generation = max(through + 1, self._open_generation)
        self._check_open()
        self._changes.commit(None, {OPEN: self._open_generation}, self._changes.transactions)
        self._fold = _Fold(through, is_merged=min(done) >= through)
        return True

    def fold_step(self) -> bool:
        """One commit of the fold that is under way; False when it is complete."""
        if self._fold is None:
            return False
        if not self._fold.is_merged:
            self._merge(self._fold.through)
            self._fold.is_merged = True
            return True
        self._trim(self._fold.through)
        self._fold = None
        return False

    def _merge(self, through: int) -> None:
        changes = self._changes.frame().where(fn.col(GENERATION) <= through)
        schema = self.layout.base_schema(merged(columns_of(_schema(self._base)), columns_of(_schema(self._changes))))
        self._base.add_columns(from_arrow_schema(schema))
        if self.layout.is_history:
            base = in_schema(self._base.frame(), schema)
            frames = Frames(self.layout, schema, _schema(self._changes), base, changes)
            self._merge_versions(frames.touched_versions(), schema, through)
        else:
            self._truncate(changes)
            kept = without_truncated(changes, changes, self.layout.keys)
            self._merge_rows(last_changes(kept, self.layout.keys), schema, through)
        self._base_rows = self._counted_base_rows()

    def _truncate(self, changes: DataFrame) -> None:
        """Before the MERGE, and again if that is not reached: what a truncate deletes stays deleted."""
        last = changes.where(fn.col(self.layout.keys[0]).isNull()).agg(fn.max("_position")).first()
        if last is not None and last[0] is not None:
            position = f"CAST(unhex('{last[0].encode().hex()}') AS STRING)"
            self._base.execute(f"DELETE FROM {self._base.sql_name} WHERE _position < {position}")

    def _merge_rows(self, changes: DataFrame, schema: pa.Schema, through: int) -> None:
        changes.createOrReplaceTempView("changes")
        self._base.execute(
            f"MERGE INTO {self._base.sql_name} AS t USING changes AS s "
            f"ON {_equal([*self.layout.keys, BUCKET])} "
            f"WHEN MATCHED AND s._position > t._position AND s._deleted THEN DELETE "
            f"WHEN MATCHED AND s._position > t._position THEN UPDATE SET {_assigned(schema.names)} "
            f"WHEN NOT MATCHED AND NOT s._deleted THEN {_inserted(schema.names)}",
            (FOLD_OF_ALL, through),
        )

    def _merge_versions(self, versions: DataFrame, schema: pa.Schema, through: int) -> None:
        versions.createOrReplaceTempView("versions")
        self._base.execute(
            f"MERGE INTO {self._base.sql_name} AS t USING versions AS s "
            f"ON {_equal([*self.layout.keys, START, BUCKET])} "
            f"WHEN MATCHED AND s._is_gone THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {_assigned(schema.names)} "
            f"WHEN NOT MATCHED AND NOT s._is_gone THEN {_inserted(schema.names)}",
            (FOLD_OF_ALL, through),
        )

    def _trim(self, through: int) -> None:
        """Replace what is folded by its tombstones. Those of earlier folds stay: their generation says how old."""
        trimmed = self._trimmed()
        folded = self._changes.frame().where(fn.col(GENERATION).between(trimmed + 1, through))
        tombstones = last_changes(folded, self._group()).where("_deleted").withColumn(GENERATION, fn.lit(through))
        tombstones = in_schema(tombstones, _schema(self._changes))
        condition = f"{GENERATION} > {trimmed} AND {GENERATION} <= {through}"
        self._changes.replace_where(tombstones, condition, (FOLDED, through))
        self._open_rows = self._waiting_rows(self._rows_by_generation())

    # Keeping house

    def clean(self, retention_hours: int) -> None:
        """Join small files, and remove files that no version within the retention needs."""
        if not self.exists:
            return
        self._base.execute(f"OPTIMIZE {self._base.sql_name}")
        for table in (self._base, self._changes):
            table.execute(f"VACUUM {table.sql_name} RETAIN {retention_hours} HOURS")

    def expire_tombstones(self, hours: float, now: float | None = None) -> int:
        """Forget the deletes that were folded so long ago; how many."""
        if not self.exists:
            return 0
        now_seconds = int(time.time() if now is None else now)
        rows = self._rows_by_generation()
        there = [generation for generation in rows if generation <= self._trimmed()]
        known = self._changes.transactions
        found = plan({each: known.get(tombstones_id(each)) for each in there}, hours, now_seconds)
        if found.unseen:
            self._changes.commit(None, {tombstones_id(each): now_seconds for each in found.unseen}, known)
        if found.expired:
            self._changes.execute(f"DELETE FROM {self._changes.sql_name} WHERE {_among(found.expired)}")
        for generations in found.alike:
            self._changes.execute(
                f"UPDATE {self._changes.sql_name} SET {GENERATION} = {generations[-1]} WHERE {_among(generations)}"
            )
        return sum(rows[generation] for generation in found.expired)

    def replace_with(self, fresh: ChangeTable) -> None:
        """Take the rows, tombstones and offsets of a table that was folded whole, and lies on the driver's disk."""
        self.create(fresh.columns())
        self._fold = None
        # Generations begin behind all that were there, so that what a fold has noted stays true.
        through = max(self._open_generation, self._found_generation(self._rows_by_generation())) + 1
        self._open_generation = through + 1  # from now on other writers are fenced
        marked = {REPLACING: through, OPEN: self._open_generation}
        self._changes.commit(None, marked, self._changes.transactions)
        rows, tombstones = (self._session.createDataFrame(table) for table in fresh.folded())
        base_schema = self.layout.base_schema(columns_of(_schema(self._base)))
        self._base.overwrite(in_schema(rows, base_schema), BUCKET, (FOLD_OF_ALL, through))
        tombstones = in_schema(tombstones.withColumn(GENERATION, fn.lit(through)), _schema(self._changes))
        versions = {offset_id(*place): offset for place, offset in fresh.all_offsets.items()}
        versions |= {FOLDED: through, OPEN: self._open_generation}
        self._changes.commit(tombstones, versions, self._changes.transactions, is_replacing=True)
        self._open_rows = 0
        self._base_rows = self._counted_base_rows()

    # Inside

    def _found_generation(self, rows: Mapping[int, int]) -> int:
        """Where appends go: behind whatever a fold has closed."""
        if not self.exists:
            return _NEVER
        closed = max(self._folded(bucket) for bucket in range(self.layout.buckets))
        return max([closed + 1, self._changes.transactions.get(OPEN, 0), *rows])

    def _folded(self, bucket: int) -> int:
        return folded_through(self._base.transaction_version, bucket)

    def _trimmed(self) -> int:
        """The last generation of which only tombstones are left."""
        return self._changes.transactions.get(FOLDED, _NEVER)

    def _waiting_rows(self, rows: Mapping[int, int]) -> int:
        trimmed = self._trimmed()
        return sum(count for generation, count in rows.items() if generation > trimmed)

    def _rows_by_generation(self) -> dict[int, int]:
        """Asks Spark."""
        if not self._changes.exists:
            return {}
        return {row[0]: row[1] for row in self._changes.frame().groupBy(GENERATION).count().collect()}

    def _counted_base_rows(self) -> int:
        return self._base.frame().count() if self._base.exists else 0


class _Fold:
    """A fold under way: the generation it goes through, and whether the plain table has it."""

    def __init__(self, through: int, *, is_merged: bool) -> None:
        self.through, self.is_merged = through, is_merged


def frames_at(spark: SparkSession, path: str) -> Frames:
    """Both parts of a table. What a fold took from the changes must be in the plain table, else both are read again."""
    session = delta_session(spark)
    base, changes = DeltaLog(session, path), DeltaLog(session, changes_path(path))
    if not base.exists or not changes.exists:
        raise TableRefused(f"there is no table at {path}")
    layout = Layout.from_configuration(base.configuration())
    if layout is None:
        raise TableRefused(f"{path} is a Delta table that was not made by a pipeline of Ottla")
    for _ in range(_ATTEMPTS):
        folded = min(folded_through(base.transaction_version, bucket) for bucket in range(layout.buckets))
        if is_half_replaced(changes.transaction_version, base.transaction_version):
            time.sleep(_PAUSE_SECONDS)
        elif folded >= changes.transactions.get(FOLDED, _NEVER):
            schema, changed = layout.read_schemas(_schema(base), _schema(changes))
            return Frames(layout, schema, changed, in_schema(base.frame(), schema), in_schema(changes.frame(), changed))
        base.refresh()
        changes.refresh()
    check_whole(path, changes.transaction_version, base.transaction_version)
    raise TableRefused(f"{path} is folded faster than it can be read")


def _schema(table: DeltaLog) -> pa.Schema:
    fields = table.schema().fields
    return pa.schema([pa.field(each.name, arrow_type(type_named(each.dataType.simpleString()))) for each in fields])


def _beyond(rows: DataFrame, known: Offsets) -> DataFrame:
    """Without what the table has already."""
    if not known:
        return rows
    done = [
        (fn.col("_topic") == topic) & (fn.col("_partition") == partition) & (fn.col("_offset") <= offset)
        for (topic, partition), offset in known.items()
    ]
    return rows.where(~fn.coalesce(reduce(lambda one, other: one | other, done), fn.lit(False)))


def _needed_texts(rows: DataFrame) -> list[str]:
    """What messages ask for, in the order of those that ask first."""
    first = fn.min(fn.struct("_topic", "_partition", "_offset")).alias("first")
    found = rows.where("_new_columns IS NOT NULL").groupBy("_new_columns").agg(first).collect()
    return [row[0] for row in sorted(found, key=lambda row: row[1])]


def _bad_messages(rows: DataFrame) -> list[BadMessage]:
    bad = rows.where("_error IS NOT NULL").select(*_BAD_COLUMNS).distinct()  # a message may have made two rows
    found = [BadMessage(row[0], row[1], row[2], _bytes(row[3]), _bytes(row[4]), row[5]) for row in bad.collect()]
    return sorted(found, key=lambda message: (message.topic or "", message.partition or 0, message.offset or 0))


def _bytes(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)


def _among(generations: Sequence[int]) -> str:
    return f"{GENERATION} IN ({', '.join(map(str, generations))})"


def _equal(names: Sequence[str]) -> str:
    return " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in names)


def _assigned(names: Sequence[str]) -> str:
    return ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in names)


def _inserted(names: Sequence[str]) -> str:
    columns, values = (", ".join(f"{prefix}{quoted(name)}" for name in names) for prefix in ("", "s."))
    return f"INSERT ({columns}) VALUES ({values})"
