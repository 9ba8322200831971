"""What tables of changes should be, in plain Python; and changes at random."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa

from ottla.pipelines.tables.layout import bucket_of
from ottla.pipelines.tables.position import encode_position


@dataclass(frozen=True)
class Change:
    """Without a key it is a truncate."""

    key: int | None
    position: int
    value: str | None
    note: str = ""

    @property
    def is_deleted(self) -> bool:
        return self.value is None


def random_changes(random_: random.Random, count: int, keys: int = 30, truncates: float = 0.0) -> list[Change]:
    changes = []
    for position in range(1, count + 1):
        if random_.random() < truncates:
            changes.append(Change(None, position, None))
            continue
        value = None if random_.random() < 0.3 else random_.choice("abc")
        changes.append(Change(random_.randrange(keys), position, value, f"note {position}"))
    return changes


def disturbed(random_: random.Random, changes: list[Change], size: int) -> list[list[Change]]:
    """In batches, out of order, some of them twice."""
    order = sorted(changes, key=lambda change: change.position + random_.randrange(3 * size))
    order += random_.sample(order, len(order) // 5)
    return [order[begin : begin + size] for begin in range(0, len(order), size)]


def rows_of(changes: list[Change], buckets: int) -> pa.Table:
    """As the decoder gives them."""
    return pa.table(
        {
            "id": pa.array([change.key for change in changes], pa.int64()),
            "value": pa.array([change.value for change in changes], pa.string()),
            "note": pa.array([None if change.is_deleted else change.note for change in changes], pa.string()),
            "_deleted": pa.array([change.is_deleted for change in changes], pa.bool_()),
            "_position": pa.array([encode_position(change.position) for change in changes], pa.string()),
            "_commit_time": pa.array([change.position for change in changes], pa.timestamp("us", tz="UTC")),
            "_bucket": pa.array([bucket_of((change.key,), buckets) for change in changes], pa.int32()),
        }
    )


def current(changes: list[Change]) -> dict[int, tuple[str, str]]:
    """The rows: per key the last change by position."""
    last: dict[int, Change] = {}
    for change in sorted(changes, key=lambda change: change.position):
        if change.key is None:
            last.clear()
        else:
            last[change.key] = change
    return {key: (change.value, change.note) for key, change in last.items() if change.value is not None}


def versions(changes: list[Change], *, tracks_note: bool = True) -> set[tuple[int, str, str, int, int | None]]:
    """The history: key, value, note, from, to. Without the note's history, runs of one value are one version."""
    of_key: dict[int, list[Change]] = defaultdict(list)
    truncates = [change for change in set(changes) if change.key is None]
    for change in set(changes):
        if change.key is not None:
            of_key[change.key].append(change)
    found: set[tuple[int, str, str, int, int | None]] = set()
    for key, row in of_key.items():
        start: Change | None = None
        last: Change | None = None
        for change in sorted([*row, *truncates], key=lambda change: change.position):
            if last is not None and not tracks_note and change.value == last.value:
                last = change
                continue
            if start is not None and last is not None and last.value is not None:
                found.add((key, last.value, last.note, start.position, change.position))
            start = last = None if change.is_deleted else change
        if start is not None and last is not None and last.value is not None:
            found.add((key, last.value, last.note, start.position, None))
    return found
