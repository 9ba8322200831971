"""One change of a row, and its JSON form; docs/change-events.md describes it. Debezium's envelope is read, too."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.pipelines.tables.columns import FIRST_TIME_MS, LAST_TIME_MS
from ottla.pipelines.tables.position import Position

BINLOG_DIGITS = 6
OPERATIONS = {"c": "create", "u": "update", "d": "delete", "r": "read", "t": "truncate"}
Row = dict[str, Any]


class InvalidEvent(ValueError):
    """A message that is no change event; the text says why."""


class ChangeEvent(NamedTuple):
    """`position` is what orders the changes of a key. `before` is there where the source knows it.

    `columns` are the table's columns with their types in Spark's words ("bigint", "decimal(10,2)"); without them types
    are taken from the values.
    """

    operation: str
    key: Row | None
    before: Row | None
    after: Row | None
    position: Position | None
    commit_time_ms: int | None = None
    schema_version: int | None = None
    columns: dict[str, str] | None = None
    table: str | None = None


def encode_event(event: ChangeEvent) -> bytes:
    """The JSON of a change event."""
    if event.operation not in OPERATIONS:
        raise InvalidEvent(f"the operation {event.operation!r} is none of {', '.join(OPERATIONS)}")
    document: Row = {"op": event.operation, "key": event.key, "before": event.before, "after": event.after}
    document["position"] = event.position
    for name, value in (("commit_time", event.commit_time_ms), ("table", event.table)):
        if value is not None:
            document[name] = value
    if event.schema_version is not None or event.columns is not None:
        document["schema"] = {"version": event.schema_version or 0}
        if event.columns is not None:
            document["schema"]["columns"] = event.columns
    return to_json(document)


def encode_key(key: Mapping[str, Any]) -> bytes:
    """The key of the message: all changes of a row go to one partition."""
    return to_json(key)


def to_json(value: object) -> bytes:
    """JSON in as few bytes as it takes; decimals and times as text, bytes as base64."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise InvalidEvent(f"a value of type {type(value).__name__} has no place in a change event")


def read_event(document: object, message_key: bytes | None = None) -> ChangeEvent:
    """The event of a parsed JSON value. `message_key` is where Debezium has the row's key."""
    if not isinstance(document, dict):
        raise InvalidEvent("the message is no JSON object")
    if "payload" in document and "op" not in document:
        document = document["payload"]
        if not isinstance(document, dict):
            raise InvalidEvent("the message has an empty payload")
    operation = document.get("op")
    if not isinstance(operation, str) or operation not in OPERATIONS:
        raise InvalidEvent(
            "the message has no 'op'" if operation is None else f"the operation {operation!r} is unknown"
        )
    source = document.get("source")
    if isinstance(source, dict) and "position" not in document:
        return _read_debezium(document, source, message_key)
    schema = document.get("schema")
    version, columns = (schema.get("version"), schema.get("columns")) if isinstance(schema, dict) else (None, None)
    return ChangeEvent(
        operation,
        _row(document, "key"),
        _row(document, "before"),
        _row(document, "after"),
        document.get("position"),
        _moment(document.get("commit_time")),
        version if isinstance(version, int) else None,
        columns if isinstance(columns, dict) else None,
        document.get("table"),
    )


def _moment(value: object) -> int | None:
    """Milliseconds since 1970; None for what is no time that a calendar has: a change is no worse without it."""
    return value if type(value) is int and FIRST_TIME_MS <= value <= LAST_TIME_MS else None


def _row(document: Row, name: str) -> Row | None:
    row = document.get(name)
    if row is not None and not isinstance(row, dict):
        raise InvalidEvent(f"{name!r} is no JSON object")
    return row


def _read_debezium(document: Row, source: Row, message_key: bytes | None) -> ChangeEvent:
    table = ".".join(str(source[name]) for name in ("db", "schema", "table") if source.get(name))
    return ChangeEvent(
        document["op"],
        _debezium_key(message_key),
        _row(document, "before"),
        _row(document, "after"),
        _debezium_position(source),
        _moment(source.get("ts_ms")),
        None,
        None,
        table or None,
    )


def _debezium_key(message_key: bytes | None) -> Row | None:
    try:
        key = json.loads(message_key or b"null")
    except ValueError:
        return None
    if isinstance(key, dict) and isinstance(key.get("payload"), dict):
        key = key["payload"]
    return key if isinstance(key, dict) else None


def _debezium_position(source: Row) -> Position | None:
    """What orders the events of one connector: MySQL's and MariaDB's log file and position, else a log number."""
    if source.get("file") and source.get("pos") is not None:
        return [_by_number(source["file"]), source["pos"], source.get("row") or 0]
    if source.get("change_lsn") or source.get("commit_lsn"):  # SQL Server: texts of one length
        return [source.get("commit_lsn") or "", source.get("change_lsn") or "", source.get("event_serial_no") or 0]
    for name in ("lsn", "scn"):
        number = source.get(name)
        if number is not None:
            return _whole_number(name, number)
    return None


def _by_number(file: object) -> object:
    """The name of a binlog's file, so that it sorts by its number. Servers write six digits, and more only from file
    1,000,000 on: for each of those stands a colon in front, which sorts behind all digits. Names of six digits stay as
    tables have them."""
    if not isinstance(file, str):
        return file
    base, dot, number = file.rpartition(".")
    return f"{base}{dot}{':' * (len(number) - BINLOG_DIGITS)}{number}" if number.isdecimal() else file


def _whole_number(name: str, number: object) -> int:
    if type(number) is int:
        return number
    if isinstance(number, str) and number.isdecimal() and number.isascii():
        return int(number)
    raise InvalidEvent(f"the position {name} is a whole number, not {number!r}")
