"""Reading a table of changes whole: the plain table and the changes since its last fold, as of one moment."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from ottla.pipelines.tables.layout import (
    BUCKET,
    FOLDED,
    Layout,
    TableRefused,
    changes_path,
    check_whole,
    folded_through,
    is_half_replaced,
)
from ottla.pipelines.tables.plain_table import PlainTable, arrow_schema, opened, read_plain
from ottla.pipelines.tables.resolve import applied, distinct, fitted, history, latest
from ottla.pipelines.tables.table import layout_of

_ATTEMPTS = 50
_PAUSE_SECONDS = 0.1
HIDDEN = ("_position", "_collapsed", BUCKET)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of the plain table, and a version of the changes that holds all that the other lacks."""

    layout: Layout
    base: PlainTable
    changes: PlainTable

    def schemas(self) -> tuple[pa.Schema, pa.Schema]:
        return self.layout.read_schemas(arrow_schema(self.base), arrow_schema(self.changes))


def snapshot(path: str, storage_options: Mapping[str, str] | None = None) -> Snapshot:
    """The newest one. What a fold removed from the changes must be in the plain table, else both are read again."""
    storage = dict(storage_options) if storage_options else None
    for _ in range(_ATTEMPTS):
        base, changes = opened(path, storage), opened(changes_path(path), storage)
        if base is None or changes is None:
            raise TableRefused(f"there is no table at {path}")
        layout = layout_of(base)
        if layout is None:
            raise TableRefused(f"{path} is a Delta table that was not made by a pipeline of Ottla")
        if is_half_replaced(changes.transaction_version, base.transaction_version):
            time.sleep(_PAUSE_SECONDS)
            continue
        removed = changes.transaction_version(FOLDED)
        folded = min(folded_through(base.transaction_version, bucket) for bucket in range(layout.buckets))
        if removed is None or folded >= removed:
            return Snapshot(layout, base, changes)
    assert base is not None
    assert changes is not None
    check_whole(path, changes.transaction_version, base.transaction_version)
    raise TableRefused(f"{path} is folded faster than it can be read")


def read_arrow(path: str, *, storage_options: Mapping[str, str] | None = None, is_plain: bool = False) -> pa.Table:
    """The rows as of now, in memory. `is_plain` leaves out the columns that only the table itself needs."""
    found = snapshot(path, storage_options)
    keys, (schema, changes_schema) = found.layout.keys, found.schemas()
    base = fitted(read_plain(found.base), schema)
    changes = fitted(read_plain(found.changes), changes_schema)
    if found.layout.is_history:
        rows = history(base, distinct(changes, keys), keys, found.layout.tracked)
    else:
        rows = applied(base, latest(changes, keys), keys)
    return rows.drop_columns([name for name in HIDDEN if name in rows.column_names]) if is_plain else rows
