"""Tables against a model: whatever order, batches, folds, crashes and repeats."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from ottla.pipelines.tables import table as table_module
from ottla.pipelines.tables.layout import Layout, TableRefused, changes_path
from ottla.pipelines.tables.plain_table import PlainTable, read_plain
from ottla.pipelines.tables.position import decode_position
from ottla.pipelines.tables.read import read_arrow
from ottla.pipelines.tables.table import ChangeTable, WriterFenced
from tests.pipelines.tables.model import Change, current, disturbed, random_changes, rows_of, versions

COLUMNS = {"id": "bigint", "value": "string", "note": "string"}
BUCKETS = 3
LAYOUT = Layout(("id",), 1, BUCKETS)


def made(path: Path, layout: Layout = LAYOUT) -> ChangeTable:
    table = ChangeTable(str(path), layout)
    table.create(COLUMNS)
    return table


def rows_in(path: Path) -> dict[int, tuple[str, str]]:
    rows = read_arrow(str(path)).to_pylist()
    found = {row["id"]: (row["value"], row["note"]) for row in rows}
    assert len(found) == len(rows)
    return found


def versions_in(path: Path) -> set[tuple[Any, ...]]:
    rows = read_arrow(str(path)).to_pylist()
    found = {
        (row["id"], row["value"], row["note"], _number(row["__START_AT"]), _number(row["__END_AT"])) for row in rows
    }
    assert len(found) == len(rows)
    return found


def _number(position: str | None) -> int | None:
    return None if position is None else int(decode_position(position)[0])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["rows", "versions", "some columns"])
def test_it_is_what_the_model_is_after_every_step(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches out of order and with repeats; folds that go on step by step, and processes that end between steps."""
    monkeypatch.setattr(table_module, "STEP_ROWS", 10)
    chance = random.Random(seed)
    layout = Layout(("id",), 1 if kind == "rows" else 2, BUCKETS, ("value",) if kind == "some columns" else None)
    table = made(tmp_path / "t", layout)
    applied: list[Change] = []
    truncates = 0.03 if seed % 2 else 0.0
    for batch in disturbed(chance, random_changes(chance, 200, truncates=truncates), 25):
        table.append_rows(rows_of(batch, BUCKETS), {("topic", 0): len(applied)})
        applied += batch
        for _ in range(chance.randrange(4)):
            chance.choice([table.begin_fold, table.fold_step])()
        if chance.random() < 0.3:
            table = ChangeTable(str(tmp_path / "t"), layout)
        if kind == "rows":
            assert rows_in(tmp_path / "t") == current(applied)
        else:
            assert versions_in(tmp_path / "t") == versions(applied, tracks_note=kind == "versions")
    table.fold()
    plain = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset().to_table()
    assert plain.num_rows == read_arrow(str(tmp_path / "t")).num_rows
    table.clean(0)
    if kind == "rows":
        assert rows_in(tmp_path / "t") == current(applied)
        assert {row["id"]: (row["value"], row["note"]) for row in plain.to_pylist()} == current(applied)


