"""What becomes of the events of a binlog and of the chunks of a snapshot: records and positions."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from ottla.connect.interface import SourceRecord
from ottla.connect.mysql.binlog import Begun, BinlogReader, Committed, Ddl, Place, RowChanges
from ottla.connect.mysql.catalog import Catalog, TableChoice
from ottla.connect.mysql.chunk_readers import ChunkReaders
from ottla.connect.mysql.connection import Server, SqlConnection
from ottla.connect.mysql.envelope import Envelope, Make, Stamp, snapshot_stamp
from ottla.connect.mysql.history import SchemaHistory
from ottla.connect.mysql.snapshot import Chunk, read_chunk
from ottla.connect.mysql.table import Table, make_table, read_table_map, schema_json
from ottla.connect.mysql.values import Decode

DONE = "done"
CUT_ROWS = 5_000
CUT_BYTES = 8 << 20
"""After so many rows or bytes of one transaction, what is there is handed on."""
CHUNK_BYTES = 16 << 20
"""That a chunk has about, at most: what is read of several tables is in memory at once, and more than once."""
Out = tuple[list[SourceRecord], dict[str, Any]]


@dataclass(slots=True)
class _Named:
    """A copied table, as its events name it."""

    full_name: str
    database: str
    name: str
    schema_json: bytes


@dataclass(slots=True)
class _ChunkAhead:
    """A chunk that is being read, or that waits for the binlog; and the keys of its table that change meanwhile."""

    future: Future[Chunk | None]
    changed: set[bytes]


class Capture:
    def __init__(
        self, *, readers: ChunkReaders, server: Server, position: Mapping[str, Any], catalog: Catalog,
        choice: TableChoice, keys: Mapping[str, Sequence[str]], decodes: Mapping[int, Decode | None],
        history: SchemaHistory, envelope: Envelope, name_topic: Callable[[str, str], str],
        create_topic: Callable[[str], None], chunk_rows: int, tombstones: bool, transactions_topic: str | None,
    ) -> None:  # fmt: skip
        self._readers = readers
        self._server = server
        self._catalog = catalog
        self._choice = choice
        self._keys = keys
        self._decodes = decodes
        self._history = history
        self._envelope = envelope
        self._name_topic = name_topic
        self._create_topic = create_topic
        self._chunk_rows = chunk_rows
        self._tombstones = tombstones
        self._transactions_topic = transactions_topic
        self._copied: dict[str, Any] = dict(position["tables"])
        self._after_gtid: str | None = position.get("after_gtid")
        start = Place(position["file"], position["pos"])
        self._skip: tuple[int, int] = tuple(position.get("done", (0, 0)))
        """Of the transaction at the start: the end of the last event that was handed on, and how many of its rows."""
        self._reader = BinlogReader(
            start, is_mariadb=server.is_mariadb, find_table=self._find_table, is_captured=choice.may_want_of,
            decodes=decodes, has_lower_names=server.has_lower_names,
        )  # fmt: skip
        self._known: dict[bytes, Table | None] = {}
        self._topics: set[str] = set()
        self._records: list[SourceRecord] = []
        self._stamp_time_ms = 0
        self._transaction: str | None = position.get("gtid")
        self._rows_of_transaction = 0
        self._bytes_held = 0  # of a transaction, since something of it was handed on
        self._start_of_transaction = start
        self._is_between = True
        self._copying: deque[str] = deque()
        """Tables, in the order in which they get their next turn."""
        self._chunks: dict[str, _ChunkAhead] = {}
        """Of each table one at most."""
        self._last_time = 0.0
        self._look_for_tables()

    @property
    def position(self) -> dict[str, Any]:
        """Where it is, between transactions."""
        return self._position(self._reader.place)

    @property
    def resume_from(self) -> Place | str:
        return self._after_gtid or self._reader.place

    @property
    def is_copying(self) -> bool:
        return bool(self._copying)

    @property
    def doing(self) -> str:
        if not self.is_copying:
            return f"follows the binlog at {self._reader.place}"
        return f"copies {len(self._copying)} tables"

    def lag_seconds(self, now: float) -> float | None:
        return max(0.0, now - self._last_time) if self._last_time else None

    # The binlog.

    def take(self, event: bytes) -> Iterator[Out]:
        for happened in self._reader.read(event):
            match happened:
                case RowChanges():
                    self._last_time = self._reader.time_seconds
                    yield from self._add_rows(happened)
                case Begun():
                    self._is_between = False
                    self._transaction = happened.transaction
                    self._stamp_time_ms = happened.time_seconds * 1000
                    self._start_of_transaction = happened.start
                    self._rows_of_transaction = self._bytes_held = 0
                case Ddl():
                    self._add_statement(happened)
                case Committed():
                    yield from self._commit(happened)

    def _commit(self, happened: Committed) -> Iterator[Out]:
        self._is_between = True
        self._skip = (0, 0)
        if happened.transaction is not None:
            self._after_gtid = None  # from here on the place says it
        if self._transactions_topic and happened.transaction and self._rows_of_transaction:
            self._add_end(happened)
        records, self._records = self._records, []
        yield records, self._position(happened.place)
        yield from self._finish_chunks()

    def _add_end(self, happened: Committed) -> None:
        assert self._transactions_topic is not None
        value = b'{"id":"%s","rows":%d,"commit_time":%d,"position":[%d,%d]}' % (
            (happened.transaction or "").encode(), self._rows_of_transaction, self._stamp_time_ms,
            *happened.place.order,
        )  # fmt: skip
        self._ensure_topic(self._transactions_topic)
        self._records.append(SourceRecord(self._transactions_topic, value, (happened.transaction or "").encode()))
        self._rows_of_transaction = 0

    def _position(self, place: Place, done: tuple[int, int] | None = None) -> dict[str, Any]:
        position: dict[str, Any] = {"server": self._server.identity, "file": place.file, "pos": place.position}
        if self._transaction is not None:
            position["gtid"] = self._transaction
        if done is not None:
            position["done"] = list(done)
        if self._after_gtid is not None:
            position["after_gtid"] = self._after_gtid
        position["tables"] = dict(self._copied)
        return position

    def _add_rows(self, changes: RowChanges) -> Iterator[Out]:
        table, end = changes.table, changes.end_position
        first = 0
        self._rows_of_transaction += len(changes.rows)
        if self._skip[0]:
            if end < self._skip[0]:
                return
            first = self._skip[1] if end == self._skip[0] else 0
        stamp = Stamp(self._reader.place.file, end, self._stamp_time_ms, self._transaction)
        ahead = self._chunks.get(table.full_name)
        watched = None if ahead is None else ahead.changed
        make = self._envelope.bind(table, stamp)
        for row in range(first, len(changes.rows)):
            before, after, old_key, new_key = changes.rows[row]
            if watched is not None:
                watched.update(key for key in (old_key, new_key) if key is not None)
            self._add_change(make, table.topic, changes.operation, (before, after), (old_key, new_key), row)
            if len(self._records) >= CUT_ROWS:
                yield self._cut(end, row + 1)
        self._bytes_held += changes.size_bytes
        if self._bytes_held >= CUT_BYTES:
            yield self._cut(end, len(changes.rows))

    def _cut(self, end: int, rows: int) -> Out:
        """A long transaction: what comes behind begins at its start again, and is skipped up to here."""
        self._bytes_held = 0
        out, self._records = self._records, []
        return out, self._position(self._start_of_transaction, (end, rows))

    def _add_change(
        self, make: Make, topic: str, operation: str, rows: tuple[bytes | None, bytes | None],
        keys: tuple[bytes | None, bytes | None], row: int,
    ) -> None:  # fmt: skip
        (before, after), (old_key, new_key) = rows, keys
        records, time_ms = self._records, self._stamp_time_ms
        if operation == "u" and old_key != new_key:
            self._add_change(make, topic, "d", (before, None), (old_key, None), row)
            operation, before = "c", None
        key = old_key if operation == "d" else new_key
        value = make(operation.encode(), key, before, after, row)
        records.append(SourceRecord(topic, value, key, (), None, time_ms))
        if operation == "d" and self._tombstones:
            records.append(SourceRecord(topic, None, key, (), None, time_ms))

    # Tables.

    def _find_table(self, body: bytes) -> Table | None:
        """The same bytes mean the same table, until a statement changes something."""
        if body in self._known:
            return self._known[body]
        name_bytes = body[0]
        database = body[1 : 1 + name_bytes].decode()
        name = body[3 + name_bytes : 3 + name_bytes + body[2 + name_bytes]].decode()
        table: Table | None = None
        if self._choice.wants(f"{database}.{name}"):
            table = self._make_table(body)
        self._known[body] = table
        return table

    def _make_table(self, body: bytes) -> Table | None:
        """None: it is a sequence, which has no rows that anybody would want."""
        mapped = read_table_map(body, is_mariadb=self._server.is_mariadb, decodes=self._decodes)
        if mapped.is_sequence:
            return None
        declared = self._catalog.declared(mapped.full_name)
        table = make_table(mapped, self._keys.get(mapped.full_name), declared, self._decodes)
        table.version = self._version(table.full_name, table.columns, table.keys)
        table.schema_json = schema_json(table.version, table.columns)
        table.topic = self._name_topic(table.database, table.name)
        self._ensure_topic(table.topic)
        return table

    def _version(self, name: str, columns: Mapping[str, str], keys: Sequence[str]) -> int:
        place = self._reader.place
        version, records = self._history.version_of(name, columns, keys, place.order)
        self._records += records
        return version

    def _ensure_topic(self, topic: str) -> None:
        if topic not in self._topics:
            self._create_topic(topic)
            self._topics.add(topic)

    def _add_statement(self, ddl: Ddl) -> None:
        self._known.clear()
        self._catalog.forget()
        if self._choice.may_want_of(ddl.database):
            time_ms = ddl.time_seconds * 1000
            position = [*ddl.place.order]
            self._records.append(self._history.statement(ddl.text, ddl.database, time_ms, position))
        # A statement may name tables of other databases than its own.
        truncated = ddl.statement.truncated
        if truncated is not None and self._choice.wants(truncated):
            self._add_truncate(truncated, ddl)
        for refilled in ddl.statement.refilled:
            if self._choice.wants(refilled):
                self._copy_again(refilled)
        thinned = ddl.statement.thinned
        if thinned is not None and self._choice.wants(thinned):
            self._add_truncate(thinned, ddl)
            self._copy_again(thinned)
        self._chunks.clear()  # they may be of before, or of tables with other columns: they are read again
        self._catalog.refuse_losses()
        self._look_for_tables()

    def _copy_again(self, full_name: str) -> None:
        """Its rows have other values, and the binlog does not tell them."""
        self._copied.pop(full_name, None)

    def _add_truncate(self, full_name: str, ddl: Ddl) -> None:
        database, _, table_name = full_name.partition(".")
        topic = self._name_topic(database, table_name)
        self._ensure_topic(topic)
        stamp = Stamp(ddl.place.file, ddl.place.position, ddl.time_seconds * 1000, self._transaction)
        named = _Named(full_name, database, table_name, b"null")
        make = self._envelope.bind(named, stamp)
        self._records.append(SourceRecord(topic, make(b"t", None, None, None, 0)))

    # The snapshot.

    def _look_for_tables(self) -> None:
        """Tables that are not copied yet, whether they are new or were not wanted before."""
        for name in self._catalog.table_names():
            if self._copied.get(name) != DONE and name not in self._copying:
                self._copying.append(name)

    def copy_on(self) -> Iterator[Out]:
        """Chunks that are read are written, and others begun, while the binlog stands between transactions."""
        yield from self._finish_chunks()
        if self._is_between:
            waiting = [name for name in self._copying if name not in self._chunks]
            for name in waiting[: self._readers.count - len(self._chunks)]:
                # Its keys are watched from this place in the binlog on, which is before the chunk is read.
                job = partial(self._read_chunk, name, self._copied.get(name))
                self._chunks[name] = _ChunkAhead(self._readers.submit(job), set())

    def _read_chunk(self, name: str, after: Any, sql: SqlConnection) -> Chunk | None:
        """In a thread of the readers. None: the table is gone."""
        table = Catalog(sql, self._choice, self._keys).describe(name)
        if table is None:
            return None
        if not isinstance(after, list) or len(after) != len(table.keys):
            after = None  # at the beginning, or its primary key is another one now
        fitting = CHUNK_BYTES // table.row_bytes if table.row_bytes else self._chunk_rows
        limit = max(min(self._chunk_rows, fitting), 1)
        return read_chunk(sql, table, after, limit, is_mariadb=self._server.is_mariadb)

    def _finish_chunks(self) -> Iterator[Out]:
        """Those whose place the binlog has reached. It may be further: what has changed meanwhile was watched, too."""
        if not self._is_between:
            return
        for name, ahead in list(self._chunks.items()):
            if not ahead.future.done():
                continue
            chunk = ahead.future.result()
            if chunk is not None and self._reader.place.order < chunk.high.order:
                continue
            del self._chunks[name]
            self._copying.remove(name)
            if chunk is None:
                self._copied.pop(name, None)
            else:
                records = self._copied_rows(chunk, ahead.changed)
                self._copied[name] = DONE if chunk.last_key is None else chunk.last_key
                if chunk.last_key is not None:
                    self._copying.append(name)  # where there are more tables than threads, they take turns
                yield records, self._position(self._reader.place)
        if not self._copying:
            self._readers.rest()

    def _copied_rows(self, chunk: Chunk, changed: set[bytes]) -> list[SourceRecord]:
        table = chunk.table
        topic = self._name_topic(table.database, table.name)
        self._ensure_topic(topic)
        version = self._version(table.full_name, table.spark_columns(), table.keys)
        named = _Named(table.full_name, table.database, table.name, schema_json(version, table.spark_columns()))
        now_ms = time.time_ns() // 1_000_000
        stamp = snapshot_stamp(chunk.high, now_ms)
        make = self._envelope.bind(named, stamp)
        records, self._records = self._records, []
        for key, row in chunk.rows:
            if key not in changed:
                records.append(SourceRecord(topic, make(b"r", key, None, row, 0), key, (), None, now_ms))
        return records
