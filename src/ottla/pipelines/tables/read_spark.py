"""Reading a table of changes with Spark: the plain table and the changes since its last fold, as of one moment.

Spark reads the files that the two Delta logs name. It needs no jars for that; with the engine "delta-spark" the logs
are read by Delta's own jars, on any path that Spark can read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyspark.sql.functions as fn
from pyspark.sql.pandas.types import from_arrow_schema

from ottla.pipelines.tables.plain_table import arrow_schema
from ottla.pipelines.tables.read import HIDDEN, snapshot
from ottla.pipelines.tables.resolve import END, START, distinct, fitted, history

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from ottla.pipelines.tables.layout import Layout


@dataclass(frozen=True, slots=True)
class Frames:
    """The two parts of a table as of one moment: rows in `schema`, changes in `changes_schema`."""

    layout: Layout
    schema: pa.Schema
    changes_schema: pa.Schema
    base: DataFrame
    changes: DataFrame

    def rows(self) -> DataFrame:
        return self._versions() if self.layout.is_history else self._latest()

    def _latest(self) -> DataFrame:
        keys, schema = list(self.layout.keys), self.schema
        base, changes = (without_truncated(rows, self.changes, keys) for rows in (self.base, self.changes))
        last = last_changes(changes, keys)
        places = last.select(*keys, fn.col("_position").alias("_new"))
        is_kept = fn.col("_new").isNull() | (fn.col("_position") >= fn.col("_new"))
        kept = base.join(places, keys, "left").where(is_kept)
        old = base.select(*keys, fn.col("_position").alias("_old"))
        new = last.join(old, keys, "left").where(fn.col("_old").isNull() | (fn.col("_position") > fn.col("_old")))
        new = new.where(~fn.col("_deleted"))
        return kept.select(*schema.names).unionByName(in_schema(new, schema))

    def _versions(self) -> DataFrame:
        """Versions of keys without new changes as they are; the others are put together where their bucket is."""
        touched = touched_keys(self.base, self.changes, self.layout.keys)
        untouched = self.base.join(touched, list(self.layout.keys), "left_anti").select(*self.schema.names)
        return untouched.unionByName(self.touched_versions().where("NOT _is_gone").drop("_is_gone"))

    def touched_versions(self) -> DataFrame:
        """All versions of the keys that have changes; with `_is_gone`, those of the plain table that are no more."""
        keys, tracked = list(self.layout.keys), self.layout.tracked
        schema, changes_schema = self.schema, self.changes_schema
        touched = touched_keys(self.base, self.changes, keys)
        old = self.base.join(touched, keys, "left_semi").select(*schema.names)
        told = schema.append(pa.field("_is_gone", pa.bool_()))

        def put_together(_: tuple[object, ...], left: pa.Table, right: pa.Table) -> pa.Table:
            before = fitted(left, schema)
            after = history(before, distinct(fitted(right, changes_schema), keys), keys, tracked)
            gone = _without(before, after, [*keys, START])
            return pa.concat_tables([_marked(after, told, False), _marked(gone, told, True)])

        together = old.groupBy("_bucket").cogroup(in_every_bucket(self.changes, self.layout).groupBy("_bucket"))
        return together.applyInArrow(put_together, from_arrow_schema(told))


def without_truncated(rows: DataFrame, changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows that no truncate among the changes deletes; truncates themselves are not among them."""
    last = changes.where(fn.col(keys[0]).isNull()).agg(fn.max("_position").alias("_truncated"))
    kept = rows.where(fn.col(keys[0]).isNotNull()).crossJoin(fn.broadcast(last))
    is_kept = fn.col("_truncated").isNull() | (fn.col("_position") >= fn.col("_truncated"))
    return kept.where(is_kept).drop("_truncated")


def in_every_bucket(changes: DataFrame, layout: Layout) -> DataFrame:
    """The changes, with each truncate in every bucket."""
    numbers = fn.sequence(fn.lit(0), fn.lit(layout.buckets - 1))
    truncates = changes.where(fn.col(layout.keys[0]).isNull()).withColumn("_bucket", fn.explode(numbers))
    return changes.where(fn.col(layout.keys[0]).isNotNull()).unionByName(truncates)


def touched_keys(base: DataFrame, changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Keys of changes, and those with a version that a truncate ends."""
    truncates = changes.where(fn.col(keys[0]).isNull()).select(fn.col("_position").alias("_truncated")).distinct()
    goes_on = fn.col(END).isNull() | (fn.col(END) > fn.col("_truncated"))
    ended = base.join(fn.broadcast(truncates), (fn.col(START) < fn.col("_truncated")) & goes_on)
    return changes.where(fn.col(keys[0]).isNotNull()).select(*keys).unionByName(ended.select(*keys)).distinct()


def _without(rows: pa.Table, others: pa.Table, names: list[str]) -> pa.Table:
    """The rows that are not among the others, by these columns."""
    numbered = rows.select(names).append_column("_row", pa.array(range(rows.num_rows), pa.int64()))
    return rows.take(numbered.join(others.select(names), names, join_type="left anti")["_row"].combine_chunks())


def _marked(rows: pa.Table, schema: pa.Schema, is_gone: bool) -> pa.Table:
    return fitted(rows.append_column("_is_gone", pa.array([is_gone] * rows.num_rows, pa.bool_())), schema)


def last_changes(changes: DataFrame, group: Sequence[str]) -> DataFrame:
    """Of each group the change that wins. Of equal positions an upsert wins, as everywhere."""
    order = fn.struct(fn.col("_position"), ~fn.col("_deleted"))
    last = fn.max_by(fn.struct(*changes.columns), order).alias("change")
    return changes.groupBy(*group).agg(last).select("change.*")


def in_schema(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """In the columns of a schema: cast, in its order, null where the frame has none."""
    there = set(frame.columns)
    columns = [
        (fn.col(field.name) if field.name in there else fn.lit(None)).cast(field.dataType).alias(field.name)
        for field in from_arrow_schema(schema)
    ]
    return frame.select(*columns)


def read_table(
    spark: SparkSession,
    path: str,
    *,
    engine: str = "deltalake",
    storage_options: Mapping[str, str] | None = None,
    is_plain: bool = True,
) -> DataFrame:
    """The rows of the table at `path` as of now. `is_plain` leaves out the columns that only the table itself needs."""
    if engine == "delta-spark":
        from ottla.pipelines.tables.spark_engine import frames_at

        rows = frames_at(spark, path).rows()
    else:
        rows = _frames(spark, path, storage_options).rows()
    return rows.drop(*HIDDEN) if is_plain else rows


def _frames(spark: SparkSession, path: str, storage_options: Mapping[str, str] | None) -> Frames:
    found = snapshot(path, storage_options)
    schema, changes_schema = found.schemas()
    base, changes = _files(spark, found.base, schema), _files(spark, found.changes, changes_schema)
    return Frames(found.layout, schema, changes_schema, base, changes)


def _files(spark: SparkSession, table: DeltaTable, schema: pa.Schema) -> DataFrame:
    own = from_arrow_schema(arrow_schema(table))
    # Deltalake writes paths as a URL has them; Spark takes them as they are, and braces or stars for patterns.
    files = [unquote(uri) for uri in table.file_uris()]
    found = spark.createDataFrame([], own)
    if files:
        reader = spark.read.schema(own).option("basePath", unquote(table.table_uri)).option("__globPaths__", "false")
        found = reader.parquet(*files)
    return in_schema(found, schema)
