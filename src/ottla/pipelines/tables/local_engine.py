"""The engine `deltalake`: the batch comes to this process, and is written from here. For one machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipelines.tables.applier import Outcome, needed_columns
from ottla.pipelines.tables.dead_letters import BadMessage
from ottla.pipelines.tables.layout import Layout
from ottla.pipelines.tables.table import ChangeTable, Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_PLACE = [(name, "ascending") for name in ("_topic", "_partition", "_offset")]


class LocalEngine(ChangeTable):
    def __init__(self, path: str, layout: Layout, storage_options: Mapping[str, str] | None = None) -> None:
        super().__init__(path, layout, storage_options=storage_options)
        self._judged: pa.Table | None = None

    def judge(self, rows: DataFrame) -> Outcome:
        return self.judge_arrow(rows.toArrow())

    def judge_arrow(self, rows: pa.Table) -> Outcome:
        """What is new in the rows, by the offsets that the table has."""
        offsets = _last_offsets(rows)
        rows = _beyond(rows, self.offsets(list(offsets)))
        asking = rows.filter(pc.is_valid(rows["_new_columns"]))
        needed = pc.unique(asking.sort_by(_PLACE)["_new_columns"]).to_pylist()
        if needed:
            return Outcome(needed_columns=needed_columns(needed))
        changes = rows.filter(pc.is_valid(rows["_position"]))
        newest = pc.max(changes["_commit_time"].cast(pa.int64())).as_py()
        self._judged = changes
        return Outcome(
            changes=changes.num_rows,
            bad=_bad_messages(rows),
            offsets=_last_offsets(rows),
            newest_commit_time_ms=None if newest is None else newest // 1000,
        )

    def append(self, outcome: Outcome) -> int:
        rows, self._judged = self._judged, None
        assert rows is not None
        if not self.exists:
            self.create({})
        return self.append_rows(rows, outcome.offsets)


def _last_offsets(rows: pa.Table) -> Offsets:
    places = rows.select(["_topic", "_partition", "_offset"]).filter(pc.is_valid(rows["_topic"]))
    found = places.group_by(["_topic", "_partition"]).aggregate([("_offset", "max")]).to_pylist()
    return {(row["_topic"], row["_partition"]): row["_offset_max"] for row in found}


def _beyond(rows: pa.Table, known: Offsets) -> pa.Table:
    """Without what the table has already."""
    for (topic, partition), offset in known.items():
        here = pc.and_(pc.equal(rows["_topic"], topic), pc.equal(rows["_partition"], partition))
        done = pc.and_(here, pc.less_equal(rows["_offset"], offset))
        rows = rows.filter(pc.invert(pc.fill_null(done, False)))
    return rows


def _bad_messages(rows: pa.Table) -> list[BadMessage]:
    names = ["_topic", "_partition", "_offset", "_message_key", "_message_value", "_error"]
    bad = rows.filter(pc.is_valid(rows["_error"])).select(names)
    found = {tuple(row.values()): None for row in bad.to_pylist()}  # a message may have made two rows
    return [BadMessage(*message) for message in found]
