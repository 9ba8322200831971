"""What is left of deletes that were folded: it keeps changes that come late from bringing a row back.

The tombstones of a fold have its generation. When they are first looked at is written down, and so long after that
they go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ottla.pipelines.tables.layout import GENERATION, Layout
from ottla.pipelines.tables.resolve import distinct, latest, truncations

SLOTS = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """Generations that nobody has looked at, those that are too old, and those that can be one."""

    unseen: list[int]
    expired: list[int]
    alike: list[list[int]]


def plan(seen: Mapping[int, int | None], hours: float, now: int) -> Plan:
    """By when each generation was first seen. Those of one slot of time become one, so that there are few."""
    slots: defaultdict[int, list[int]] = defaultdict(list)
    unseen, expired = [], []
    for generation, moment in sorted(seen.items()):
        if moment is None:
            unseen.append(generation)
        elif moment <= now - hours * 3600:
            expired.append(generation)
        else:
            slots[int(moment * SLOTS // max(hours * 3600, 1))].append(generation)
    return Plan(unseen, expired, [slot for slot in slots.values() if len(slot) > 1])


def tombstones_of(changes: pa.Table, layout: Layout) -> pa.Table:
    """What changes that are folded still mean. Only keys that were deleted need a look."""
    keys = layout.keys
    found = pa.concat_tables([_of_deleted_keys(changes, list(keys)), truncations(changes, keys)])
    found = (distinct if layout.is_history else latest)(found, keys)
    return found.filter(found["_deleted"])


def _of_deleted_keys(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    deleted = changes.filter(changes["_deleted"]).select(keys).group_by(keys).aggregate([])
    numbered = changes.select(keys).append_column("_row", pa.array(np.arange(changes.num_rows)))
    return changes.take(numbered.join(deleted, keys, join_type="inner")["_row"].combine_chunks())


def with_generation(rows: pa.Table, generation: int) -> pa.Table:
    numbers = pa.array(np.full(rows.num_rows, generation, dtype=np.int32))
    kept = rows.drop_columns([GENERATION]) if GENERATION in rows.column_names else rows
    return kept.append_column(GENERATION, numbers)
