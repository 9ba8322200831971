"""A table made anew from its topic alone, whole or as of a time; and a table compared with what its topic says."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pyspark.sql.functions as fn
from deltalake import DeltaTable

from ottla.pipelines.tables.applier import Applier
from ottla.pipelines.tables.layout import TableRefused, changes_path
from ottla.pipelines.tables.pipeline import Pipeline, Table
from ottla.pipelines.tables.topic_ends import spans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHUNK_OFFSETS = 1_000_000


def rebuild(
    spark: SparkSession,
    pipeline: Pipeline,
    table: Table,
    target: str | None = None,
    *,
    as_of_ms: int | None = None,
) -> int:
    """Make the table from all that the topic has; how many changes it took.

    Without a `target` the table itself is replaced, in one commit for its readers, when the new one is complete.
    """
    if target is None:
        if as_of_ms is not None:
            raise TableRefused("a table as of a time needs a path of its own")
        return _replace(spark, pipeline, table)
    for path in (target, changes_path(target)):
        if DeltaTable.is_deltatable(path, dict(pipeline.storage_options or {})):
            raise TableRefused(f"there is a table at {path} already")
    return _filled(spark, pipeline, table, target, as_of_ms).applied_changes


def _filled(spark: SparkSession, pipeline: Pipeline, table: Table, target: str, as_of_ms: int | None) -> Applier:
    applier = Applier(target, pipeline.rules(table), spark)
    partitions = spans(pipeline.bootstrap, table.source)
    for begin in range(0, max((span.end for span in partitions.values()), default=0), CHUNK_OFFSETS):
        starts = {str(at): min(max(begin, span.start), span.end) for at, span in partitions.items()}
        ends = {str(at): min(max(begin + CHUNK_OFFSETS, span.start), span.end) for at, span in partitions.items()}
        if starts != ends:
            messages = _messages(spark, pipeline, table, starts, ends)
            applier.apply(_as_of(messages, as_of_ms))
    applier.fold()
    return applier


def _messages(
    spark: SparkSession, pipeline: Pipeline, table: Table, starts: dict[str, int], ends: dict[str, int]
) -> DataFrame:
    reader = spark.read.format(pipeline.format).option("kafka.bootstrap.servers", pipeline.bootstrap)
    reader = reader.option("subscribe", table.source).options(**dict(pipeline.options))
    reader = reader.option("startingOffsets", json.dumps({table.source: starts}))
    messages = reader.option("endingOffsets", json.dumps({table.source: ends})).load()
    return table.transform(messages) if table.transform is not None else messages


def _as_of(messages: DataFrame, as_of_ms: int | None) -> DataFrame:
    """Without changes that were committed later; where an event has no time, its message's counts."""
    if as_of_ms is None:
        return messages
    text = fn.col("value").cast("string")
    given = fn.coalesce(
        fn.get_json_object(text, "$.commit_time"),
        fn.get_json_object(text, "$.source.ts_ms"),
        fn.get_json_object(text, "$.payload.source.ts_ms"),
    ).cast("bigint")
    return messages.where(fn.coalesce(given, fn.unix_millis("timestamp")) <= as_of_ms)


def _replace(spark: SparkSession, pipeline: Pipeline, table: Table) -> int:
    """Build beside the table, then put the result in its place: first the rows, then the offsets."""
    folder = tempfile.mkdtemp(prefix="ottla-rebuild-")
    try:
        local = replace(pipeline, engine="deltalake", storage_options=None)
        fresh = _filled(spark, local, table, f"{folder}/table", None)
        old = Applier(table.target, pipeline.rules(table), spark)
        old.engine.replace_with(fresh.engine)
        return fresh.applied_changes
    finally:
        shutil.rmtree(folder, ignore_errors=True)