def test_a_late_change_after_a_delete_and_a_fold_does_no_harm(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.append_rows(rows_of([Change(1, 5, "new"), Change(2, 5, "new")], BUCKETS), {})
    table.append_rows(rows_of([Change(1, 9, None)], BUCKETS), {})
    table.fold()
    ChangeTable(str(tmp_path / "t"), LAYOUT).append_rows(
        rows_of([Change(1, 7, "late"), Change(2, 3, "late")], BUCKETS), {}
    )
    assert rows_in(tmp_path / "t") == {2: ("new", "")}
    table = ChangeTable(str(tmp_path / "t"), LAYOUT)
    table.fold()
    assert rows_in(tmp_path / "t") == {2: ("new", "")}


def tombstones_in(path: Path) -> list[int | None]:
    rows = DeltaTable(changes_path(str(path))).to_pyarrow_dataset().to_table().to_pylist()
    assert all(row["_deleted"] for row in rows)
    return sorted((row["id"] for row in rows), key=str)


def test_tombstones_go_when_their_time_is_over(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    now = 1_000_000.0
    for key in range(5):
        table.append_rows(rows_of([Change(key, 5, "x"), Change(key, 9, None)], BUCKETS), {("t", 0): key})
        table.fold()
        assert table.expire_tombstones(16, now) == 0
        now += 3600 if key == 2 else 60
    assert tombstones_in(tmp_path / "t") == [0, 1, 2, 3, 4]
    # Those of one slot of time are one generation by now, and late changes still find them.
    assert len(table._rows_by(DeltaTable(changes_path(str(tmp_path / "t"))), "_generation")) < 5
    table.append_rows(rows_of([Change(1, 7, "late")], BUCKETS), {})
    assert rows_in(tmp_path / "t") == {}
    table.fold()
    assert rows_in(tmp_path / "t") == {}
    table = ChangeTable(str(tmp_path / "t"), LAYOUT)
    assert table.expire_tombstones(16, now + 15.5 * 3600) == 3
    assert tombstones_in(tmp_path / "t") == [3, 4]
    assert table.expire_tombstones(16, now + 17 * 3600) == 2
    assert table.offsets([("t", 0)]) == {("t", 0): 4}
    table.append_rows(rows_of([Change(1, 7, "too late")], BUCKETS), {})
    assert rows_in(tmp_path / "t") == {1: ("too late", "")}


def test_changes_that_wait_are_not_taken_for_tombstones(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.append_rows(rows_of([Change(1, 1, "x"), Change(2, 2, None)], BUCKETS), {})
    for _ in range(3):
        assert table.expire_tombstones(0, 1e9) == 0
    assert rows_in(tmp_path / "t") == {1: ("x", "")}


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_truncate_clears_the_table_for_whatever_comes_late(scd_type: int, tmp_path: Path) -> None:
    layout = Layout(("id",), scd_type, BUCKETS)
    table = made(tmp_path / "t", layout)
    changes = [Change(key, key + 1, "old") for key in range(9)]
    table.append_rows(rows_of(changes, BUCKETS), {})
    table.fold()
    for change in (Change(None, 20, None), Change(3, 20, "same"), Change(4, 7, "late"), Change(5, 21, "new")):
        table.append_rows(rows_of([change], BUCKETS), {})
        changes.append(change)
        if scd_type == 1:
            assert rows_in(tmp_path / "t") == current([c for c in changes if c.position >= 20 or len(changes) == 9])
    table.fold()
    plain = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset().to_table()
    if scd_type == 2:
        plain = plain.filter(pc.is_null(plain["__END_AT"]))
    assert sorted(plain["id"].to_pylist()) == [3, 5]
    table.append_rows(rows_of([Change(8, 19, "late")], BUCKETS), {})
    table.fold()
    rows = read_arrow(str(tmp_path / "t"))
    if scd_type == 2:
        rows = rows.filter(pc.is_null(rows["__END_AT"]))
    assert sorted(rows["id"].to_pylist()) == [3, 5]


def test_an_upsert_beats_a_delete_of_the_same_position(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.append_rows(rows_of([Change(1, 5, "stays"), Change(1, 5, None)], BUCKETS), {})
    assert rows_in(tmp_path / "t") == {1: ("stays", "")}
    table.fold()
    table.append_rows(rows_of([Change(1, 5, None)], BUCKETS), {})
    assert rows_in(tmp_path / "t") == {1: ("stays", "")}


def test_offsets_come_with_the_data_and_survive_folds(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    places = [("a", 0), ("a", 1), ("b", 0)]
    assert table.offsets(places) == {}
    table.append_rows(rows_of([Change(1, 1, "x")], BUCKETS), {("a", 0): 41, ("a", 1): 7})
    table.append_rows(rows_of([Change(1, 2, "y")], BUCKETS), {("a", 0): 42})
    table.fold()
    table.clean(0)
    assert ChangeTable(str(tmp_path / "t"), LAYOUT).offsets(places) == {("a", 0): 42, ("a", 1): 7}


def test_the_slower_of_two_writers_is_fenced(tmp_path: Path) -> None:
    made(tmp_path / "t")
    old, new = (ChangeTable(str(tmp_path / "t"), LAYOUT) for _ in range(2))
    new.append_rows(rows_of([Change(1, 1, "x")], BUCKETS), {("a", 0): 5})
    with pytest.raises(WriterFenced):
        old.append_rows(rows_of([Change(1, 1, "x")], BUCKETS), {("a", 0): 5})
    assert DeltaTable(changes_path(str(tmp_path / "t"))).to_pyarrow_dataset().to_table().num_rows == 1


def test_a_writer_that_does_not_know_of_a_fold_is_fenced(tmp_path: Path) -> None:
    """Else what it appends to the closed generation would be trimmed, and never folded."""
    made(tmp_path / "t").append_rows(rows_of([Change(1, 1, "x")], BUCKETS), {})
    old, new = (ChangeTable(str(tmp_path / "t"), LAYOUT) for _ in range(2))
    assert new.begin_fold()
    with pytest.raises(WriterFenced):
        old.append_rows(rows_of([Change(2, 1, "y")], BUCKETS), {})
    new.fold()
    assert rows_in(tmp_path / "t") == {1: ("x", "")}


def test_columns_are_added_and_widened_in_both_parts(tmp_path: Path) -> None:
    layout = Layout(("id",), 1, BUCKETS)
    table = ChangeTable(str(tmp_path / "t"), layout)
    table.create({"id": "int", "value": "string", "note": "string"})
    assert table.columns()["id"] == "int"

    def rows(changes: list[Change], kind: pa.DataType, extra: bool) -> pa.Table:
        found = rows_of(changes, BUCKETS)
        found = found.set_column(0, "id", found["id"].cast(kind))
        return found.append_column("age", pa.array([7] * found.num_rows, pa.int32())) if extra else found

    table.append_rows(rows([Change(1, 1, "a"), Change(2, 1, "b")], pa.int32(), False), {("t", 0): 1})
    table.fold()
    table.append_rows(rows([Change(2, 2, None)], pa.int32(), False), {("t", 0): 2})
    table.create({"id": "bigint", "value": "string", "note": "string", "age": "int"})
    assert table.columns() == {"id": "bigint", "value": "string", "note": "string", "age": "int"}
    table.append_rows(rows([Change(2**40, 3, "c")], pa.int64(), True), {("t", 0): 3})
    for _ in range(2):
        found = {row["id"]: row["age"] for row in read_arrow(str(tmp_path / "t")).to_pylist()}
        assert found == {1: None, 2**40: 7}
        table.fold()
    again = ChangeTable(str(tmp_path / "t"), layout)
    assert again.offsets([("t", 0)]) == {("t", 0): 3}
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset().to_table().num_rows == 2


def test_what_was_fixed_cannot_change_and_a_strangers_table_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "t")
    with pytest.raises(TableRefused, match="keys"):
        ChangeTable(str(tmp_path / "t"), Layout(("other",), 1, BUCKETS))
    with pytest.raises(TableRefused, match="scd_type"):
        ChangeTable(str(tmp_path / "t"), Layout(("id",), 2, BUCKETS))
    DeltaTable.create(str(tmp_path / "s"), pa.schema([("id", pa.int64())]))
    with pytest.raises(TableRefused, match="not made by"):
        ChangeTable(str(tmp_path / "s"), LAYOUT)
    with pytest.raises(TableRefused, match="no table"):
        read_arrow(str(tmp_path / "nowhere"))


def test_a_reader_between_fold_and_trim_sees_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "STEP_ROWS", 1)
    table = made(tmp_path / "t")
    changes = random_changes(random.Random(5), 100)
    table.append_rows(rows_of(changes, BUCKETS), {})
    assert table.begin_fold()
    while table.fold_step():
        assert rows_in(tmp_path / "t") == current(changes)
    assert rows_in(tmp_path / "t") == current(changes)


def test_a_table_is_replaced_whole_by_another(tmp_path: Path) -> None:
    table, fresh = made(tmp_path / "t"), made(tmp_path / "fresh")
    table.append_rows(rows_of([Change(1, 9, "wrong"), Change(3, 9, "wrong")], BUCKETS), {("t", 0): 9})
    fresh.append_rows(rows_of([Change(1, 1, "right"), Change(2, 2, None)], BUCKETS), {("t", 0): 4})
    fresh.fold()
    table.replace_with(fresh)
    for opened in (table, ChangeTable(str(tmp_path / "t"), LAYOUT)):
        assert rows_in(tmp_path / "t") == {1: ("right", "")}
        assert opened.offsets([("t", 0)]) == {("t", 0): 4}
    opened.append_rows(rows_of([Change(2, 1, "late"), Change(5, 3, "new")], BUCKETS), {("t", 0): 5})
    assert rows_in(tmp_path / "t") == {1: ("right", ""), 5: ("new", "")}
    opened.fold()
    assert rows_in(tmp_path / "t") == {1: ("right", ""), 5: ("new", "")}


def test_files_that_are_elsewhere_are_read_before_arrow_looks_at_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread of Arrow's may come back to Python: it would end the process with it."""
    table = made(tmp_path / "t")
    table.append_rows(rows_of([Change(key, 1, "a") for key in range(30)], BUCKETS), {("topic", 0): 1})
    table.fold()
    plain = PlainTable(str(tmp_path / "t"))
    here = read_plain(plain, pc.field("_bucket") == 1)
    monkeypatch.setattr(PlainTable, "table_uri", "hdfs://somewhere/t")
    elsewhere = plain.dataset(pc.field("_bucket") == 1)
    assert len(list(elsewhere.get_fragments())) == 1
    assert all(fragment.buffer is not None for fragment in elsewhere.get_fragments())
    assert read_plain(plain, pc.field("_bucket") == 1).equals(here)
    assert 0 < here.num_rows < 30


def test_an_app_transaction_is_looked_up_once_for_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    look_up = DeltaTable.transaction_version

    def counted(table: DeltaTable, name: str) -> int | None:
        asked.append(name)
        return look_up(table, name)

    monkeypatch.setattr(DeltaTable, "transaction_version", counted)
    table = made(tmp_path / "t")
    for offset in (1, 2):
        table.append_rows(rows_of([Change(1, offset, "a")], BUCKETS), {("topic", 0): offset})
        asked.clear()
        assert [table.offsets([("topic", 0)]) for _ in range(3)] == [{("topic", 0): offset}] * 3
        assert len(asked) == 1
