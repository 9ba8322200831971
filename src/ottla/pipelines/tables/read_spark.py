"""Reading a table of changes with Spark: the plain table and the changes since its last fold, as of one moment.

Spark reads the files that the two Delta logs name. It needs no jars for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark.sql.functions as fn
from pyspark.sql.pandas.types import from_arrow_schema

from ottla.pipelines.tables.read import HIDDEN, Snapshot, snapshot
from ottla.pipelines.tables.resolve import distinct, fitted, history
from ottla.pipelines.tables.table import arrow_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


def read_table(
    spark: SparkSession, path: str, *, storage_options: Mapping[str, str] | None = None, is_plain: bool = True
) -> DataFrame:
    """The rows of the table at `path` as of now. `is_plain` leaves out the columns that only the table itself needs."""
    found = snapshot(path, storage_options)
    if found.layout.is_history:
        rows = _versions(spark, found)
    else:
        rows = _latest(spark, found)
    return rows.drop(*HIDDEN) if is_plain else rows


def _files(spark: SparkSession, table: DeltaTable, schema: pa.Schema) -> DataFrame:
    own = from_arrow_schema(arrow_schema(table))
    files = table.file_uris()
    found = spark.createDataFrame([], own)
    if files:
        root = table.table_uri
        found = spark.read.schema(own).option("basePath", root).parquet(*files)
    columns = [
        fn.col(field.name) if field.name in own.names else fn.lit(None).cast(field.dataType).alias(field.name)
        for field in from_arrow_schema(schema)
    ]
    return found.select(*columns)


def _latest(spark: SparkSession, found: Snapshot) -> DataFrame:
    keys = list(found.layout.keys)
    schema = found.schema()
    base = _files(spark, found.base, schema)
    changes = _files(spark, found.changes, arrow_schema(found.changes))
    # Of equal positions an upsert wins, as everywhere.
    order = fn.struct(fn.col("_position"), ~fn.col("_deleted"))
    last = changes.groupBy(*keys).agg(fn.max_by(fn.struct(*changes.columns), order).alias("change")).select("change.*")
    places = last.select(*keys, fn.col("_position").alias("_new"))
    kept = base.join(places, keys, "left").where(fn.col("_new").isNull() | (fn.col("_position") >= fn.col("_new")))
    old = base.select(*keys, fn.col("_position").alias("_old"))
    new = last.join(old, keys, "left").where(fn.col("_old").isNull() | (fn.col("_position") > fn.col("_old")))
    new = new.where(~fn.col("_deleted"))
    columns = [
        fn.col(field.name) if field.name in new.columns else fn.lit(None).cast(field.dataType).alias(field.name)
        for field in from_arrow_schema(schema)
    ]
    return kept.select(*schema.names).unionByName(new.select(*columns))


def _versions(spark: SparkSession, found: Snapshot) -> DataFrame:
    """Versions of keys without new changes as they are; the others are put together where their bucket is."""
    keys, tracked = list(found.layout.keys), found.layout.tracked
    schema, changes_schema = found.schema(), arrow_schema(found.changes)
    base = _files(spark, found.base, schema)
    changes = _files(spark, found.changes, changes_schema)
    touched = changes.select(*keys).distinct()
    untouched = base.join(touched, keys, "left_anti").select(*schema.names)
    old = base.join(touched, keys, "left_semi").select(*schema.names)

    def put_together(_: tuple[object, ...], left: pa.Table, right: pa.Table) -> pa.Table:
        new = distinct(fitted(right, changes_schema), keys)
        return history(fitted(left, schema), new, keys, tracked)

    together = old.groupBy("_bucket").cogroup(changes.groupBy("_bucket"))
    return untouched.unionByName(together.applyInArrow(put_together, from_arrow_schema(schema)))
