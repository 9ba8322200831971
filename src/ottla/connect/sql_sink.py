"""`sql-sink`: rows of a SQL database that follow change events, through SQLAlchemy.

The rows of a batch and its offset are one transaction of the database, in which the offset is compared first: whoever
finds another offset there than it left is fenced. Tables are made and widened before that, each in a step of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from ottla.client import Message, TopicPartition
from ottla.connect.interface import BadRecord, Fenced, Finding, Sink, SinkBatch, Task
from ottla.connect.sql_tables import SqlTable, make_engine
from ottla.connect.sql_types import DoesNotFit, joined, to_sql, word_of
from ottla.pipelines.tables.event import InvalidEvent, Row, read_event

OFFSETS = "ottla_offsets"
TOPIC_ID_CHARACTERS = 32
REFUSED = (sa.exc.DataError, sa.exc.IntegrityError, OverflowError, UnicodeError)
"""What a database, or the driver before it, raises for a value that it can never take."""
REFUSED_CODES = (3819, 4025)
"""The same, of MySQL and MariaDB: a constraint does not hold."""


class _Change(NamedTuple):
    """What becomes of a key; `row` is None where it is deleted. If `key` is None, all rows are."""

    offset: int
    table: str
    key: Row | None
    row: Row | None
    columns: Mapping[str, str] | None


class _Result:
    """What becomes of a key by all changes of a batch: it is deleted, or written, or one after the other."""

    def __init__(self, key: Row) -> None:
        self.key = key
        self.row: Row | None = None
        self.is_deleted = False

    def take(self, row: Row | None) -> None:
        """Rows may have some columns only: what came before stays in the others."""
        if row is None:
            self.is_deleted = True
            self.row = None
        else:
            self.row = row if self.row is None else self.row | row


class SqlSink(Sink):
    """`url` is SQLAlchemy's. `table` may hold `{topic}` and `{table}`, the name that the change event has.

    `format` is "change", the events of docs/change-events.md or Debezium's, or "row": each value is a row, a record
    without a value deletes, and the key is in `keys` or in the record's key.
    """

    stores_offsets = True

    def __init__(
        self, *, url: str, table: str = "{topic}", format: Literal["change", "row"] = "change",
        keys: list[str] | None = None,
    ) -> None:  # fmt: skip
        """ValueError for settings that cannot be."""
        try:
            table.format(topic="", table="")
        except (LookupError, ValueError, AttributeError):
            raise ValueError(f"table may hold {{topic}} and {{table}}, and nothing else in braces: {table!r}") from None
        if not table:
            raise ValueError("table is empty: it is a name, or holds {topic} or {table}")
        self._url = url
        self._name = table
        self._format = format
        self._keys = tuple(keys or ())
        self._engine: Any = None
        self._tables: dict[str, SqlTable] = {}
        self._offsets = sa.Table(
            OFFSETS,
            sa.MetaData(),
            sa.Column("connector", _exact_text(100), primary_key=True),
            sa.Column("topic", _exact_text(249), primary_key=True),
            sa.Column("partition_number", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("next_offset", sa.BigInteger, nullable=False),
            sa.Column("topic_id", sa.String(TOPIC_ID_CHARACTERS)),
            mysql_engine="InnoDB",
            mariadb_engine="InnoDB",
        )
        self._connector = ""
        self._task: Task | None = None

    def check(self) -> Iterable[Finding]:
        try:
            engine = sa.create_engine(self._url)
            with engine.connect() as connection:
                connection.execute(sa.text("SELECT 1"))
            yield Finding(f"{engine.dialect.name} {engine.url.database or ''} answers")
            engine.dispose()
        except (sa.exc.SQLAlchemyError, ModuleNotFoundError) as error:
            yield Finding(f"the database cannot be reached: {_first_line(error)}", is_problem=True)

    def open(self, task: Task) -> None:
        self._connector, self._task = task.connector, task
        self._engine = make_engine(self._url)
        self._offsets.create(self._engine, checkfirst=True)
        SqlTable(self._engine, OFFSETS).ensure("topic_id", "string")  # one of before had none

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def stored_offsets(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {place: row.next_offset for place, row in self._stored(places).items()}

    def stored_topic_ids(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, str]:
        return {place: row.topic_id or "" for place, row in self._stored(places).items()}

    def _stored(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        wanted = set(places)
        table = self._offsets
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(table).where(table.c.connector == self._connector)).all()
        found = {TopicPartition(row.topic, row.partition_number): row for row in rows}
        return {place: row for place, row in found.items() if place in wanted}

    def forget_offsets(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(sa.delete(self._offsets).where(self._offsets.c.connector == self._connector))

    def write(self, batch: SinkBatch) -> None:
        changes = list(self._changes(batch.records))
        self._fit_tables(changes)
        try:
            with self._engine.begin() as connection:
                self._store_offset(connection, batch)
                self._apply(connection, changes)
        except Exception as error:
            if not _is_refused(error):
                raise
            self._write_each(batch, changes)

    def _write_each(self, batch: SinkBatch, changes: Sequence[_Change]) -> None:
        """One change behind the other, as they happened: one that the database does not take then is bad.

        Together they may be refused though each is sound, where a value that has to be unique goes from row to row.
        """
        with self._engine.begin() as connection:
            self._store_offset(connection, batch)
            for change in changes:
                try:
                    self._apply(connection, [change])
                except Exception as refused:
                    if not _is_refused(refused):
                        raise
                    raise BadRecord(change.offset, _first_line(refused)) from refused

    def _store_offset(self, connection: Any, batch: SinkBatch) -> None:
        table = self._offsets
        place = {"connector": self._connector, "topic": batch.topic, "partition_number": batch.partition}
        fenced = Fenced(f"{batch.place}: another runner has written from offset {max(batch.start_offset, 0)} on")
        stored = {"next_offset": batch.next_offset, "topic_id": batch.topic_id}
        if batch.start_offset < 0:
            try:
                connection.execute(sa.insert(table).values(**place, **stored))
            except sa.exc.IntegrityError:
                raise fenced from None
            return
        is_mine = sa.and_(*(table.c[name] == value for name, value in place.items()))
        changed = connection.execute(
            sa.update(table).where(is_mine, table.c.next_offset == batch.start_offset).values(**stored)
        )
        if changed.rowcount != 1:
            raise fenced

    # From records to changes.

    def _changes(self, records: Sequence[Message]) -> Iterator[_Change]:
        read = self._read_change if self._format == "change" else self._read_row
        for record in records:
            try:
                yield from read(record)
            except (InvalidEvent, DoesNotFit, ValueError, RecursionError) as error:
                raise BadRecord(record.offset, str(error)) from None

    def _read_change(self, record: Message) -> Iterator[_Change]:
        if record.value is None:  # a tombstone for compaction, behind a delete
            return
        event = read_event(json.loads(record.value), record.key)
        table = self._table_name(record.topic, event.table)
        if event.operation == "t":
            self._check_alone(record.topic, table)
            yield _Change(record.offset, table, None, None, None)
            return
        keys = self._keys or tuple(event.key or ()) or self._table(table).keys
        if not keys:
            raise DoesNotFit("the change has no key; name the columns with keys = [...]")
        old = _part(event.before, keys) or _part(event.key, keys)
        if event.operation == "d":
            if old is None:
                raise DoesNotFit(f"the delete has no key ({', '.join(keys)})")
            yield _Change(record.offset, table, old, None, event.columns)
            return
        if event.after is None:
            raise DoesNotFit("the change has no 'after'")
        new = _part(event.after, keys) or _part(event.key, keys)
        if new is None:
            raise DoesNotFit(f"the change has no key ({', '.join(keys)})")
        if event.operation == "u" and old is not None and old != new:
            yield _Change(record.offset, table, old, None, event.columns)
        yield _Change(record.offset, table, new, event.after | new, event.columns)

    def _check_alone(self, topic: str, table: str) -> None:
        """That no other partition has changes of before a truncate, or of after it."""
        count = 1 if self._task is None else self._task.count_partitions(topic)
        if count > 1:
            raise DoesNotFit(
                f"table {table} was truncated, and its changes are in {count} partitions: which rows of the others "
                "came before is not known; empty the table by hand, or have its changes in a topic with one partition"
            )

    def _read_row(self, record: Message) -> Iterator[_Change]:
        table = self._table_name(record.topic, None)
        key_document = json.loads(record.key) if record.key and not (self._keys and record.value is not None) else None
        of_record = key_document if isinstance(key_document, dict) else {}
        if record.value is None:
            key = _part(of_record, self._keys or tuple(of_record))
            if not key:
                wanted = f" with {', '.join(self._keys)}" if self._keys else ""
                raise DoesNotFit(f"the record has no value, and no key that is a JSON object{wanted}")
            yield _Change(record.offset, table, key, None, None)
            return
        row = json.loads(record.value)
        if not isinstance(row, dict):
            raise DoesNotFit("the value is no JSON object")
        key = _part(row, self._keys) if self._keys else _part(of_record, tuple(of_record))
        if not key:
            raise DoesNotFit("the row has no key: name its columns with keys = [...]")
        yield _Change(record.offset, table, key, key | row | key, None)

    def _table_name(self, topic: str, table: str | None) -> str:
        plain = topic.replace(".", "_").replace("-", "_")
        return self._name.format(topic=plain, table=(table or plain).rpartition(".")[2])

    def _table(self, name: str) -> SqlTable:
        if name not in self._tables:
            self._tables[name] = SqlTable(self._engine, name)
        return self._tables[name]

    # From changes to tables.

    def _fit_tables(self, changes: Sequence[_Change]) -> None:
        """Tables are made as all changes together need them."""
        needed: dict[str, tuple[dict[str, str], tuple[str, ...], dict[str, int]]] = {}
        for change in changes:
            if change.key is None:
                continue
            columns, _, offsets = needed.setdefault(change.table, ({}, tuple(change.key), {}))
            row = change.row if change.row is not None else change.key
            for name, value in row.items():
                word = (change.columns or {}).get(name) or word_of(value)
                if word is not None:
                    wider = joined(columns.get(name, word), word)
                    if wider is None:
                        reason = f"column {name} is {columns[name]} in a row before, which cannot hold {word} as well"
                        raise BadRecord(change.offset, f"table {change.table}: {reason}")
                    if wider != columns.get(name):
                        columns[name], offsets[name] = wider, change.offset
        for table, (columns, keys, offsets) in needed.items():
            offset = min(offsets.values())
            try:
                if self._table(table).table is None:
                    self._table(table).create(columns, keys)
                for name, word in columns.items():
                    offset = offsets[name]
                    self._table(table).ensure(name, word)
            except DoesNotFit as error:
                raise BadRecord(offset, str(error)) from None
            if self._keys or not self._table(table).keys:
                self._table(table).check_keys(keys)
        if not self._keys:
            for change in changes:
                self._check_key(change)

    def _check_key(self, change: _Change) -> None:
        """A delete by some other columns could take many rows."""
        keys = self._table(change.table).keys
        if change.key is not None and keys and set(change.key) != set(keys):
            raise BadRecord(
                change.offset,
                f"its key is ({', '.join(change.key)}), and the primary key of table {change.table} is "
                f"({', '.join(keys)}): name the columns with keys = [...]",
            )

    def _apply(self, connection: Any, changes: Sequence[_Change]) -> None:
        """All changes of a key become one: keys are the same if they are so for the database."""
        results: dict[str, dict[frozenset[tuple[str, Any]], _Result]] = {}
        for change in changes:
            if change.key is None:
                results[change.table] = {}
                if self._table(change.table).table is not None:
                    self._table(change.table).clear(connection)
                continue
            key = self._converted(change, change.key)
            of_table = results.setdefault(change.table, {})
            result = of_table.setdefault(frozenset(key.items()), _Result(key))
            result.take(None if change.row is None else self._converted(change, change.row))
        for name, of_table in results.items():
            table = self._table(name)
            if table.table is not None:
                self._write_rows(connection, table, list(of_table.values()))

    def _write_rows(self, connection: Any, table: SqlTable, results: Sequence[_Result]) -> None:
        deletes: dict[tuple[str, ...], list[Row]] = {}
        upserts: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Row]] = {}
        for result in results:
            names = tuple(sorted(result.key))
            if result.is_deleted:
                deletes.setdefault(names, []).append(result.key)
            if result.row is not None:
                upserts.setdefault((names, tuple(sorted(result.row))), []).append(result.row)
        for keys in deletes.values():
            table.delete(connection, keys)
        for (names, _), rows in upserts.items():
            table.upsert(connection, rows, names)

    def _converted(self, change: _Change, row: Row) -> Row:
        columns, there = change.columns or {}, self._table(change.table).words
        try:
            made = {
                name: to_sql(name, value, columns.get(name) or word_of(value) or "", there.get(name))
                for name, value in row.items()
            }
            for name, value in made.items():
                self._table(change.table).check(name, value)
        except DoesNotFit as error:
            raise BadRecord(change.offset, str(error)) from None
        return made


def _exact_text(length: int) -> Any:
    """Names that differ only in capitals are two, in MariaDB and MySQL, too."""
    return sa.String(length).with_variant(mysql.VARCHAR(length, collation="utf8mb4_bin"), "mysql", "mariadb")


def _part(row: Row | None, keys: Sequence[str]) -> Row | None:
    if row is None or any(row.get(key) is None for key in keys):
        return None
    return {key: row[key] for key in keys}


def _is_refused(error: Exception) -> bool:
    """Whether a value is why, and not the connection. A plain StatementError comes before the database is asked."""
    if isinstance(error, REFUSED) or type(error) is sa.exc.StatementError:
        return True
    arguments = getattr(getattr(error, "orig", None), "args", ())
    return arguments[:1] in [(code,) for code in REFUSED_CODES]


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
