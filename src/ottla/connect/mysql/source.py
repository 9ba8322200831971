"""`mysql-source`: a snapshot of tables of MariaDB or MySQL without locks, then every change of their rows.

The position is a place in the binlog between two transactions and, where a long transaction was cut, how much of it is
done; and how far each table is copied. Chunks of several tables are read while the binlog is followed, and written when
the binlog has reached the place that a chunk belongs to, so that there is no gap and no row goes back in time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from ottla.connect.interface import ConnectorRefused, Finding, Source, Task, Yielded
from ottla.connect.mysql.binlog import POSITIONS, Place
from ottla.connect.mysql.capture import Capture
from ottla.connect.mysql.catalog import Catalog, TableChoice
from ottla.connect.mysql.checks import check_rights, check_settings
from ottla.connect.mysql.chunk_readers import ChunkReaders
from ottla.connect.mysql.connection import Address, BinlogConnection, Server, SqlConnection
from ottla.connect.mysql.envelope import ChangeEnvelope, DebeziumEnvelope, Envelope
from ottla.connect.mysql.history import SchemaHistory
from ottla.connect.mysql.values import decode_of
from ottla.connect.topics import check_topic_name, is_topic_name

WAIT_SECONDS = 0.2
_GTID = re.compile(r"\d+-\d+-\d+(,\d+-\d+-\d+)*")


class MysqlSource(Source):
    """`tables` and `exclude` are patterns of DATABASE.TABLE. `keys` names unique columns of tables that have no primary
    key.

    `topic` may hold {database} and {table}. `start` is "snapshot", "now", FILE:POSITION or, of MariaDB, a GTID: the
    last three begin without a copy of what is there. `cascades` says what if foreign keys change rows of tables.
    """

    def __init__(
        self, *, host: str = "localhost", port: int = 3306, user: str, password: str = "", tables: list[str],
        exclude: list[str] | None = None, keys: dict[str, list[str]] | None = None,
        topic: str = "{database}.{table}", partitions: int = 1, envelope: Literal["change", "debezium"] = "change",
        tombstones: bool = False, chunk_rows: int = 5_000, snapshot_max_threads: int = 4, start: str = "snapshot",
        transactions_topic: str | None = None, cascades: Literal["refuse", "ignore"] = "refuse",
    ) -> None:  # fmt: skip
        self._address = Address(host, port, user, password)
        self._choice = TableChoice(tables, exclude or [])
        self._keys: Mapping[str, list[str]] = keys or {}
        self._topic = topic
        self._partitions = partitions
        self._envelope = envelope
        self._tombstones = tombstones
        self._chunk_rows = chunk_rows
        self._snapshot_max_threads = snapshot_max_threads
        self._start = start
        self._transactions_topic = transactions_topic
        self._cascades = cascades
        if start not in ("snapshot", "now") and _GTID.fullmatch(start) is None and _place(start) is None:
            raise ValueError(f"start is snapshot, now, FILE:POSITION or a GTID as 0-7-42, not {start!r}")
        at_least_1 = {
            "partitions": partitions, "snapshot_max_threads": snapshot_max_threads, "chunk_rows": chunk_rows,
        }  # fmt: skip
        for name, number in at_least_1.items():
            if number < 1:
                raise ValueError(f"{name} is at least 1, not {number}")
        if not 0 < port < 1 << 16:
            raise ValueError(f"port is from 1 to 65535, not {port}")
        for name, text in (("host", host), ("user", user)):
            if not text:
                raise ValueError(f"{name} is empty")
        if transactions_topic is not None:
            check_topic_name("transactions_topic", transactions_topic)
        try:
            topic.format(database="", table="")
        except (LookupError, ValueError, AttributeError):
            raise ValueError(
                f"topic may hold {{database}} and {{table}}, and nothing else in braces: {topic!r}"
            ) from None

    def count_tasks(self, wanted: int) -> int:
        """One: a binlog is read from its beginning to its end."""
        return 1

    def check(self) -> Iterable[Finding]:
        sql = SqlConnection(self._address)
        try:
            server = sql.server()
            yield Finding(f"{self._address}: {server.version} answers")
            yield from check_settings(sql)
            yield from check_rights(sql)
            catalog = self._catalog(sql)
            names = catalog.table_names()
            for reason in catalog.why_lost():
                yield Finding(reason, is_problem=True)
            if not names:
                yield Finding("there is no table that the patterns name, or the user may not see it", is_problem=True)
            for name in names:
                try:
                    catalog.describe(name)
                    self._topic_of(*name.split(".", 1))
                except ConnectorRefused as error:
                    yield Finding(str(error), is_problem=True)
            yield Finding(f"{len(names)} tables: {', '.join(names[:10])}{' ...' if len(names) > 10 else ''}")
        finally:
            sql.close()

    def read(self, task: Task, position: Any) -> Iterator[Yielded]:
        sql = SqlConnection(self._address)
        readers = ChunkReaders(lambda: SqlConnection(self._address), self._snapshot_max_threads)
        binlog: BinlogConnection | None = None
        try:
            server = sql.server()
            for finding in (*check_settings(sql), *check_rights(sql)):
                if finding.is_problem:
                    raise ConnectorRefused(finding.text)
            capture = self._capture(task, sql, readers, server, position)
            binlog = BinlogConnection(
                self._address, task.connector, capture.resume_from, is_mariadb=server.is_mariadb, wake=readers.done
            )
            if position is None:
                task.is_commit_wanted = True  # what is written from now on is not to be missed, whatever happens
                yield [], capture.position
            yield from self._follow(task, capture, binlog)
        finally:
            readers.close()
            if binlog is not None:
                binlog.close()
            sql.close()

    def _follow(self, task: Task, capture: Capture, binlog: BinlogConnection) -> Iterator[Yielded]:
        while True:
            is_idle = True
            for yielded in capture.copy_on():
                is_idle = False
                yield yielded
            task.doing = capture.doing
            for event in binlog.events(WAIT_SECONDS):
                is_idle = False
                for yielded in capture.take(event):
                    task.lag_seconds = capture.lag_seconds(time.time())
                    yield yielded
            if is_idle:
                task.lag_seconds = 0.0
                yield None

    def _capture(self, task: Task, sql: SqlConnection, readers: ChunkReaders, server: Server, position: Any) -> Capture:
        history = SchemaHistory(task.connector)
        task.create_topic(history.topic, partitions=1, configs={"cleanup.policy": "compact"})
        with task.read_topic(history.topic) as reader:
            for fetched in reader:
                history.replay((record.key, record.value) for record in fetched.records)
        if position is None:
            position = self._beginning(sql, server)
        else:
            _refuse_another_server(position, server)
            refuse_purged(position, sql.binlogs())
            _refuse_another_history(position, sql, server)
        catalog = self._catalog(sql)
        catalog.refuse_losses()
        characters = sql.characters()
        envelope: Envelope = ChangeEnvelope()
        if self._envelope == "debezium":
            envelope = DebeziumEnvelope(task.connector, server.identity)
        return Capture(
            readers=readers,
            server=server,
            position=position,
            catalog=catalog,
            choice=self._choice,
            keys=self._keys,
            decodes={number: decode_of(name, characters) for number, name in sql.collations().items()},
            history=history,
            envelope=envelope,
            name_topic=self._topic_of,
            create_topic=lambda topic: task.create_topic(topic, partitions=self._partitions),
            chunk_rows=self._chunk_rows,
            tombstones=self._tombstones,
            transactions_topic=self._transactions_topic,
        )

    def _catalog(self, sql: SqlConnection) -> Catalog:
        return Catalog(sql, self._choice, self._keys, with_cascades=self._cascades == "ignore")

    def _topic_of(self, database: str, table: str) -> str:
        topic = self._topic.format(database=database, table=table)
        if not is_topic_name(topic):
            raise ConnectorRefused(
                f"table {database}.{table}: {topic!r} is no name for a topic, which has letters of ASCII, digits, "
                "dots, dashes and underscores; leave the table out with exclude, or give it a connector of its own, "
                "with another topic"
            )
        return topic

    def _beginning(self, sql: SqlConnection, server: Server) -> dict[str, Any]:
        place = sql.end_of_binlog()
        position: dict[str, Any] = {"server": server.identity, "file": place.file, "pos": place.position, "tables": {}}
        if self._start in ("snapshot", "now"):
            if self._start == "now":
                position["tables"] = dict.fromkeys(self._catalog(sql).table_names(), "done")
            return position
        names = self._catalog(sql).table_names()
        position["tables"] = dict.fromkeys(names, "done")
        given = _place(self._start)
        if given is not None:
            refuse_purged({"file": given.file, "pos": given.position}, sql.binlogs())
            return position | {"file": given.file, "pos": given.position}
        return position | {"after_gtid": self._start}


def _place(text: str) -> Place | None:
    file, _, position = text.rpartition(":")
    return Place(file, int(position)) if file and position.isdecimal() else None


def _refuse_another_server(position: Mapping[str, Any], server: Server) -> None:
    if position["server"] != server.identity:
        raise ConnectorRefused(
            f"this is another server ({server.identity}) than the one that was read before ({position['server']}), and "
            "its binlog has other positions: go back to that one, or 'ottla connect reset' for a new snapshot"
        )


def _refuse_another_history(position: Mapping[str, Any], sql: SqlConnection, server: Server) -> None:
    """The same server, and the same files by name, but what was read is not in them: RESET MASTER, or a backup."""
    gtid = position.get("gtid")
    if gtid is None or "done" in position or position.get("after_gtid"):
        return
    if not sql.holds_transaction(Place(position["file"], position["pos"]), gtid, is_mariadb=server.is_mariadb):
        raise ConnectorRefused(
            f"the binlog at {position['file']}:{position['pos']} does not have transaction {gtid}, which was read "
            "there: it was begun anew, or the server was restored from a backup; 'ottla connect reset' begins with a "
            "new snapshot"
        )


def refuse_purged(position: Mapping[str, Any], files: Mapping[str, int]) -> None:
    if position.get("after_gtid"):
        return
    file, at = position["file"], position["pos"]
    if file not in files or files[file] < at:
        what = "is not there any more" if file not in files else f"has only {files[file]} bytes"
        raise ConnectorRefused(
            f"the binlog {file} at position {at} {what}: changes were lost; 'ottla connect reset' begins with a new "
            "snapshot, and a longer binlog_expire_logs_seconds keeps it from happening again"
        )
    if at >= POSITIONS:
        raise ConnectorRefused(
            f"the binlog {file} at position {at} cannot be asked for: a server is told no position behind 4 GB, and a "
            "transaction made the file that long; 'ottla connect reset' begins with a new snapshot"
        )
