"""How the tables of a pipeline stand: what they have, what waits, how far they are behind. Needs no Spark."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client import ClientError
from ottla.pipelines.tables.pipeline import Pipeline, Table
from ottla.pipelines.tables.plain_table import PlainTable
from ottla.pipelines.tables.read import snapshot
from ottla.pipelines.tables.table import ChangeTable
from ottla.pipelines.tables.topic_ends import lag_records, spans


@dataclass(frozen=True, slots=True)
class Status:
    """`lag_records` and `lag_seconds` are None where the brokers cannot be reached or nothing is known."""

    table: str
    target: str
    source: str
    exists: bool
    rows_folded: int = 0
    changes_waiting: int = 0
    last_commit: float | None = None
    last_fold: float | None = None
    newest_change: float | None = None
    offsets: dict[str, int] | None = None
    lag_records: int | None = None
    problem: str | None = None


def status(pipeline: Pipeline, table: Table) -> Status:
    opened = ChangeTable(table.target, pipeline.rules(table).layout, storage_options=pipeline.storage_options)
    if not opened.exists:
        return Status(table.name, table.target, table.source, exists=False)
    found = snapshot(table.target, pipeline.storage_options)
    try:
        partitions, problem = spans(pipeline.bootstrap, table.source, pipeline.isolation(), timeout_ms=5_000), None
    except (ClientError, OSError) as error:
        partitions, problem = {}, str(error)
    known = opened.offsets([(table.source, partition) for partition in partitions])
    newest = _newest_change(found.changes)
    return Status(
        table=table.name,
        target=table.target,
        source=table.source,
        exists=True,
        rows_folded=opened.base_rows(),
        changes_waiting=opened.open_rows(),
        last_commit=_last_commit(found.changes),
        last_fold=_last_commit(found.base),
        newest_change=None if newest is None else newest.timestamp(),
        offsets={f"{topic}/{partition}": offset for (topic, partition), offset in known.items()},
        lag_records=None if problem else lag_records(table.source, partitions, known),
        problem=problem,
    )


def _newest_change(changes: PlainTable) -> datetime | None:
    """Batch by batch and of one column: what waits may be large."""
    batches = changes.dataset().scanner(columns=["_commit_time"]).to_batches()
    newest = [pc.max(batch.column(0)) for batch in batches]
    return pc.max(pa.array(newest)).as_py() if newest else None


def _last_commit(table: object) -> float | None:
    history = table.history(1)  # type: ignore[attr-defined]
    return history[0]["timestamp"] / 1000 if history else None


def ago(moment: float | None) -> str:
    """A time in words, for people."""
    if moment is None:
        return "-"
    seconds = max(time.time() - moment, 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit} ago"
    return f"{seconds:.1f} s ago"
