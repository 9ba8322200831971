"""Changes applied to rows, in Arrow: per key the last change by position wins; or every version, with from and to.

A change is a row with `_deleted` and `_position`. With equal positions an upsert beats a delete: a source that numbers
statements gives `UPDATE t SET id = id + 1` one position, and each id but the first is freed and taken by it.

A change without a key is a truncate: it deletes every row of a lower position, also those that come later.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipelines.tables.columns import column_of, spark_type
from ottla.pipelines.tables.event import to_json

START = "__START_AT"
END = "__END_AT"
FROM = "_from"
TO = "_to"
# Versions that differ only in columns whose history is not kept are one row; this holds what they were, as JSON, for a
# change that comes late and belongs between them.
COLLAPSED = "_collapsed"

HISTORY_FIELDS = [
    pa.field(START, pa.string()),
    pa.field(END, pa.string()),
    pa.field(FROM, pa.timestamp("us", tz="UTC")),
    pa.field(TO, pa.timestamp("us", tz="UTC")),
    pa.field(COLLAPSED, pa.string()),
]


def latest(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The winning change of each key."""
    return _last_of(changes, list(keys))


def distinct(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Each change of each key once: for a history."""
    return _last_of(changes, [*keys, "_position"])


def _last_of(changes: pa.Table, group: list[str]) -> pa.Table:
    if changes.num_rows < 2:
        return changes
    numbered = changes.select(group).append_column("_row", pa.array(np.arange(changes.num_rows)))
    groups = numbered.group_by(group).aggregate([("_row", "max"), ("_row", "count")])
    if groups.num_rows == changes.num_rows:
        return changes
    # Of keys that come once there is nothing to sort, and with keys at random those are nearly all.
    alone = groups.filter(pc.equal(groups["_row_count"], 1))["_row_max"].combine_chunks()
    several = changes.filter(pa.array(_mask_without(changes.num_rows, alone.to_numpy())))
    return pa.concat_tables([changes.take(alone), _last_of_sorted(several, group)])


def _last_of_sorted(changes: pa.Table, group: list[str]) -> pa.Table:
    ordered = changes.sort_by([("_position", "ascending"), ("_deleted", "descending")])
    numbered = ordered.select(group).append_column("_row", pa.array(np.arange(ordered.num_rows)))
    last = numbered.group_by(group).aggregate([("_row", "max")])["_row_max"]
    return ordered.take(last.combine_chunks())


def truncations(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    return changes.filter(pc.is_null(changes[keys[0]]))


def without_truncated(rows: pa.Table, changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows that no truncate among the changes deletes; truncates themselves are not among them."""
    last = pc.max(truncations(changes, keys)["_position"]).as_py()
    if last is None:
        return rows
    return rows.filter(pc.and_(pc.greater_equal(rows["_position"], last), pc.is_valid(rows[keys[0]])))


def applied(base: pa.Table, changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows of `base` with `changes` applied, one of a key at most, in the columns of `base`."""
    base, changes = (without_truncated(rows, changes, keys) for rows in (base, changes))
    beaten, outdated = _matches(base, changes, keys)
    kept = base.filter(pa.array(_mask_without(base.num_rows, beaten)))
    upserts = changes.filter(pa.array(_mask_without(changes.num_rows, outdated)))
    upserts = upserts.filter(pc.invert(upserts["_deleted"]))
    return pa.concat_tables([kept, fitted(upserts, base.schema)])


def _matches(base: pa.Table, changes: pa.Table, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of `base` a change beats, and which changes come too late."""
    left = base.select([*keys, "_position"]).append_column("_base", pa.array(np.arange(base.num_rows)))
    right = changes.select([*keys, "_position"]).rename_columns([*keys, "_new"])
    right = right.append_column("_change", pa.array(np.arange(changes.num_rows)))
    both = left.join(right, list(keys), join_type="inner")
    wins = pc.greater(both["_new"], both["_position"])
    return both.filter(wins)["_base"].to_numpy(), both.filter(pc.invert(wins))["_change"].to_numpy()


def _mask_without(length: int, indices: np.ndarray) -> np.ndarray:
    mask = np.ones(length, dtype=bool)
    mask[indices] = False
    return mask


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in the columns of a schema: cast, in its order, null where it has none."""
    columns = []
    for wanted in schema:
        at = table.schema.get_field_index(wanted.name)
        found = pa.nulls(table.num_rows, wanted.type) if at < 0 else table.column(at)
        columns.append(found if found.type == wanted.type else found.cast(wanted.type))
    return pa.table(columns, schema=schema)


def history(base: pa.Table, changes: pa.Table, keys: Sequence[str], tracked: Sequence[str] | None) -> pa.Table:
    """The versions of `base` with `changes` put among them, in the columns of `base`."""
    names = [*keys]
    ends = [_Event(row["_position"], True, row["_commit_time"], {}) for row in truncations(changes, names).to_pylist()]
    changes = changes.filter(pc.is_valid(changes[names[0]]))
    asked = pa.concat_tables([changes.select(names), _truncated_versions(base, ends).select(names)])
    asked = asked.group_by(names).aggregate([])
    numbered = base.select(names).append_column("_base", pa.array(np.arange(base.num_rows)))
    touched = numbered.join(asked, names, join_type="inner")["_base"].to_numpy()
    kept = base.filter(pa.array(_mask_without(base.num_rows, touched)))
    old = base.take(pa.array(touched))
    data = data_columns(base.schema)
    events: dict[tuple[Any, ...], list[_Event]] = defaultdict(lambda: list(ends))
    for row in old.to_pylist():
        events[_key(row, names)] += _events_of_version(row, data, base.schema)
    for row in changes.to_pylist():
        change = _Event(row["_position"], row["_deleted"], row["_commit_time"], {name: row.get(name) for name in data})
        events[_key(row, names)].append(change)
    places = [row for rows in (old, changes) for row in rows.select([*names, "_bucket"]).to_pylist()]
    bucket_of = {_key(row, names): row["_bucket"] for row in places}
    rows = [
        version | {"_bucket": bucket_of[key]} for key, found in events.items() for version in _versions(found, tracked)
    ]
    return pa.concat_tables([kept, pa.Table.from_pylist(rows, schema=base.schema)])


def _truncated_versions(base: pa.Table, ends: Sequence[_Event]) -> pa.Table:
    """Those that begin before a truncate and do not end before it."""
    found = pa.array(np.zeros(base.num_rows, dtype=bool))
    for end in ends:
        goes_on = pc.or_kleene(pc.is_null(base[END]), pc.greater(base[END], end.position))
        found = pc.or_(found, pc.and_(pc.less(base[START], end.position), goes_on))
    return base.filter(found)


def data_columns(schema: pa.Schema) -> list[str]:
    """The columns of the source's table: all that are not ours."""
    return [name for name in schema.names if not name.startswith("_")]


class _Event:
    __slots__ = ("data", "is_deleted", "position", "time")

    def __init__(self, position: str, is_deleted: bool, time: Any, data: dict[str, Any]) -> None:
        self.position, self.is_deleted, self.time, self.data = position, is_deleted, time, data


def _key(row: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _events_of_version(row: dict[str, Any], data: Sequence[str], schema: pa.Schema) -> Iterable[_Event]:
    """The changes that made a version what it is. An end that is another's start yields a delete that loses to it."""
    own = {name: row[name] for name in data}
    events = [_Event(position, False, time, own | values) for position, time, values in _expanded(row, schema)]
    if not events:
        events = [_Event(row[START], False, row[FROM], own)]
    if row[END] is not None:
        events.append(_Event(row[END], True, row[TO], {}))
    return events


def _versions(events: Iterable[_Event], tracked: Sequence[str] | None) -> list[dict[str, Any]]:
    ordered: list[_Event] = []
    for event in sorted(events, key=lambda event: (event.position, not event.is_deleted)):
        if ordered and ordered[-1].position == event.position:
            ordered.pop()  # the same change again, or a delete that an upsert of the same position beats
        ordered.append(event)
    runs: list[list[_Event]] = []
    ends: list[_Event | None] = []
    for event in ordered:
        if runs and ends[-1] is None:
            if not event.is_deleted and tracked is not None and _same(runs[-1][-1], event, tracked):
                runs[-1].append(event)
                continue
            ends[-1] = event
        if not event.is_deleted:
            runs.append([event])
            ends.append(None)
    return [_version(run, end) for run, end in zip(runs, ends, strict=True)]


def _same(one: _Event, other: _Event, tracked: Sequence[str]) -> bool:
    return all(one.data.get(name) == other.data.get(name) for name in tracked)


def _version(run: list[_Event], end: _Event | None) -> dict[str, Any]:
    places = {START: run[0].position, FROM: run[0].time, END: end and end.position, TO: end and end.time}
    return run[-1].data | places | {COLLAPSED: _collapsed(run)}


def _collapsed(run: list[_Event]) -> str | None:
    if len(run) == 1:
        return None
    return to_json([[event.position, event.time, event.data] for event in run]).decode()


def _expanded(row: dict[str, Any], schema: pa.Schema) -> Iterable[tuple[str, Any, dict[str, Any]]]:
    for position, time, values in json.loads(row[COLLAPSED] or "[]"):
        data = {
            name: column_of([value], spark_type(schema.field(name).type)).to_pylist()[0]
            for name, value in values.items()
        }
        yield position, column_of([time], "timestamp").to_pylist()[0], data
