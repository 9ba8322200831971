"""A table compared with its source: counts and checksums by range of keys, and the rows that differ by name."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ottla.pipelines.tables import verify
from ottla.pipelines.tables.columns import arrow_type
from ottla.pipelines.tables.layout import Layout, TableRefused
from ottla.pipelines.tables.plain_table import arrow_schema
from ottla.pipelines.tables.position import encode_position
from ottla.pipelines.tables.table import ChangeTable
from ottla.pipelines.tables.verify import Difference, compare, verify_rows, verify_sqlite, verify_tables
from tests.pipelines.tables.model import Change, rows_of

COLUMNS = {"id": "bigint", "name": "string", "sum": "decimal(10,2)"}


def table_of(path: Path, rows: list[tuple[Any, ...]], keys: tuple[str, ...] = ("id",), scd_type: int = 1) -> str:
    table = ChangeTable(str(path), Layout(keys, scd_type, 2))
    table.create(COLUMNS)
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    arrays = {
        name: pa.array(values).cast(arrow_type(COLUMNS[name])) if name == "sum" else pa.array(values)
        for name, values in columns.items()
    }
    count = len(rows)
    changes = pa.table(
        arrays
        | {
            "_deleted": pa.array([False] * count),
            "_position": pa.array([encode_position(1)] * count),
            "_commit_time": pa.nulls(count, pa.timestamp("us", tz="UTC")),
            "_bucket": pa.array([number % 2 for number in range(count)], pa.int32()),
        }
    )
    table.append_rows(changes, {})
    return str(path)


def database_of(path: Path, rows: list[tuple[Any, ...]]) -> str:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE shop (id INTEGER, name TEXT COLLATE NOCASE, sum TEXT, other TEXT)")
        database.executemany("INSERT INTO shop (id, name, sum) VALUES (?, ?, ?)", rows)
    database.close()
    return f"{path}:shop"


ROWS = [(number, f"name {number}", f"{number}.50") for number in range(25)]


def test_a_zero_with_a_sign_is_the_row_of_the_other(tmp_path: Path) -> None:
    table = ChangeTable(str(tmp_path / "t"), Layout(("id",), 1, 2))
    table.create({"id": "double"})
    change = {"_deleted": [False], "_position": [encode_position(1)], "_bucket": pa.array([0], pa.int32())}
    change["_commit_time"] = pa.nulls(1, pa.timestamp("us", tz="UTC"))
    table.append_rows(pa.table({"id": [0.0], **change}), {})
    assert verify_rows(str(tmp_path / "t"), [{"id": -0.0}], "source").is_equal


def test_the_rows_that_differ_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "RANGE_ROWS", 10)
    wrong = [row for row in ROWS if row[0] != 3] + [(99, "more", "1.00"), (-1, "less", "1.00")]
    wrong[12] = (13, "name 13", "13.49")
    report = verify_sqlite(table_of(tmp_path / "t", wrong), database_of(tmp_path / "shop.db", ROWS))
    assert not report.is_equal
    assert [str(difference) for difference in report.differences] == [
        "3: missing in the table",
        "-1: unexpected in the table",
        "13: sum is Decimal('13.49'), not Decimal('13.50')",
        "99: unexpected in the table",
    ]
    assert [found.is_equal for found in report.ranges] == [False, False, False]
    assert [found.last_key for found in report.ranges] == [(9,), (19,), None]
    assert (report.source_rows, report.table_rows, report.differences_count) == (25, 26, 4)


def test_only_the_range_with_the_difference_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "RANGE_ROWS", 10)
    expected = table_of(tmp_path / "expected", ROWS)
    other = [(*row[:2], "0.00") if row[0] == 14 else row for row in ROWS]
    assert verify_tables(expected, table_of(tmp_path / "same", ROWS)).is_equal
    report = verify_tables(expected, table_of(tmp_path / "other", other))
    assert [found.is_equal for found in report.ranges] == [True, False, True]
    assert [difference.key for difference in report.differences] == [(14,)]


@pytest.mark.parametrize("keys", [("sum",), ("name",), ("name", "id")])
def test_the_order_of_the_database_does_not_matter(
    keys: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has decimals as texts, and a column may have an order of its own."""
    monkeypatch.setattr(verify, "RANGE_ROWS", 2)
    rows = [(1, "b", "9.00"), (2, "A", "10.00"), (3, "C", "100.00"), (4, "é", "1.00"), (5, "a", "20.00")]
    assert verify_sqlite(table_of(tmp_path / "t", rows, keys), database_of(tmp_path / "shop.db", rows)).is_equal


def test_of_a_history_what_is_valid_now_is_compared(tmp_path: Path) -> None:
    path = table_of(tmp_path / "t", ROWS, scd_type=2)
    assert verify_sqlite(path, database_of(tmp_path / "shop.db", ROWS)).is_equal


