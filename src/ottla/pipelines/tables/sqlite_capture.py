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
_OBJECT_COLUMNS = 40
_LARGEST = "1.7976931348623157e308"
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
    rows = connection.execute(f"PRAGMA table_info({sqlite_name(table)})").fetchall()
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
    now = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
    statements = []
    for name, event, op, before, after in (
        ("insert", "INSERT", "c", False, True),
        ("update", "UPDATE", "u", True, True),
        ("delete", "DELETE", "d", True, False),
    ):
        old, new = (_row(table, side) if there else "NULL" for side, there in (("OLD", before), ("NEW", after)))
        trigger = sqlite_name(f"ottla_{table.name}_{name}")
        statements += [
            f"DROP TRIGGER IF EXISTS {trigger}",
            f"CREATE TRIGGER {trigger} AFTER {event} ON {sqlite_name(table.name)} BEGIN "
            f"INSERT INTO {OUTBOX} (name, op, before, after, columns, version, commit_time_ms) VALUES "
            f"({_text(table.name)}, '{op}', {old}, {new}, {_text(json.dumps(table.columns))}, {version}, {now}); END",
        ]
    return statements


def sqlite_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _row(table: CapturedTable, side: str) -> str:
    """An expression for the row as JSON. Of many columns it is a list of objects: a function takes 100 arguments."""
    parts = [f"{_text(name)}, {_value(f'{side}.{sqlite_name(name)}', kind)}" for name, kind in table.columns.items()]
    begins = range(0, len(parts), _OBJECT_COLUMNS)
    objects = [f"json_object({', '.join(parts[begin : begin + _OBJECT_COLUMNS])})" for begin in begins]
    return objects[0] if len(objects) == 1 else "'[' || " + " || ',' || ".join(objects) + " || ']'"


def _value(value: str, kind: str) -> str:
    """Whatever a column holds, which need not be of its type: what JSON has no form for is an object of one field."""
    if kind == "binary":
        return f"CASE WHEN {value} IS NOT NULL THEN json_object('hex', hex({value})) END"
    # More digits than tell the number from all others, for the last ones of SQLite are not sure; its JSON has only 15.
    exact = f"json(printf('%!.20g', {value}))"
    number = f"CASE WHEN abs({value}) > {_LARGEST} THEN json_object('real', printf('%g', {value})) ELSE {exact} END"
    hexadecimal = f"json_object('hex', hex({value}))"
    return f"CASE typeof({value}) WHEN 'blob' THEN {hexadecimal} WHEN 'real' THEN {number} ELSE {value} END"


def relay(connection: sqlite3.Connection, producer: Producer, topic: str = "{table}") -> int:
    """Send what is in the outbox, and remove what was acknowledged; how many changes. `topic` may hold `{table}`."""
    # As bytes, for SQLite takes texts that are no UTF-8.
    columns = "position, name, op, CAST(before AS BLOB), CAST(after AS BLOB), columns, version, commit_time_ms"
    rows = connection.execute(f"SELECT {columns} FROM {OUTBOX} ORDER BY position LIMIT {RELAYED_ROWS}").fetchall()
    if not rows:
        return 0
    records: dict[str, list[NewRecord]] = {}
    keys = {name: describe(connection, name).keys for name in {row[1] for row in rows}}
    for position, name, op, before, after, types, version, commit_time_ms in rows:
        kinds = json.loads(types)
        old, new = (_read_row(found, kinds) for found in (before, after))
        row = new or old or {}
        key = {column: row[column] for column in keys[name]}
        event = ChangeEvent(op, key, old, new, position, commit_time_ms, version, kinds, name)
        records.setdefault(topic.format(table=name), []).append(NewRecord(encode_event(event), key=encode_key(key)))
    for into, found in records.items():
        producer.send_many(into, found)
    with connection:
        connection.execute(f"DELETE FROM {OUTBOX} WHERE position <= ?", (rows[-1][0],))
    return len(rows)


def _read_row(written: bytes | None, types: dict[str, str]) -> dict[str, object] | None:
    if written is None:
        return None
    found = json.loads(written.decode(errors="replace"))
    objects = found if isinstance(found, list) else [found]
    return {name: _read_value(value, types.get(name)) for each in objects for name, value in each.items()}


def _read_value(value: object, kind: str | None) -> object:
    if isinstance(value, dict) and "real" in value:
        return float(value["real"])
    if kind == "binary" and isinstance(value, str):  # by triggers that were made before bytes could be anywhere
        value = {"hex": value}
    return base64.b64encode(bytes.fromhex(value["hex"])).decode() if isinstance(value, dict) else value
