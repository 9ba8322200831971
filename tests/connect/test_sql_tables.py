"""Tables of SQLite that the sql sink finds, and what it makes of them."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.client.message import Message
from ottla.connect import BadRecord, ConnectorRefused, SinkBatch
from ottla.pipelines.tables.event import ChangeEvent, encode_event
from ottla.records.codec import Record
from tests.connect.test_sinks import make_sql_sink, rows_of
from tests.connect.test_sql_keys import rows_batch


def rows(start: int, *found: dict[str, Any], key: bytes | None = None) -> SinkBatch:
    return rows_batch(*((key, json.dumps(row).encode()) for row in found), start=start)


def prepare(database: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(("keys", "key"), [(["id"], None), (None, b'{"id": 1}')])
def test_keys_that_are_not_unique_are_refused(tmp_path: Path, keys: list[str] | None, key: bytes | None) -> None:
    prepare(tmp_path / "x.db", "CREATE TABLE goods (id INTEGER, v TEXT)")
    sink = make_sql_sink(tmp_path / "x.db", format="row", table="goods", keys=keys)
    with pytest.raises(ConnectorRefused, match=r"\(id\) is neither its primary key nor unique"):
        sink.write(rows(-1, {"id": 1, "v": "a"}, key=key))
    sink.close()


def test_a_value_that_has_to_be_unique_goes_from_row_to_row(tmp_path: Path) -> None:
    """The changes of a key are one, and of two keys the first may take what the second has still."""
    database = tmp_path / "x.db"
    prepare(
        database, "CREATE TABLE goods (id INTEGER PRIMARY KEY, v TEXT UNIQUE)",
        "INSERT INTO goods VALUES (1, 'a'), (2, 'b')",
    )  # fmt: skip
    sink = make_sql_sink(database, format="row", table="goods", keys=["id"])
    sink.write(rows(-1, {"id": 2, "v": "c"}, {"id": 1, "v": "d"}, {"id": 2, "v": "a"}))
    assert rows_of(database) == [(1, "d"), (2, "a")]
    with pytest.raises(BadRecord) as bad:
        sink.write(rows(3, {"id": 3, "v": "e"}, {"id": 4, "v": "a"}))
    assert bad.value.offset == 4
    assert rows_of(database) == [(1, "d"), (2, "a")]
    sink.close()


def test_a_row_that_breaks_a_constraint_is_named(tmp_path: Path) -> None:
    prepare(tmp_path / "x.db", "CREATE TABLE goods (id INTEGER PRIMARY KEY, v TEXT NOT NULL CHECK (v <> 'b'))")
    sink = make_sql_sink(tmp_path / "x.db", format="row", table="goods", keys=["id"])
    with pytest.raises(BadRecord) as bad:
        sink.write(rows(-1, {"id": 1, "v": "a"}, {"id": 2, "v": "b"}))
    assert bad.value.offset == 1
    sink.close()


def test_names_that_a_database_cannot_have_are_bad_records(tmp_path: Path) -> None:
    sink = make_sql_sink(tmp_path / "x.db", format="row", table="goods", keys=["id"])
    sink.write(rows(-1, {"id": 1, "v": 1}))
    with pytest.raises(BadRecord, match="differ in capitals only"):
        sink.write(rows(1, {"id": 1, "V": 1}))
    with pytest.raises(BadRecord, match="cannot have the name ''"):
        sink.write(rows(1, {"id": 1, "": 1}))
    sink.close()


def test_a_text_that_sqlite_would_make_a_number_is_a_bad_record(tmp_path: Path) -> None:
    """Its columns keep their affinity: 007 became 7, also as a key, and took another row with it."""
    sink = make_sql_sink(tmp_path / "x.db", format="row", table="goods", keys=["id"])
    sink.write(rows(-1, {"id": 7, "v": 5}))
    for row in ({"id": "007", "v": 6}, {"id": 7, "v": "1e3"}, {"id": 7, "v": "5.0"}):
        with pytest.raises(BadRecord, match="as a number"):
            sink.write(rows(1, row))
    sink.write(rows(1, {"id": "x7", "v": "7"}, {"id": 8, "v": "seven"}))
    assert rows_of(tmp_path / "x.db") == [(7, 5), (8, "seven"), ("x7", 7)]
    sink.close()


def test_a_column_that_comes_later_leaves_a_widened_one_as_it_is(tmp_path: Path) -> None:
    """A time behind a date became a date again, where the same event brought a new column."""
    sink = make_sql_sink(tmp_path / "x.db", table="goods")
    date = ({"id": 1, "at": "2026-01-02"}, {"id": "int", "at": "date"})
    time = ({"id": 2, "at": "2026-01-02T03:04:05", "n": 1}, {"id": "int", "at": "timestamp", "n": "int"})
    for start, (row, columns) in enumerate((date, time)):
        event = ChangeEvent("c", {"id": row["id"]}, None, row, 1, columns=columns, table="goods")
        message = Message("t", 0, Record(start, 0, None, encode_event(event), ()))
        sink.write(SinkBatch("t", 0, [message], start or -1, start + 1))
    assert rows_of(tmp_path / "x.db") == [(1, "2026-01-02", None), (2, "2026-01-02 03:04:05.000000", 1)]
    sink.close()


def test_a_number_that_is_none_is_a_bad_record(tmp_path: Path) -> None:
    """SQLite has NULL in its place."""
    sink = make_sql_sink(tmp_path / "x.db", format="row", table="goods", keys=["id"])
    with pytest.raises(BadRecord, match="the database has no nan"):
        sink.write(rows(-1, {"id": 1, "v": float("nan")}))
    sink.close()


def test_sqlalchemy_shows_no_tracebacks_by_itself() -> None:
    """Of connections that break while they are given back. The task tells what failed."""
    program = "import logging, ottla.connect.sql_sink; logging.getLogger('sqlalchemy.pool').error('Traceback')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
