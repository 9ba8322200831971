"""Is a table what its source is? Counts and checksums by range of keys, and the rows that differ by name."""

from __future__ import annotations

import base64
import bisect
import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from ottla.pipelines.tables.columns import Columns, DoesNotFit, column_of, with_one_zero
from ottla.pipelines.tables.event import to_json
from ottla.pipelines.tables.layout import Layout, TableRefused, columns_of
from ottla.pipelines.tables.plain_table import StoreFailed
from ottla.pipelines.tables.read import read_arrow, snapshot
from ottla.pipelines.tables.reasons import first_line
from ottla.pipelines.tables.resolve import END, FROM, START, TO, data_columns
from ottla.pipelines.tables.sqlite_capture import sqlite_name

RANGE_ROWS = 10_000
NAMED_ROWS = 20

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows up to a key, on both sides."""

    last_key: Key | None
    source_count: int
    table_count: int
    source_checksum: str
    table_checksum: str

    @property
    def is_equal(self) -> bool:
        return (self.source_count, self.source_checksum) == (self.table_count, self.table_checksum)


@dataclass(frozen=True, slots=True)
class Difference:
    """A row: `missing` in the table, `unexpected` or `doubled` there, or `different` in columns: source's, table's."""

    kind: str
    key: Key
    columns: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        key = ", ".join(map(str, self.key))
        if self.kind != "different":
            return f"{key}: {self.kind} in the table"
        values = "; ".join(f"{name} is {there!r}, not {source!r}" for name, (source, there) in self.columns.items())
        return f"{key}: {values}"


@dataclass(slots=True)
class Report:
    ranges: list[KeyRange] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    differences_count: int = 0

    @property
    def is_equal(self) -> bool:
        return all(found.is_equal for found in self.ranges)

    @property
    def source_rows(self) -> int:
        return sum(found.source_count for found in self.ranges)

    @property
    def table_rows(self) -> int:
        return sum(found.table_count for found in self.ranges)


def current_rows(path: str, storage_options: Mapping[str, str] | None = None) -> tuple[pa.Table, tuple[str, ...]]:
    """The rows that are valid now, without columns of ours, and the key columns. Of a history, the open versions."""
    layout, rows = _read(path, storage_options)
    if layout.is_history:
        rows = rows.filter(pc.is_null(rows[END]))
    return rows.select(data_columns(rows.schema)), layout.keys


def _every_row(path: str, storage_options: Mapping[str, str] | None) -> tuple[pa.Table, tuple[str, ...]]:
    """Of a history every version: a key and a beginning."""
    layout, rows = _read(path, storage_options)
    if not layout.is_history:
        return rows.select(data_columns(rows.schema)), layout.keys
    return rows.select([*data_columns(rows.schema), START, END, FROM, TO]), (*layout.keys, START)


def _read(path: str, storage_options: Mapping[str, str] | None) -> tuple[Layout, pa.Table]:
    try:
        return snapshot(path, storage_options).layout, read_arrow(path, storage_options=storage_options)
    except StoreFailed as error:
        raise TableRefused(str(error)) from error
    except (OSError, DeltaError, pa.ArrowException) as error:
        raise TableRefused(f"{path} cannot be read: {first_line(error)}") from error


def compare(source: Iterable[pa.Table], table: pa.Table, keys: Sequence[str]) -> Report:
    """`source` comes in chunks that are sorted by key, in the columns of `table`; each chunk is a range."""
    has_key = reduce(pc.and_, [pc.is_valid(table[key]) for key in keys])
    keyless = table.filter(pc.invert(has_key))
    table = table.filter(has_key).sort_by([(key, "ascending") for key in keys])
    report = Report()
    places = _Keys(table, keys)
    begin = 0
    for chunk, is_last in _with_last(source):
        last_key = None if is_last else _Keys(chunk, keys)[chunk.num_rows - 1]
        end = table.num_rows if last_key is None else bisect.bisect_right(places, last_key, lo=begin)
        here = table.slice(begin, end - begin)
        if last_key is None and keyless.num_rows:
            here = pa.concat_tables([here, keyless])
        _compare_range(chunk, here, keys, last_key, report)
        begin = end
    return report


def _compare_range(chunk: pa.Table, here: pa.Table, keys: Sequence[str], last_key: Key | None, report: Report) -> None:
    source_rows, table_rows = chunk.to_pylist(), here.select(chunk.column_names).to_pylist()
    checksums = [_checksum(source_rows), _checksum(table_rows)]
    found = KeyRange(last_key, len(source_rows), len(table_rows), *checksums)
    report.ranges.append(found)
    if found.is_equal:
        return
    for difference in _differences(source_rows, table_rows, keys):
        report.differences_count += 1
        if len(report.differences) < NAMED_ROWS:
            report.differences.append(difference)


def _differences(
    source: list[dict[str, Any]], table: list[dict[str, Any]], keys: Sequence[str]
) -> Iterator[Difference]:
    there: dict[Key, list[dict[str, Any]]] = {}
    for row in table:
        there.setdefault(tuple(row[key] for key in keys), []).append(row)
    for row in source:
        key = tuple(row[name] for name in keys)
        found = there.pop(key, None)
        if found is None:
            yield Difference("missing", key)
        elif len(found) > 1:
            yield Difference("doubled", key)
        elif _text(found[0]) != _text(row):
            differing = [name for name in row if to_json(row[name]) != to_json(found[0][name])]
            yield Difference("different", key, {name: (row[name], found[0][name]) for name in differing})
    for key in there:
        yield Difference("unexpected", key)


def _checksum(rows: list[dict[str, Any]]) -> str:
    """Of all rows in their order."""
    digest = hashlib.blake2b(digest_size=8)
    for row in rows:
        digest.update(_text(row))
        digest.update(b"\n")
    return digest.hexdigest()


def _text(row: dict[str, Any]) -> bytes:
    """By this rows are compared: what is not a number equals itself here."""
    return to_json(list(row.values()))


def _with_last(chunks: Iterable[pa.Table]) -> Iterator[tuple[pa.Table, bool]]:
    waiting: pa.Table | None = None
    for chunk in chunks:
        if waiting is not None:
            yield waiting, False
        waiting = chunk
    if waiting is not None:
        yield waiting, True


class _Keys(Sequence[Key]):
    """The keys of a sorted table, each made when it is looked at."""

    def __init__(self, table: pa.Table, keys: Sequence[str]) -> None:
        self._columns = [table[key] for key in keys]
        self._length: int = table.num_rows

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return tuple(column[index].as_py() for column in self._columns)


def sqlite_rows(file: str, name: str, columns: Columns) -> pa.Table:
    """The rows of a table in SQLite, as of one moment."""
    chunks = []
    try:
        connection = sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True)
        try:
            connection.text_factory = lambda text: text.decode(errors="replace")
            _check_columns(connection, name, columns)
            quoted = ", ".join(_in_sqlite(column, kind) for column, kind in columns.items())
            cursor = connection.execute(f"SELECT {quoted} FROM {sqlite_name(name)}")
            while True:
                found = cursor.fetchmany(RANGE_ROWS)
                chunks.append(_chunk(found, columns))
                if len(found) < RANGE_ROWS:
                    return pa.concat_tables(chunks)
        finally:
            connection.close()
    except (sqlite3.Error, DoesNotFit) as error:
        raise TableRefused(f"{file}, table {name}: {error}") from error


def _in_sqlite(column: str, kind: str) -> str:
    """A column of bytes may hold a text."""
    return f"CAST({sqlite_name(column)} AS BLOB)" if kind == "binary" else sqlite_name(column)


def _check_columns(connection: sqlite3.Connection, name: str, columns: Columns) -> None:
    """SQLite takes the name of a column that it does not have for a text."""
    there = {row[1] for row in connection.execute(f"PRAGMA table_info({sqlite_name(name)})")}
    missing = [column for column in columns if column not in there]
    if there and missing:
        raise sqlite3.OperationalError(f"no such column: {missing[0]}")


def _chunk(rows: list[tuple[Any, ...]], columns: Columns) -> pa.Table:
    found = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [column_of(_plain(values), kind) for values, kind in zip(found, columns.values(), strict=True)]
    return pa.table(dict(zip(columns, arrays, strict=True)))


def _plain(values: Sequence[Any]) -> list[Any]:
    """As events have them."""
    return [base64.b64encode(value).decode() if isinstance(value, bytes) else value for value in values]


def verify_sqlite(path: str, check_against: str, storage_options: Mapping[str, str] | None = None) -> Report:
    """Compare the table at `path` with a table in SQLite: "FILE:TABLE"."""
    file, colon, name = check_against.rpartition(":")
    if not colon:
        raise TableRefused(f"check_against is FILE:TABLE, not {check_against!r}")
    table, keys = current_rows(path, storage_options)
    return compare(_ranges(sqlite_rows(file, name, columns_of(table.schema)), keys), table, keys)


def verify_rows(
    path: str, rows: Iterable[Mapping[str, Any]], name: str, storage_options: Mapping[str, str] | None = None
) -> Report:
    """Compare the table at `path` with rows that are as change events have them; `name` is where they come from."""
    table, keys = current_rows(path, storage_options)
    columns = columns_of(table.schema)
    chunks = []
    try:
        for part in _parts(rows):
            missing = [column for column in columns if column not in part[0]]
            if missing:
                raise TableRefused(f"{name} has no column {missing[0]}")
            chunks.append(_chunk([tuple(row[column] for column in columns) for row in part], columns))
    except DoesNotFit as error:
        raise TableRefused(f"{name}: {error}") from error
    source = pa.concat_tables(chunks) if chunks else _chunk([], columns)
    return compare(_ranges(source, keys), table, keys)


def _parts(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    ahead = iter(rows)
    while part := list(islice(ahead, RANGE_ROWS)):
        yield part


def verify_tables(expected: str, path: str, storage_options: Mapping[str, str] | None = None) -> Report:
    """Compare the table at `path` with another of its kind on this machine, such as one made anew from the topic."""
    source, keys = _every_row(expected, None)
    table, _ = _every_row(path, storage_options)
    if sorted(source.column_names) != sorted(table.column_names):
        raise TableRefused(f"the columns differ: {', '.join(source.column_names)}; {', '.join(table.column_names)}")
    return compare(_ranges(source, keys), table, keys)


def _ranges(source: pa.Table, keys: Sequence[str]) -> Iterator[pa.Table]:
    """In the order of the keys as Arrow has it, for a database may have another; one at least."""
    for key in keys:
        source = source.set_column(source.schema.get_field_index(key), key, with_one_zero(source[key]))
    source = source.sort_by([(key, "ascending") for key in keys])
    for begin in range(0, max(source.num_rows, 1), RANGE_ROWS):
        yield source.slice(begin, RANGE_ROWS)
