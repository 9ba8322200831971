"""Is a table what its source is? Counts and checksums by range of keys, and the rows that differ by name."""

from __future__ import annotations

import base64
import bisect
import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipelines.tables.columns import Columns, DoesNotFit, column_of
from ottla.pipelines.tables.event import to_json
from ottla.pipelines.tables.layout import TableRefused, columns_of
from ottla.pipelines.tables.read import read_arrow, snapshot
from ottla.pipelines.tables.resolve import END, data_columns

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
    """One row: `missing` in the table, `unexpected` there, or `different` in columns (source's, table's value)."""

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
    layout = snapshot(path, storage_options).layout
    rows = read_arrow(path, storage_options=storage_options)
    if layout.is_history:
        rows = rows.filter(pc.is_null(rows[END]))
    return rows.select(data_columns(rows.schema)), layout.keys


def compare(source: Iterable[pa.Table], table: pa.Table, keys: Sequence[str]) -> Report:
    """`source` comes in chunks that are sorted by key, in the columns of `table`; each chunk is a range."""
    table = table.sort_by([(key, "ascending") for key in keys])
    report = Report()
    places = _Keys(table, keys)
    begin = 0
    for chunk, is_last in _with_last(source):
        last_key = None if is_last else _Keys(chunk, keys)[chunk.num_rows - 1]
        end = table.num_rows if last_key is None else bisect.bisect_right(places, last_key, lo=begin)
        _compare_range(chunk, table.slice(begin, end - begin), keys, last_key, report)
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
    there = {tuple(row[key] for key in keys): row for row in table}
    for row in source:
        key = tuple(row[name] for name in keys)
        found = there.pop(key, None)
        if found is None:
            yield Difference("missing", key)
        elif found != row:
            differing = {name: (row[name], found[name]) for name in row if row[name] != found[name]}
            yield Difference("different", key, differing)
    for key in there:
        yield Difference("unexpected", key)
    if len(there) == 0 and len({tuple(row[key] for key in keys) for row in table}) < len(table):
        raise TableRefused("the table has more than one row of a key")


def _checksum(rows: list[dict[str, Any]]) -> str:
    """Of all rows in their order."""
    digest = hashlib.blake2b(digest_size=8)
    for row in rows:
        digest.update(to_json(list(row.values())))
        digest.update(b"\n")
    return digest.hexdigest()


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


def sqlite_chunks(
    file: str, name: str, columns: Columns, keys: Sequence[str], rows: int = RANGE_ROWS
) -> Iterator[pa.Table]:
    """The rows of a table in SQLite, sorted by key, as of one moment."""
    quoted = ", ".join(f'"{column}"' for column in columns)
    order = ", ".join(f'"{key}"' for key in keys)
    try:
        connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        try:
            cursor = connection.execute(f'SELECT {quoted} FROM "{name}" ORDER BY {order}')
            while True:
                found = cursor.fetchmany(rows)
                yield _chunk(found, columns)
                if len(found) < rows:
                    return
        finally:
            connection.close()
    except (sqlite3.Error, DoesNotFit) as error:
        raise TableRefused(f"{file}, table {name}: {error}") from error


def _chunk(rows: list[tuple[Any, ...]], columns: Columns) -> pa.Table:
    found = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [column_of(_from_sqlite(values), kind) for values, kind in zip(found, columns.values(), strict=True)]
    return pa.table(dict(zip(columns, arrays, strict=True)))


def _from_sqlite(values: Sequence[Any]) -> list[Any]:
    return [base64.b64encode(value).decode() if isinstance(value, bytes) else value for value in values]


def verify_sqlite(path: str, check_against: str, storage_options: Mapping[str, str] | None = None) -> Report:
    """Compare the table at `path` with a table in SQLite: "FILE:TABLE"."""
    file, colon, name = check_against.rpartition(":")
    if not colon:
        raise TableRefused(f"check_against is FILE:TABLE, not {check_against!r}")
    table, keys = current_rows(path, storage_options)
    columns = columns_of(table.schema)
    return compare(sqlite_chunks(file, name, columns, keys), table, keys)


def verify_tables(expected: str, path: str, storage_options: Mapping[str, str] | None = None) -> Report:
    """Compare the table at `path` with another table of changes, such as one made anew from the topic."""
    source, keys = current_rows(expected, storage_options)
    table, _ = current_rows(path, storage_options)
    source = source.sort_by([(key, "ascending") for key in keys])
    if sorted(source.column_names) != sorted(table.column_names):
        raise TableRefused(f"the columns differ: {', '.join(source.column_names)}; {', '.join(table.column_names)}")
    count = max(source.num_rows, 1)
    chunks = (source.slice(begin, RANGE_ROWS) for begin in range(0, count, RANGE_ROWS))
    return compare(chunks, table, keys)
