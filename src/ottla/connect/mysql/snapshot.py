"""The first copy of a table: in chunks by its key, each with the place in the binlog that it belongs to.

In MariaDB a chunk is read in a transaction whose snapshot has a known place in the binlog: it is what the table was
just there. MySQL has no such place, so the end of the binlog after the chunk is taken. Rows that change between where
the binlog has been followed to when a chunk is read, the low watermark, and the chunk's place, the high one, are left
out of the chunk: their changes say it all. Nothing is locked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.connect.interface import ConnectorRefused
from ottla.connect.mysql.binlog import Place
from ottla.connect.mysql.connection import SqlConnection
from ottla.connect.mysql.row_image import escaped
from ottla.connect.mysql.values import base64_of, quoted

_NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point", "linestring",
          "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection")  # fmt: skip
_MOMENTS = ("datetime", "timestamp")
_ORDERED_BY_NUMBER = ("enum", "set", "bit")


class Column(NamedTuple):
    """A column as information_schema describes it."""

    name: str
    type: str
    full_type: str
    precision: int
    scale: int

    @property
    def is_unsigned(self) -> bool:
        return "unsigned" in self.full_type or "zerofill" in self.full_type

    @property
    def spark_type(self) -> str:
        kind = self.type
        if kind in ("tinyint", "year"):
            return "smallint"
        if kind == "smallint":
            return "int" if self.is_unsigned else "smallint"
        if kind == "mediumint":
            return "int"
        if kind == "int":
            return "bigint" if self.is_unsigned else "int"
        if kind == "bigint":
            return "decimal(20,0)" if self.is_unsigned else "bigint"
        if kind == "bit":
            return "decimal(20,0)" if self.precision > 63 else "bigint"
        if kind == "decimal":
            return f"decimal({self.precision},{self.scale})" if self.precision <= 38 else "string"
        if kind in _BYTES:
            return "binary"
        if kind in _MOMENTS:
            return "timestamp"
        return kind if kind in ("float", "double", "date") else "string"

    @property
    def selected(self) -> str:
        """How it is asked for, so that it is what the binlog has."""
        name = quoted_name(self.name)
        if self.type == "float":
            return f"CAST({name} AS DOUBLE)"  # six digits would be shown of it
        if self.type == "bit":
            return f"{name} + 0"
        return name

    @property
    def ordered(self) -> str:
        """Also as the mark of a row, which has to tell it from its neighbours."""
        name = quoted_name(self.name)
        return f"{name} + 0" if self.type in _ORDERED_BY_NUMBER else self.selected

    def maker(self) -> Callable[[bytes], bytes]:
        """Of its JSON, from the text that the server gives."""
        kind = self.type
        if kind in _NUMBERS or kind == "bit":
            return _quoted_number if self.spark_type.startswith("decimal") else _number
        if kind in ("float", "double"):
            return lambda value: repr(float(value)).encode()
        if kind == "decimal":
            return lambda value: b'"' + _plain_decimal(value) + b'"'
        if kind in _BYTES:
            return base64_of
        if kind in ("date", *_MOMENTS):
            return _moment
        return lambda value: b'"' + escaped(value) + b'"'


def _number(value: bytes) -> bytes:
    return b"%d" % int(value)


def _quoted_number(value: bytes) -> bytes:
    return b'"%d"' % int(value)


def _plain_decimal(value: bytes) -> bytes:
    """Without the zeros of ZEROFILL."""
    whole, point, fraction = value.partition(b".")
    sign = whole[:1] if whole[:1] == b"-" else b""
    return sign + (whole[len(sign) :].lstrip(b"0") or b"0") + point + fraction


def _moment(value: bytes) -> bytes:
    year, month, day = int(value[:4]), int(value[5:7]), int(value[8:10])
    if not (year and month and day):
        return b"null"
    date, _, clock = value.partition(b" ")
    if not clock:
        return b'"' + date + b'"'
    whole, point, fraction = clock.partition(b".")
    return b'"' + date + b"T" + whole + (b"." + fraction.ljust(6, b"0") if point else b"") + b'"'


def quoted_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class TableToCopy(NamedTuple):
    database: str
    name: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    is_ordered: bool
    """Whether an index has its rows in the order of its keys, so that they can be read in chunks."""
    row_bytes: int = 0
    """About, of a row, as the server guesses; 0 if it does not know."""

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    def spark_columns(self) -> dict[str, str]:
        return {column.name: column.spark_type for column in self.columns}


class Chunk(NamedTuple):
    """Rows with their keys, as JSON. They are true at `high`, but for those that change before the binlog is there."""

    table: TableToCopy
    rows: list[tuple[bytes, bytes]]
    high: Place
    last_key: list[Any] | None
    """None: it was the last."""


def chunk_statement(table: TableToCopy, after: Sequence[Any] | None, limit: int) -> tuple[str, list[Any]]:
    """The rows behind a key, in the order of the key. A table without such an order is one chunk."""
    by_name = {column.name: column for column in table.columns}
    keys = [by_name[key] for key in table.keys]
    selected = ", ".join(column.selected for column in table.columns)
    marks = ", ".join(column.ordered for column in keys)
    statement = f"SELECT {marks}, {selected} FROM {quoted_name(table.database)}.{quoted_name(table.name)}"
    if not table.is_ordered:
        return statement, []
    arguments: list[Any] = []
    if after is not None:
        ways = []
        for place in range(len(keys)):
            equal = "".join(f"{column.ordered} = %s AND " for column in keys[:place])
            ways.append(f"({equal}{keys[place].ordered} > %s)")
            arguments += [_argument(column, after[index]) for index, column in enumerate(keys[: place + 1])]
        statement += " WHERE " + " OR ".join(ways)
    return f"{statement} ORDER BY {marks} LIMIT {limit}", arguments


def _argument(column: Column, mark: str) -> Any:
    """Marks are kept as hexadecimal digits: they may be any bytes."""
    value = bytes.fromhex(mark)
    return value if column.type in _BYTES else value.decode()


def read_chunk(
    sql: SqlConnection, table: TableToCopy, after: Sequence[Any] | None, limit: int, *, is_mariadb: bool
) -> Chunk:
    statement, arguments = chunk_statement(table, after, limit)
    if is_mariadb:
        sql.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        try:
            high = _snapshot_place(sql.texts("SHOW STATUS LIKE 'binlog_snapshot_%'"))
            found = sql.query(statement, arguments)
        finally:
            sql.query("COMMIT")
    else:
        found = sql.query(statement, arguments)
        high = sql.end_of_binlog()
    key_count = len(table.keys)
    rows = list(_rows(table, found))
    is_last = not table.is_ordered or len(found) < limit
    last_key = None if is_last else [mark.hex() for mark in found[-1][:key_count]]
    return Chunk(table, rows, high, last_key)


def _snapshot_place(status: Sequence[Sequence[str]]) -> Place:
    found = {row[0].lower(): row[1] for row in status}
    file, position = found.get("binlog_snapshot_file", ""), found.get("binlog_snapshot_position", "")
    if not file:
        raise ConnectorRefused("the server does not say where in the binlog a snapshot belongs; is log_bin on?")
    return Place(file, int(position))


def _rows(table: TableToCopy, found: Sequence[Sequence[bytes | None]]) -> Iterator[tuple[bytes, bytes]]:
    """Keys and rows, of rows that have their marks in front."""
    columns = [(quoted(column.name) + b":", column.maker()) for column in table.columns]
    names = [column.name for column in table.columns]
    keys = [names.index(key) for key in table.keys]
    mark_count = len(keys)
    for row in found:
        parts = [
            name + (b"null" if value is None else make(value))
            for (name, make), value in zip(columns, row[mark_count:], strict=True)
        ]
        yield b"{" + b",".join([parts[key] for key in keys]) + b"}", b"{" + b",".join(parts) + b"}"
