"""Changes of tables in SQLite: whatever a row holds, the transaction goes through and the event has it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ottla.client import NewRecord
from ottla.pipelines import capture, relay
from ottla.pipelines.tables.decode import Decoding
from ottla.pipelines.tables.sqlite_capture import OUTBOX, CapturedTable, CaptureRefused
from ottla.pipelines.tables.verify import sqlite_rows

MANY = 150


class Sent:
    """In the place of a producer."""

    def __init__(self) -> None:
        self.records: list[NewRecord] = []

    def send_many(self, topic: str, records: list[NewRecord]) -> None:
        self.records += records


def relayed(database: sqlite3.Connection) -> list[NewRecord]:
    sent = Sent()
    while relay(database, sent):  # type: ignore[arg-type]
        pass
    return sent.records


def rows_of(records: list[NewRecord], table: CapturedTable) -> list[dict[str, Any]]:
    batch = pa.record_batch(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "topic": ["t"] * len(records),
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": list(range(len(records))),
        }
    )
    decoding = Decoding(table.keys, dict(table.columns))
    rows: list[dict[str, Any]] = pa.Table.from_batches(decoding.decode([batch])).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("REAL", 9e999),
        ("REAL", -9e999),
        ("REAL", 0.1 + 0.2),
        ("REAL", 1.7976931348623157e308),
        ("TEXT", b"\x00\xff"),
        ("TEXT", 'it\'s "quoted" \x00'),
        ("BLOB", b""),
        ("BLOB", "a text"),
        ("NUMERIC", 9e999),
        ("NUMERIC", 12.5),
        ("INTEGER", None),
        ("BLOB", None),
    ],
)
def test_a_value_of_any_kind_is_sent_as_it_is(declared: str, value: object, tmp_path: Path) -> None:
    """As the comparison of table and source reads it, too."""
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})")
    [table] = capture(database, ["t"])
    with database:
        database.execute("INSERT INTO t VALUES (1, ?)", (value,))
    [row] = rows_of(relayed(database), table)
    [expected] = sqlite_rows(str(tmp_path / "shop.db"), "t", table.columns).to_pylist()
    database.close()
    assert row["_error"] is None
    assert {name: row[name] for name in expected} == expected


def test_what_does_not_fit_its_column_does_not_fail_the_transaction() -> None:
    """It is an event that a table sends to the dead letters. A text that is no text has marks in it."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER, w TEXT)")
    [table] = capture(database, ["t"])
    with database:
        database.execute("INSERT INTO t VALUES (1, x'00ff', NULL), (2, 7, CAST(x'ff41' AS TEXT))")
    refused, replaced = rows_of(relayed(database), table)
    database.close()
    assert "no whole number" in refused["_error"]
    assert (replaced["v"], replaced["w"]) == (7, "\ufffdA")


@pytest.mark.parametrize("name", ["it's", 'the "table"', "select"])
def test_names_with_quotes_and_very_many_columns(name: str) -> None:
    database = sqlite3.connect(":memory:")
    quoted = '"' + name.replace('"', '""') + '"'
    columns = ", ".join(f"c{number} INTEGER" for number in range(MANY))
    database.execute(f"CREATE TABLE {quoted} ({quoted} INTEGER PRIMARY KEY, {columns})")
    capture(database, [name])
    capture(database, [name])  # again, as when the table has changed
    with database:
        database.execute(f"INSERT INTO {quoted} ({quoted}, c{MANY - 1}) VALUES (1, 7)")
        database.execute(f"UPDATE {quoted} SET {quoted} = 2")
        database.execute(f"DELETE FROM {quoted}")
    events = [json.loads(record.value or b"") for record in relayed(database)]
    database.close()
    assert [(event["op"], event["key"]) for event in events] == [("c", {name: 1}), ("u", {name: 2}), ("d", {name: 2})]
    assert events[1]["before"] == {name: 1} | {
        f"c{number}": 7 if number == MANY - 1 else None for number in range(MANY)
    }
    assert events[2]["after"] is None


def test_bytes_of_triggers_that_were_made_before_are_read() -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
    [table] = capture(database, ["t"])
    written = ("t", "c", json.dumps({"id": 1, "v": "00FF"}), json.dumps(table.columns), 1, 1)
    with database:
        database.execute(
            f"INSERT INTO {OUTBOX} (name, op, after, columns, version, commit_time_ms) VALUES (?, ?, ?, ?, ?, ?)",
            written,
        )
    [row] = rows_of(relayed(database), table)
    database.close()
    assert row["v"] == b"\x00\xff"


def test_a_table_that_cannot_be_captured_is_told() -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (v)")
    with pytest.raises(CaptureRefused, match="'t' has no primary key"):
        capture(database, ["t"])
    with pytest.raises(CaptureRefused, match="there is no table 'u'"):
        capture(database, ["u"])
    database.close()
