"""The mysql source: snapshot and binlog together, restarts, statements that change tables, and what it refuses."""

import json
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.client import ClientOptions
from ottla.connect.check import check_connector
from ottla.connect.configuration import load
from ottla.connect.interface import ConnectorRefused
from ottla.connect.mysql import capture
from ottla.connect.mysql.checks import check_rights
from ottla.connect.mysql.connection import Address, Server, SqlConnection
from ottla.connect.mysql.source import _refuse_another_history, _refuse_another_server
from ottla.connect.positions import Positions
from ottla.connect.source_work import Gathered
from ottla.pipelines.tables.event import read_event
from ottla.testing import LocalBroker
from tests.connect.mariadb import MariaDb
from tests.connect.mysql_running import (
    check_once,
    events_of,
    rows_in,
    source,
    state_of,
    table_of,
    wait_for_events,
)
from tests.connect.running import RunnerProcess, records_of, running, until, write_file

ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(40), amount INT)"


def failed_with(bootstrap: str) -> str:
    told = until(lambda: (found := state_of(bootstrap)) and found.state == "failed" and found)
    assert isinstance(told.error, str)
    return told.error


class Load(threading.Thread):
    """Random statements until it is stopped, one connection."""

    def __init__(self, mariadb: MariaDb, database: str, seed: int, tables: Sequence[str] = ("orders",)) -> None:
        super().__init__(daemon=True)
        self._tables = tables
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.count = 0
        self._mariadb, self._database = mariadb, database

    def run(self) -> None:
        connection = self._mariadb.connect(self._database)
        with connection.cursor() as cursor:
            while not self.stopping.wait(0.002):
                self._one(cursor)
        connection.close()

    def _one(self, cursor: Any) -> None:
        key, table = self.random.randrange(400), self.random.choice(self._tables)
        match self.random.randrange(10):
            case 0 | 1 | 2 | 3:
                cursor.execute(
                    f"REPLACE INTO {table} (id, item, amount) VALUES (%s, %s, %s)", (key, f"é{key}", self.count)
                )
            case 4 | 5 | 6:
                cursor.execute(f"UPDATE {table} SET amount = amount + 1 WHERE id BETWEEN %s AND %s", (key, key + 5))
            case 7:
                cursor.execute(f"UPDATE IGNORE {table} SET id = %s WHERE id = %s", (self.random.randrange(400), key))
            case 8:
                cursor.execute(f"DELETE FROM {table} WHERE id = %s", (key,))
            case _:
                cursor.execute("BEGIN")
                cursor.execute(f"INSERT IGNORE INTO {table} (id, item, amount) VALUES (%s, 'x', 0)", (key,))
                cursor.execute("SAVEPOINT s")
                cursor.execute(f"DELETE FROM {table} WHERE id = %s", (key + 1,))
                if self.random.random() < 0.5:
                    cursor.execute("ROLLBACK TO s")
                cursor.execute("COMMIT" if self.random.random() < 0.8 else "ROLLBACK")
        self.count += 1


