"""A process that ends before or after any of its writes: the next one goes on, and nothing is lost or there twice."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from ottla.pipelines.tables import read as read_module
from ottla.pipelines.tables import table as table_module
from ottla.pipelines.tables.layout import Layout, TableRefused
from ottla.pipelines.tables.local_engine import LocalEngine
from ottla.pipelines.tables.read import read_arrow
from ottla.pipelines.tables.table import WriterFenced
from tests.pipelines.tables.model import Change, current, disturbed, random_changes, rows_of, versions
from tests.pipelines.tables.test_table import COLUMNS, rows_in, versions_in

BUCKETS = 3
PLACE = ("topic", 0)
WRITES = ("create", "vacuum", "create_checkpoint", "cleanup_metadata")
EVERY = "OTTLA_TEST_EVERY_WRITE"
"""Set: at every write, not at some."""


class Crash(BaseException):
    """The process is gone."""


class Writes:
    """Counts what writes, and ends the process before or after one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.fatal, self.is_after = 0, -1, False
        monkeypatch.setattr(table_module, "write_deltalake", self._watched(write_deltalake))
        for name in WRITES:
            monkeypatch.setattr(DeltaTable, name, self._watched(getattr(DeltaTable, name)))

    def _watched(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            number, self.count = self.count, self.count + 1
            if number == self.fatal and not self.is_after:
                raise Crash
            done = write(*arguments, **options)
            if number == self.fatal:
                raise Crash
            return done

        return watched


def work(path: Path, layout: Layout, batches: list[list[Change]]) -> Iterator[None]:
    """All batches that the table does not have yet, with folds and cleaning between; it stands still after each."""
    table = LocalEngine(str(path), layout)
    table.create(COLUMNS)
    for number, batch in enumerate(batches):
        if table.offsets([PLACE]).get(PLACE, -1) < number:
            table.append_rows(rows_of(batch, BUCKETS), {PLACE: number})
        yield
        for _ in range(2):
            table.begin_fold()
            table.fold_step()
        if number % 2:
            table.fold()
            table.expire_tombstones(1000, number * 3600)
        if number == 2:
            table.create({**COLUMNS, "more": "int"})
        if number == 3:
            table.create({**COLUMNS, "more": "bigint"})  # rewrites both parts
            table.clean(0)
        yield


def check(path: Path, layout: Layout, changes: list[Change]) -> None:
    if layout.is_history:
        assert versions_in(path) == versions(changes)
    else:
        assert rows_in(path) == current(changes)


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_crash_at_any_write_changes_nothing(scd_type: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "STEP_ROWS", 10)
    layout = Layout(("id",), scd_type, BUCKETS)
    chance = random.Random(scd_type)
    changes = random_changes(chance, 60, keys=12, truncates=0.03)
    batches = disturbed(chance, changes, 18)
    writes = Writes(monkeypatch)
    for _ in work(tmp_path / "whole", layout, batches):
        pass
    check(tmp_path / "whole", layout, changes)
    places = [(number, is_after) for number in range(writes.count) for is_after in (False, True)]
    assert len(places) > 40
    if not os.environ.get(EVERY):
        places = chance.sample(places, 8)
    for number, is_after in places:
        path = tmp_path / f"{number}-{is_after}"
        writes.count, writes.fatal, writes.is_after = 0, number, is_after
        with pytest.raises(Crash):
            for _ in work(path, layout, batches):
                pass
        writes.fatal = -1
        done = offset_in(path, layout)
        if done is not None:
            check(path, layout, [change for batch in batches[: done + 1] for change in batch])
        for _ in work(path, layout, batches):
            pass
        check(path, layout, changes)


def offset_in(path: Path, layout: Layout) -> int | None:
    table = LocalEngine(str(path), layout)
    return table.offsets([PLACE]).get(PLACE, -1) if table.exists else None


def test_a_rebuild_that_is_cut_at_any_write_leaves_the_old_table_or_none_until_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old table is wrong: whoever mixes it with the new one is wrong, too."""
    monkeypatch.setattr(read_module, "_PAUSE_SECONDS", 0)
    layout = Layout(("id",), 1, BUCKETS)
    wrong = [Change(1, 10**6, "wrong"), Change(2, 10**6, None), Change(7, 5, "wrong")]
    right = [Change(1, 1, "a"), Change(2, 2, "b"), Change(3, 3, None)]
    fresh = LocalEngine(str(tmp_path / "fresh"), layout)
    fresh.create(COLUMNS)
    fresh.append_rows(rows_of(right, BUCKETS), {PLACE: 2})
    fresh.fold()
    writes = Writes(monkeypatch)
    found = []
    for number in range(100):
        for is_after in (False, True):
            path = tmp_path / f"{number}-{is_after}"
            old = LocalEngine(str(path), layout)
            old.create(COLUMNS)
            old.append_rows(rows_of(wrong[:1], BUCKETS), {PLACE: 0})
            old.fold()
            old.append_rows(rows_of(wrong[1:], BUCKETS), {PLACE: 7})
            zombie = LocalEngine(str(path), layout)
            writes.count, writes.fatal, writes.is_after = 0, number, is_after
            with contextlib.suppress(Crash):
                LocalEngine(str(path), layout).replace_with(fresh)
            made = writes.count
            writes.fatal = -1
            found.append(state_of(path, layout))
            if found[-1] == "new":
                assert rows_in(path) == current(right)
                with pytest.raises(WriterFenced):
                    zombie.append_rows(rows_of(wrong, BUCKETS), {PLACE: 8})
            elif found[-1] == "old":
                goes_on(path, layout, wrong)
            LocalEngine(str(path), layout).replace_with(fresh)
            assert state_of(path, layout) == "new"
            assert rows_in(path) == current(right)
            again = LocalEngine(str(path), layout)
            again.append_rows(rows_of([Change(3, 2, "late"), Change(4, 4, "d")], BUCKETS), {PLACE: 3})
            again.fold()
            assert rows_in(path) == current([*right, Change(4, 4, "d")])
        if made <= number:
            break
    assert set(found) == {"old", "refused", "new"}


def goes_on(path: Path, layout: Layout, changes: list[Change]) -> None:
    """As if nobody had tried to replace it, in the middle of a fold, too."""
    assert rows_in(path) == current(changes)
    table = LocalEngine(str(path), layout)
    assert table.begin_fold()
    assert table.fold_step()
    assert rows_in(path) == current(changes)
    table.append_rows(rows_of([Change(9, 9, "i")], BUCKETS), {PLACE: 8})
    table.fold()
    assert rows_in(path) == current([*changes, Change(9, 9, "i")])


def state_of(path: Path, layout: Layout) -> str:
    try:
        read_arrow(str(path))
    except TableRefused:
        with pytest.raises(TableRefused, match="was cut"):
            LocalEngine(str(path), layout).append_rows(rows_of([Change(1, 1, "x")], BUCKETS), {PLACE: 9})
        return "refused"
    return {7: "old", 2: "new"}[LocalEngine(str(path), layout).offsets([PLACE])[PLACE]]


class Writer:
    """A driver that does not know of the other: it looks at the table anew only when it is refused."""

    def __init__(self, path: Path, layout: Layout, batches: list[list[Change]]) -> None:
        self._path, self._layout, self._batches = path, layout, batches
        self.refusals = 0
        self._open()

    def _open(self) -> None:
        self._table = LocalEngine(str(self._path), self._layout)
        self._table.create(COLUMNS)

    def do(self, chance: random.Random) -> None:
        actions = [self._append, self._append, self._table.begin_fold, self._table.fold_step, self._table.fold_step]
        actions += [self._expire, self._clean]
        try:
            chance.choice(actions)()
        except (WriterFenced, DeltaError):
            self.refusals += 1
            self._open()

    def _append(self) -> None:
        number = self._table.offsets([PLACE]).get(PLACE, -1) + 1
        if number < len(self._batches):
            self._table.append_rows(rows_of(self._batches[number], BUCKETS), {PLACE: number})

    def _expire(self) -> None:
        if not self._table.is_folding:
            self._table.expire_tombstones(1000, 3600)

    def _clean(self) -> None:
        self._table.clean(24)


@pytest.mark.parametrize("seed", range(6))
def test_two_drivers_at_once_lose_nothing_and_add_nothing(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is a zombie, and neither knows which."""
    monkeypatch.setattr(table_module, "STEP_ROWS", 10)
    chance = random.Random(seed)
    layout = Layout(("id",), 1 + seed % 2, BUCKETS)
    changes = random_changes(chance, 120, keys=12, truncates=0.02)
    batches = disturbed(chance, changes, 8)
    writers = [Writer(tmp_path / "t", layout, batches) for _ in range(2)]
    done: int | None = -1
    while done is not None and done < len(batches) - 1:
        for _ in range(chance.randrange(1, 5)):
            chance.choice(writers).do(chance)
        done = offset_in(tmp_path / "t", layout)
        assert done is not None
        check(tmp_path / "t", layout, [change for batch in batches[: done + 1] for change in batch])
    assert sum(writer.refusals for writer in writers)
    LocalEngine(str(tmp_path / "t"), layout).fold()
    check(tmp_path / "t", layout, changes)
