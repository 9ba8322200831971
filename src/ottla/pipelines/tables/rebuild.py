"""A table made anew from its topic alone, whole or as of a time; and a table compared with what its topic says."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyspark.sql.functions as fn
from deltalake import DeltaTable

from ottla.client import ClientOptions, TopicPartition
from ottla.pipelines.byte_limit import ByteLimit
from ottla.pipelines.client_options import Cluster
from ottla.pipelines.rate_limit import limit_offsets
from ottla.pipelines.tables.applier import Applier
from ottla.pipelines.tables.layout import TableRefused, changes_path
from ottla.pipelines.tables.local_engine import LocalEngine
from ottla.pipelines.tables.pipeline import DEFAULT_BATCH_OFFSETS, Pipeline, Table
from ottla.pipelines.tables.table import Offsets
from ottla.pipelines.tables.topic_ends import COUNT, Span, spans, topic_mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHUNK_OFFSETS = DEFAULT_BATCH_OFFSETS
_MOST_PARTITIONS = 4096
_PATIENCE_MS = 120_000
_NOTHING = -1


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
    # The pipeline sends dead letters when it reads them.
    return _filled(spark, pipeline, table, target, as_of_ms, sends_letters=False).applied_changes


def _filled(
    spark: SparkSession, pipeline: Pipeline, table: Table, target: str, as_of_ms: int | None, *, sends_letters: bool
) -> Applier:
    applier = Applier(target, pipeline.rules(table), spark)
    applier.sends_letters = sends_letters
    applier.mark = topic_mark(pipeline.bootstrap, table.source)
    partitions = spans(pipeline.bootstrap, table.source, pipeline.isolation())
    for starts, ends in _chunks(pipeline, table.source, partitions):
        messages = _messages(spark, pipeline, table, starts, ends, as_of_ms)
        read = {(table.source, int(at)): end - 1 for at, end in ends.items() if end > starts[at]}
        read[table.source, COUNT] = len(partitions)
        applier.apply(messages, read_through={} if as_of_ms is not None else read)
    applier.fold()
    return applier


def _chunks(
    pipeline: Pipeline, topic: str, partitions: Mapping[int, Span]
) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """From where to where each partition is read, batch after batch: no more of it than a pipeline takes at a time."""
    at = {TopicPartition(topic, partition): span.start for partition, span in partitions.items()}
    last = {TopicPartition(topic, partition): span.end for partition, span in partitions.items()}
    cluster = Cluster(pipeline.bootstrap, ClientOptions(client_id="ottla-pipeline"))
    limit = ByteLimit(cluster, pipeline.isolation(), pipeline.max_bytes_per_trigger, _PATIENCE_MS)
    try:
        while at != last:
            ends = limit.limited(at, limit_offsets(at, last, CHUNK_OFFSETS))
            yield _by_partition(at), _by_partition(ends)
            at = ends
    finally:
        limit.close()


def _by_partition(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(place.partition): offset for place, offset in offsets.items()}


def _messages(
    spark: SparkSession,
    pipeline: Pipeline,
    table: Table,
    starts: dict[str, int],
    ends: dict[str, int],
    as_of_ms: int | None,
) -> DataFrame:
    reader = spark.read.format(pipeline.format).option("subscribe", table.source)
    reader = reader.options(**pipeline.batch_options())
    reader = reader.option("startingOffsets", json.dumps({table.source: starts}))
    messages = _as_of(reader.option("endingOffsets", json.dumps({table.source: ends})).load(), as_of_ms)
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
    ).try_cast("bigint")
    return messages.where(fn.coalesce(given, fn.unix_millis("timestamp")) <= as_of_ms)


def _replace(spark: SparkSession, pipeline: Pipeline, table: Table) -> int:
    """Build beside the table, then put the result in its place: first the rows, then the offsets."""
    folder = tempfile.mkdtemp(prefix="ottla-rebuild-")
    try:
        local = replace(pipeline, engine="deltalake", storage_options=None)
        # It may be ahead of the pipeline, which will not read again what the table has then.
        fresh = _filled(spark, local, table, f"{folder}/table", None, sends_letters=True)
        old = Applier(table.target, pipeline.rules(table), spark)
        assert isinstance(fresh.engine, LocalEngine)
        fresh.engine.all_offsets = _all_offsets(pipeline, table, old) | fresh.engine.all_offsets
        old.engine.replace_with(fresh.engine)
        return fresh.applied_changes
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _all_offsets(pipeline: Pipeline, table: Table, old: Applier) -> Offsets:
    """Of every partition that the table has read or will read: what the old topic had counts no more."""
    partitions = spans(pipeline.bootstrap, table.source, pipeline.isolation())
    known = old.engine.offsets([(table.source, partition) for partition in range(_MOST_PARTITIONS)])
    found = dict.fromkeys(known, _NOTHING)
    # Behind the last change of a partition there may be nothing but what a table has no use for, or nothing at all.
    return found | {(table.source, partition): span.start - 1 for partition, span in partitions.items()}