def test_what_cannot_be_compared_is_told(tmp_path: Path) -> None:
    path = table_of(tmp_path / "t", ROWS)
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE shop (id INTEGER, name TEXT)")
    database.close()
    for against, says in {
        f"{tmp_path}/shop.db:shop": "no such column: sum",
        f"{tmp_path}/shop.db:other": "no such table: other",
        f"{tmp_path}/none.db:shop": "unable to open database file",
        "shop": "FILE:TABLE",
    }.items():
        with pytest.raises(TableRefused, match=says):
            verify_sqlite(path, against)


def test_no_more_rows_are_named_than_anyone_reads(tmp_path: Path) -> None:
    rows = [(number, "x", "1.00") for number in range(50)]
    report = verify_sqlite(table_of(tmp_path / "t", rows[:1]), database_of(tmp_path / "shop.db", rows))
    assert (len(report.differences), report.differences_count) == (verify.NAMED_ROWS, 49)
    assert report.differences[0] == Difference("missing", (1,))


def remove_a_row(path: str) -> None:
    DeltaTable(path).delete("id = 7")


def double_a_row(path: str) -> None:
    _write(path, [row for row in _rows(path) if row["id"] == 7])


def change_a_row(path: str) -> None:
    _overwrite(path, [row | {"name": "other"} if row["id"] == 7 else row for row in _rows(path)])


def lose_a_key(path: str) -> None:
    _write(path, [row | {"id": None} for row in _rows(path)[:1]])


def remove_a_file(path: str) -> None:
    next(Path(path).rglob("*.parquet")).unlink()


def cut_a_file(path: str) -> None:
    file = next(Path(path).rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def spoil_the_log(path: str) -> None:
    max((Path(path) / "_delta_log").glob("*.json")).write_text('{"add": ')


def _rows(path: str) -> list[dict[str, Any]]:
    return pa.table(DeltaTable(path).to_pyarrow_table()).to_pylist()  # type: ignore[no-any-return]


def _write(path: str, rows: list[dict[str, Any]], mode: Any = "append") -> None:
    schema = arrow_schema(DeltaTable(path))
    write_deltalake(path, pa.Table.from_pylist(rows, schema), mode=mode)


def _overwrite(path: str, rows: list[dict[str, Any]]) -> None:
    _write(path, rows, "overwrite")


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (remove_a_row, ["7: missing in the table"]),
        (double_a_row, ["7: doubled in the table"]),
        (change_a_row, ["7: name is 'other', not 'name 7'"]),
        (lose_a_key, ["None: unexpected in the table"]),
        (remove_a_file, "cannot be read"),
        (cut_a_file, "cannot be read"),
        (spoil_the_log, "cannot be read"),
    ],
)
def test_a_table_that_was_damaged_is_found(
    damage: Callable[[str], None], found: list[str] | str, tmp_path: Path
) -> None:
    path, against = table_of(tmp_path / "t", ROWS), database_of(tmp_path / "shop.db", ROWS)
    ChangeTable(path, Layout(("id",), 1, 2)).fold()
    assert verify_sqlite(path, against).is_equal
    damage(path)
    if isinstance(found, str):
        with pytest.raises(TableRefused, match=found):
            verify_sqlite(path, against)
        return
    report = verify_sqlite(path, against)
    assert not report.is_equal
    assert [str(difference) for difference in report.differences] == found


def test_a_version_that_is_over_is_compared_too(tmp_path: Path) -> None:
    """A table in SQLite knows only what is valid now; the topic has everything."""
    layout = Layout(("id",), 2, 2)
    paths = [table_of(tmp_path / name, ROWS, scd_type=2) for name in ("expected", "t")]
    for path in paths:
        table = ChangeTable(path, layout)
        second = rows_of([Change(7, 5, "b")], 2).drop_columns(["value", "note"])
        table.append_rows(second, {})
        table.fold()
    assert verify_tables(paths[0], paths[1]).is_equal
    rows = _rows(paths[1])
    _overwrite(paths[1], [row | {"name": "other"} if row["id"] == 7 and row["__END_AT"] else row for row in rows])
    (difference,) = verify_tables(paths[0], paths[1]).differences
    assert (difference.key, difference.columns) == ((7, encode_position(1)), {"name": ("name 7", "other")})


def test_what_is_not_a_number_equals_itself() -> None:
    source = pa.table({"id": [1, 2], "x": [float("nan"), 1.0]})
    assert compare([source], source, ["id"]).is_equal
    (difference,) = compare([source], pa.table({"id": [1, 2], "x": [float("nan"), -1.0]}), ["id"]).differences
    assert difference.key == (2,)
