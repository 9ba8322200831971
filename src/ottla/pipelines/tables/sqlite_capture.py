"""Every change of tables in SQLite, sent to topics: triggers write each change into an outbox, in the transaction that
makes it, and a relay sends the outbox in order. What was not acknowledged is sent again: none is lost, one may come
twice, which tables do not mind.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.client import NewRecord, Producer
from ottla.pipelines.tables.columns import DoesNotFit, type_named
from ottla.pipelines.tables.event import ChangeEvent, encode_event, encode_key

OUTBOX = "ottla_outbox"
RELAYED_ROWS = 5_000
_TYPES = {"INTEGER": "bigint", "INT": "bigint", "REAL": "double", "TEXT": "string", "BLOB": "binary", "": "string"}


class CaptureRefused(ValueError):
    """A table that cannot be captured; the text says why."""


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table with its columns, in Spark's types, and its primary key."""

    name: str
    columns: dict[str, str]
    keys: tuple[str, ...]


def capture(connection: sqlite3.Connection, tables: Sequence[str]) -> list[CapturedTable]:
    """Make the outbox and the triggers that fill it, as the tables are now. Call it again when a table has changed."""
    captured = [describe(connection, table) for table in tables]
    with connection:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {OUTBOX} (position INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, op TEXT, "
            "before TEXT, after TEXT, columns TEXT, version INTEGER, commit_time_ms INTEGER)"
        )
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        for table in captured:
            for statement in _triggers(table, version):
                connection.execute(statement)
    return captured


def describe(connection: sqlite3.Connection, table: str) -> CapturedTable:
    rows = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
    if not rows:
        raise CaptureRefused(f"there is no table {table!r}")
    keys = tuple(row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5])
    if not keys:
        raise CaptureRefused(f"table {table!r} has no primary key")
    return CapturedTable(table, {row[1]: _type(row[2]) for row in rows}, keys)


def _type(declared: str) -> str:
    try:
        return _TYPES.get(declared.upper()) or type_named(declared)
    except DoesNotFit:
        return "string"


def _triggers(table: CapturedTable, version: int) -> list[str]:
    columns = json.dumps(table.columns).replace("'", "''")
    now = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
    statements = []
    for name, event, op, before, after in (
        ("insert", "INSERT", "c", False, True),
        ("update", "UPDATE", "u", True, True),
        ("delete", "DELETE", "d", True, False),
    ):
        old, new = (_row(table, side) if there else "NULL" for side, there in (("OLD", before), ("NEW", after)))
        trigger = f'"ottla_{table.name}_{name}"'
        statements += [
            f"DROP TRIGGER IF EXISTS {trigger}",
            f'CREATE TRIGGER {trigger} AFTER {event} ON "{table.name}" BEGIN '
            f"INSERT INTO {OUTBOX} (name, op, before, after, columns, version, commit_time_ms) "
            f"VALUES ('{table.name}', '{op}', {old}, {new}, '{columns}', {version}, {now}); END",
        ]
    return statements


def _row(table: CapturedTable, side: str) -> str:
    parts = []
    for name, kind in table.columns.items():
        value = f'{side}."{name}"'
        # JSON has no bytes; hex is turned into base64 by the relay.
        if kind == "binary":
            value = f"CASE WHEN {value} IS NOT NULL THEN hex({value}) END"
        elif kind == "double":
            # As many digits as tell the number from all others; JSON of SQLite has only 15.
            exact = f"json(printf('%!.17g', {value}))"
            value = f"CASE WHEN typeof({value}) = 'real' THEN {exact} ELSE {value} END"
        parts.append(f"'{name}', {value}")
    return f"json_object({', '.join(parts)})"


def relay(connection: sqlite3.Connection, producer: Producer, topic: str = "{table}") -> int:
    """Send what is in the outbox, and remove what was acknowledged; how many changes. `topic` may hold `{table}`."""
    rows = connection.execute(f"SELECT * FROM {OUTBOX} ORDER BY position LIMIT {RELAYED_ROWS}").fetchall()
    if not rows:
        return 0
    records: dict[str, list[NewRecord]] = {}
    keys = {name: describe(connection, name).keys for name in {row[1] for row in rows}}
    for position, name, op, before, after, columns, version, commit_time_ms in rows:
        old, new = (None if text is None else json.loads(text) for text in (before, after))
        types = json.loads(columns)
        for each in (old, new):
            _bytes_as_base64(each, types)
        row = new or old or {}
        key = {column: row[column] for column in keys[name]}
        event = ChangeEvent(op, key, old, new, position, commit_time_ms, version, types, name)
        records.setdefault(topic.format(table=name), []).append(NewRecord(encode_event(event), key=encode_key(key)))
    for into, found in records.items():
        producer.send_many(into, found)
    with connection:
        connection.execute(f"DELETE FROM {OUTBOX} WHERE position <= ?", (rows[-1][0],))
    return len(rows)


def _bytes_as_base64(row: dict[str, object] | None, types: dict[str, str]) -> None:
    for name, value in (row or {}).items():
        if types.get(name) == "binary" and isinstance(value, str) and row is not None:
            row[name] = base64.b64encode(bytes.fromhex(value)).decode()