def test_killed_runners_lose_and_double_nothing(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    """Tables are copied side by side in small chunks under load, runners are killed in it and behind it, a column is
    added, the binlog rotated."""
    others = ("others", "third")
    for table in ("orders", *others):
        mariadb.run(
            ORDERS.replace("orders", table),
            f"INSERT INTO {table} SELECT seq, 'first', seq FROM seq_0_to_399",
            database=database,
        )
    connectors = source(mariadb, database, chunk_rows=20)
    file = write_file(tmp_path / "shop.toml", ottla.bootstrap, connectors, session_timeout_ms=1_500)
    load = Load(mariadb, database, seed=1, tables=("orders", *others))
    load.start()
    try:
        for more in (60, 250):
            with RunnerProcess(file) as runner:
                seen = len(records_of(ottla.bootstrap, "orders"))
                wait_for_events(ottla.bootstrap, "orders", seen + more)
                runner.kill()
            mariadb.run("FLUSH BINARY LOGS")
        mariadb.run("ALTER TABLE orders ADD COLUMN note VARCHAR(10) DEFAULT 'n' AFTER id", database=database)
        done = load.count
        until(lambda: load.count > done + 30)
    finally:
        load.stopping.set()
        load.join()
    mariadb.run("INSERT INTO orders (id, item) VALUES (1000, 'last')", database=database)
    columns = ["id", "note", "item", "amount"]
    rows = rows_in(mariadb, database, "orders", columns)  # the default is in all of them
    with RunnerProcess(file) as runner:
        until(lambda: table_of(events_of(ottla.bootstrap, "orders")) == rows)
        wanted = [rows_in(mariadb, database, table, ["id", "item", "amount"]) for table in others]
        until(lambda: [table_of(events_of(ottla.bootstrap, table)) for table in others] == wanted)
        runner.stop()
    for table in others:
        check_once(events_of(ottla.bootstrap, table))
    events = events_of(ottla.bootstrap, "orders")
    check_once(events)
    assert table_of(events) == rows
    versions = {event["schema"]["version"]: list(event["schema"]["columns"]) for event in events}
    assert versions == {1: ["id", "item", "amount"], 2: columns}


def test_a_long_transaction_is_cut_and_goes_on_where_it_was(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    mariadb.run(ORDERS, database=database)
    connectors = source(mariadb, database, start="now", transaction_records=1, transactions_topic="transactions")
    with running(tmp_path, ottla.bootstrap, connectors):
        until(lambda: (found := state_of(ottla.bootstrap)) and found.doing and "follows" in found.doing)
        mariadb.run("INSERT INTO orders SELECT seq, 'many', seq FROM seq_1_to_17000", database=database)
        wait_for_events(ottla.bootstrap, "orders", 5_000)
    seen = len(records_of(ottla.bootstrap, "orders"))
    position = Positions(ottla.bootstrap, ClientOptions(), "shop", 1).read_own(0)
    assert ("done" in position) == (seen < 17_000)
    with running(tmp_path, ottla.bootstrap, connectors):
        events = wait_for_events(ottla.bootstrap, "orders", 17_000)
        until(lambda: events_of(ottla.bootstrap, "transactions"))
    assert [event["key"]["id"] for event in events] == list(range(1, 17_001))
    (ended,) = events_of(ottla.bootstrap, "transactions")
    assert (ended["rows"], ended["id"]) == (17_000, events[0]["transaction"])


def test_large_rows_are_handed_on_some_at_a_time(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copy and of a transaction, for both are held in memory."""
    monkeypatch.setattr(capture, "CHUNK_BYTES", 300_000)
    monkeypatch.setattr(capture, "CUT_BYTES", 300_000)
    insert = "INSERT INTO documents SELECT seq, REPEAT('x', 60000) FROM seq_{}_to_{}"
    mariadb.run(
        "CREATE TABLE documents (id INT PRIMARY KEY, text MEDIUMTEXT)",
        insert.format(1, 20),
        "ANALYZE TABLE documents",
        database=database,
    )
    handed_on: list[int] = []
    add = Gathered.add

    def noting(gathered: Gathered, records: list[Any], position: Any, now: float) -> None:
        handed_on.append(len(records))
        add(gathered, records, position, now)

    monkeypatch.setattr(Gathered, "add", noting)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        wait_for_events(ottla.bootstrap, "documents", 20)
        mariadb.run(insert.format(21, 40), database=database)
        events = wait_for_events(ottla.bootstrap, "documents", 40)
    assert [event["key"]["id"] for event in events] == list(range(1, 41))
    assert max(handed_on) < 10


def test_keys_that_change_tables_that_come_and_truncates(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    mariadb.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)", database=database)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, tombstones=True)):
        wait_for_events(ottla.bootstrap, "orders", 1)
        mariadb.run("UPDATE orders SET id = 2", database=database)
        mariadb.run(
            "CREATE TABLE later (a VARCHAR(5), b ENUM('y', 'x'), n INT, PRIMARY KEY (b, a))",
            "INSERT INTO later VALUES ('é', 'x', 1)",
            "RENAME TABLE orders TO orders_2",
            "TRUNCATE TABLE `later`",
            database=database,
        )
        wait_for_events(ottla.bootstrap, "orders", 4)
        wait_for_events(ottla.bootstrap, "orders_2", 1)
        wait_for_events(ottla.bootstrap, "later", 2)
    changes = [
        (record.key, record.value and json.loads(record.value)) for record in records_of(ottla.bootstrap, "orders")
    ]
    assert [(key, value and value["op"]) for key, value in changes] == [
        (b'{"id":1}', "r"),
        (b'{"id":1}', "d"),
        (b'{"id":1}', None),
        (b'{"id":2}', "c"),
    ]
    assert changes[3][1]["after"] == {"id": 2, "item": "a", "amount": 1}
    assert [event["op"] for event in events_of(ottla.bootstrap, "later")] == ["c", "t"]
    assert events_of(ottla.bootstrap, "later")[0]["key"] == {"b": "x", "a": "é"}
    assert [event["op"] for event in events_of(ottla.bootstrap, "orders_2")] == ["r"]
    statements = [
        json.loads(record.value).get("statement")
        for record in records_of(ottla.bootstrap, "ottla-connect.shop.schemas")
    ]
    assert [each.split()[0] for each in statements if each] == ["CREATE", "RENAME", "TRUNCATE"]


def test_debeziums_envelope_is_what_the_pipeline_reads(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    mariadb.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)", database=database)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, envelope="debezium")):
        wait_for_events(ottla.bootstrap, "orders", 1)
        mariadb.run("UPDATE orders SET amount = 2", database=database)
        wait_for_events(ottla.bootstrap, "orders", 2)
    records = records_of(ottla.bootstrap, "orders")
    events = [read_event(json.loads(record.value), record.key) for record in records]
    assert [(event.operation, event.key, event.table) for event in events] == [
        ("r", {"id": 1}, f"{database}.orders"),
        ("u", {"id": 1}, f"{database}.orders"),
    ]
    first, second = (event.position for event in events)
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert first < second
    assert events[1].after == {"id": 1, "item": "a", "amount": 2}
    assert json.loads(records[1].value)["source"]["server_id"] == 7


@pytest.mark.parametrize("kind", ["gtid", "place"])
def test_it_begins_where_it_is_told(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path, kind: str
) -> None:
    mariadb.run(ORDERS, "INSERT INTO orders VALUES (1, 'before', 1)", database=database)
    gtid = mariadb.run("SELECT @@gtid_binlog_pos")[0][0]
    file, position = mariadb.run("SHOW MASTER STATUS")[0][:2]
    mariadb.run("INSERT INTO orders VALUES (2, 'behind', 1)", "SET GLOBAL log_bin_compress = ON", database=database)
    mariadb.run("INSERT INTO orders SELECT seq, REPEAT('x', 40), 1 FROM seq_3_to_60", database=database)
    mariadb.run("SET GLOBAL log_bin_compress = OFF")
    start = gtid if kind == "gtid" else f"{file}:{position}"
    for _ in range(2):
        with running(tmp_path, ottla.bootstrap, source(mariadb, database, start=start)):
            events = wait_for_events(ottla.bootstrap, "orders", 59)
            until(lambda: (found := state_of(ottla.bootstrap)) and "follows" in (found.doing or ""))
    assert [event["key"]["id"] for event in events] == list(range(2, 61))


def test_the_server_is_started_again(ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    """It is the same server then, with another file of the binlog."""
    mariadb.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)", database=database)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, backoff_ms=50, retries=1000)):
        wait_for_events(ottla.bootstrap, "orders", 1)
        mariadb.stop()
        until(lambda: state_of(ottla.bootstrap).error)
        mariadb.start()
        mariadb.run("INSERT INTO orders VALUES (2, 'b', 1)", database=database)
        until(lambda: len(records_of(ottla.bootstrap, "orders")) >= 2)
    assert [event["key"]["id"] for event in events_of(ottla.bootstrap, "orders")] == [1, 2]


def test_a_table_that_comes_from_another_database_is_copied(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    mariadb.run(f"CREATE DATABASE other_{database}")
    mariadb.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)", database=f"other_{database}")
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, start="now")):
        until(lambda: (found := state_of(ottla.bootstrap)) and "follows" in (found.doing or ""))
        mariadb.run(f"RENAME TABLE orders TO {database}.moved", database=f"other_{database}")
        assert [event["op"] for event in wait_for_events(ottla.bootstrap, "moved", 1)] == ["r"]
        mariadb.run(f"TRUNCATE TABLE {database}.moved", database=f"other_{database}")
        assert [event["op"] for event in wait_for_events(ottla.bootstrap, "moved", 2)] == ["r", "t"]
    mariadb.run(f"DROP DATABASE other_{database}")


def test_a_table_that_takes_the_name_of_another_is_copied(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    """As tools do that change large tables: they fill a second one, and give it the name of the first."""
    fill = "INSERT INTO changed VALUES (1, 'new', 1)"
    mariadb.run(ORDERS, "INSERT INTO orders VALUES (1, 'old', 1)", database=database)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, exclude=[f"{database}.changed"])):
        wait_for_events(ottla.bootstrap, "orders", 1)
        mariadb.run("CREATE TABLE changed LIKE orders", fill, database=database)
        mariadb.run("RENAME TABLE orders TO orders_old, changed TO orders", database=database)
        events = wait_for_events(ottla.bootstrap, "orders", 2)
    assert [(event["op"], event["after"]["item"]) for event in events] == [("r", "old"), ("r", "new")]


def test_where_it_begins_is_kept_before_anything_comes(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    """Killed before the first change, it would begin at a later moment, and that change be lost."""
    mariadb.run(ORDERS, database=database)
    positions = Positions(ottla.bootstrap, ClientOptions(), "shop", 1)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, start="now", transaction_ms=60_000)):
        until(lambda: (found := state_of(ottla.bootstrap)) and "follows" in (found.doing or ""))
        file, position = mariadb.run("SHOW MASTER STATUS")[0][:2]
        stored = positions.read_own(0)
        assert (stored["file"], stored["pos"]) == (file, position)


# What it refuses.


def test_settings_under_which_rows_would_be_lost(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    mariadb.run(ORDERS, "CREATE TABLE nokey (x INT)", database=database)
    configuration = load(write_file(tmp_path / "c.toml", ottla.bootstrap, source(mariadb, database)))
    connector = configuration.connectors["shop"]
    changed = ("binlog_row_image = 'MINIMAL'", "binlog_row_metadata = 'MINIMAL'", "binlog_format = 'MIXED'")
    try:
        mariadb.run(*(f"SET GLOBAL {setting}" for setting in changed))
        problems = [finding.text for finding in check_connector(configuration, connector) if finding.is_problem]
    finally:
        mariadb.run("SET GLOBAL binlog_row_image = 'FULL'", "SET GLOBAL binlog_row_metadata = 'FULL'")
        mariadb.run("SET GLOBAL binlog_format = 'ROW'")
    assert [problem.partition(" is ")[0] for problem in problems[:3]] == [
        "binlog_format",
        "binlog_row_image",
        "binlog_row_metadata",
    ]
    assert problems[3].startswith(f"table {database}.nokey: it has no primary key; name columns that are unique with")
    good = [finding.text for finding in check_connector(configuration, connector) if not finding.is_problem]
    assert good[-1] == f"2 tables: {database}.nokey, {database}.orders"
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        assert failed_with(ottla.bootstrap).startswith(f"table {database}.nokey: it has no primary key")


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("binlog_row_image = 'MINIMAL'", "has only some columns of its rows; set binlog_row_image=FULL"),
        ("binlog_format = 'STATEMENT'", "holds a statement in place of rows (UPDATE ...): set binlog_format=ROW"),
    ],
)
def test_a_session_that_writes_less_than_rows(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path, setting: str, sentence: str
) -> None:
    mariadb.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)", database=database)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        wait_for_events(ottla.bootstrap, "orders", 1)
        mariadb.run(f"SET SESSION {setting}", "UPDATE orders SET amount = 2", database=database)
        assert sentence in failed_with(ottla.bootstrap)


def test_a_binlog_that_was_purged(ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    mariadb.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)", database=database)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        wait_for_events(ottla.bootstrap, "orders", 1)
    mariadb.run("FLUSH BINARY LOGS")
    file = mariadb.run("SHOW MASTER STATUS")[0][0]

    def is_purged() -> bool:
        """The server keeps a file as long as it has not noticed that its reader is gone."""
        mariadb.run(f"PURGE BINARY LOGS TO '{file}'")
        return [name for name, *_ in mariadb.run("SHOW BINARY LOGS")] == [file]

    until(is_purged)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        error = failed_with(ottla.bootstrap)
    assert "is not there any more: changes were lost; 'ottla connect reset' begins with a new snapshot" in error


def test_a_binlog_that_was_begun_anew(mariadb: MariaDb, database: str) -> None:
    mariadb.run(ORDERS, database=database)
    gtid = mariadb.run("SELECT @@gtid_binlog_pos")[0][0]
    file, place = mariadb.run("SHOW MASTER STATUS")[0][:2]
    sql = SqlConnection(Address("127.0.0.1", mariadb.port, "root", ""))
    position = {"file": file, "pos": place, "gtid": gtid}
    try:
        _refuse_another_history(position, sql, sql.server())
        with pytest.raises(ConnectorRefused, match=r"does not have transaction 0-7-999999999, which was read there"):
            _refuse_another_history(position | {"gtid": "0-7-999999999"}, sql, sql.server())
    finally:
        sql.close()


def test_another_server() -> None:
    with pytest.raises(ConnectorRefused, match=r"this is another server \(7/b\) than the one that was read before"):
        _refuse_another_server({"server": "7/a"}, Server("10.11-MariaDB", True, "7/b"))


def test_a_wrong_password_is_told_and_not_shown(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    mariadb.run(f"CREATE USER u_{database}@'127.0.0.1' IDENTIFIED BY 'right'", database=database)
    settings = source(mariadb, database, user=f"u_{database}", password="hunter2")
    with running(tmp_path, ottla.bootstrap, settings):
        error = failed_with(ottla.bootstrap)
    assert "Access denied" in error
    assert "hunter2" not in error
    # One who may log in, and not look at the binlog; then one who may, and may not be sent it.
    for grant in ("USAGE", "BINLOG MONITOR, SELECT"):
        mariadb.run(f"GRANT {grant} ON *.* TO u_{database}@'127.0.0.1'")
        sql = SqlConnection(Address("127.0.0.1", mariadb.port, f"u_{database}", "right"))
        (finding,) = check_rights(sql)
        assert "may not look at the binlog" in finding.text
        sql.close()
    mariadb.run(f"DROP USER u_{database}@'127.0.0.1'")
