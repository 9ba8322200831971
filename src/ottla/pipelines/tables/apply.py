"""`apply_changes`: a DataFrame of changes, batch or stream, into a table; with the names and rules of AutoCDC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.pipelines.tables.applier import Applier, Outcome
from ottla.pipelines.tables.checkpoint import new_checkpoint, read_through, remove_after
from ottla.pipelines.tables.columns import type_named
from ottla.pipelines.tables.dead_letters import DeadLetters
from ottla.pipelines.tables.frames import check_frame
from ottla.pipelines.tables.layout import DEFAULT_BUCKETS
from ottla.pipelines.tables.rules import Rules, names, scd_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


def apply_changes(
    target: str,
    source: DataFrame,
    keys: Sequence[str | Column] | str | Column,
    sequence_by: str | Column = "position",
    apply_as_deletes: Column | str | None = None,
    column_list: Sequence[str | Column] | None = None,
    except_column_list: Sequence[str | Column] | None = None,
    stored_as_scd_type: int | str | None = 1,
    track_history_column_list: Sequence[str | Column] | None = None,
    track_history_except_column_list: Sequence[str | Column] | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    source_table: str | None = None,
    on_error: str = "stop",
    dead_letters: DeadLetters | None = None,
    engine: str = "deltalake",
    buckets: int = DEFAULT_BUCKETS,
    storage_options: Mapping[str, str] | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> Outcome | StreamingQuery:
    """Keep the table at the path `target` in step with `source`; a batch is applied at once, a stream until it ends.

    `source` has messages of change events (key, value, topic, partition, offset, as the sources `ottla` and `kafka`
    give them), or rows of your own. Of messages the events say what is deleted and what their position is
    (`sequence_by="offset"` takes the offset instead); of rows `sequence_by` is a column or an expression, and
    `apply_as_deletes` a condition. Columns topic, partition and offset of rows are not data: the table keeps the
    offsets with each commit, and skips what it has.
    """
    rules = Rules(
        keys=names(keys) or (),
        sequence_by=sequence_by,
        apply_as_deletes=apply_as_deletes,
        column_list=names(column_list),
        except_column_list=names(except_column_list) or (),
        stored_as_scd_type=scd_type(stored_as_scd_type),
        track_history_column_list=names(track_history_column_list),
        track_history_except_column_list=names(track_history_except_column_list),
        columns={name: type_named(kind) for name, kind in (columns or {}).items()},
        source_table=source_table,
        on_error=on_error if dead_letters is None or on_error != "stop" else "dead_letters",
        dead_letters=dead_letters,
        engine=engine,
        buckets=buckets,
        storage_options=storage_options,
    )
    applier = Applier(target, rules, source.sparkSession)
    if not source.isStreaming:
        return applier.apply(source)
    return start_stream(source, applier, trigger or {})


def start_stream(source: DataFrame, applier: Applier, trigger: Mapping[str, Any]) -> StreamingQuery:
    """Run a stream into a table. The table knows what it has, so the checkpoint need not outlive the query."""
    check_frame(source, applier.rules)
    checkpoint = new_checkpoint()

    def apply(batch: DataFrame, batch_id: int) -> None:
        applier.apply(batch, read_through(checkpoint, batch_id))

    writer = source.writeStream.foreachBatch(apply).option("checkpointLocation", f"file://{checkpoint}")
    if trigger:
        writer = writer.trigger(**trigger)
    query = writer.start()
    remove_after(query, checkpoint)
    return query
