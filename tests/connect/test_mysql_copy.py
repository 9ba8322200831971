"""The copy of tables that the mysql source begins with: chunks, side by side, between the events of the binlog."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.connect.mysql import capture
from ottla.connect.mysql.catalog import Catalog, TableChoice
from ottla.connect.mysql.connection import Address, SqlConnection
from ottla.connect.mysql.snapshot import read_chunk
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
from tests.connect.running import WAIT_SECONDS, records_of, running, until
from tests.connect.test_mysql import ORDERS


def test_tables_are_copied_side_by_side(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three first chunks are read at the same time: each waits for the others."""
    names = ("orders", "others", "third")
    for table in names:
        mariadb.run(
            ORDERS.replace("orders", table),
            f"INSERT INTO {table} SELECT seq, 'first', seq FROM seq_1_to_30",
            database=database,
        )
    first = threading.Barrier(3)

    def read_together(sql: Any, table: Any, after: Any, *arguments: Any, **options: Any) -> Any:
        if after is None:
            first.wait(WAIT_SECONDS)
        return read_chunk(sql, table, after, *arguments, **options)

    monkeypatch.setattr(capture, "read_chunk", read_together)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, chunk_rows=10, snapshot_max_threads=3)):
        for table in names:
            events = wait_for_events(ottla.bootstrap, table, 30)
            assert [event["key"]["id"] for event in events] == list(range(1, 31))
        until(lambda: (found := state_of(ottla.bootstrap)) and "follows" in (found.doing or ""))
        # Nobody is left who would keep a connection.
        until(lambda: not any(thread.name == "mysql-chunks" for thread in threading.enumerate()))


def test_the_binlog_is_followed_past_a_chunk_that_is_being_read(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that comes late holds rows that have changed since: they are not written again as they were."""
    mariadb.run(ORDERS, "INSERT INTO orders SELECT seq, 'first', 0 FROM seq_1_to_40", database=database)

    def read_late(*arguments: Any, **options: Any) -> Any:
        chunk = read_chunk(*arguments, **options)
        seen = len(records_of(ottla.bootstrap, "orders"))
        mariadb.run("UPDATE orders SET amount = amount + 1 WHERE id % 2", database=database)
        mariadb.run("DELETE FROM orders WHERE id IN (6, 36)", database=database)
        until(lambda: len(records_of(ottla.bootstrap, "orders")) >= seen + 20)
        return chunk

    monkeypatch.setattr(capture, "read_chunk", read_late)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, chunk_rows=100)):
        until(lambda: (found := state_of(ottla.bootstrap)) and "follows" in (found.doing or ""))
        events = wait_for_events(ottla.bootstrap, "orders", 20 + 2 + 18)
    check_once(events)
    assert {event["key"]["id"] for event in events if event["op"] == "r"} == set(range(2, 41, 2)) - {6, 36}
    assert table_of(events) == rows_in(mariadb, database, "orders", ["id", "item", "amount"])


def test_several_tables_are_copied_in_turns_by_keys_of_any_kind(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    mariadb.run(
        "CREATE TABLE texts (k VARCHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT)",
        "INSERT INTO texts SELECT CONCAT(IF(seq % 2, 'a', 'B'), seq), seq FROM seq_1_to_50",
        "CREATE TABLE pairs (a ENUM('z', 'y', 'x'), b VARBINARY(4), c BIT(4), PRIMARY KEY (a, b, c))",
        "INSERT INTO pairs SELECT 1 + seq % 3, UNHEX(HEX(seq % 5)), seq % 7 FROM seq_1_to_50 GROUP BY 1, 2, 3",
        "CREATE TABLE floats (k FLOAT PRIMARY KEY)",  # neighbours, which are the same text
        "INSERT INTO floats SELECT 1.123456 + seq * 1.3e-7 FROM seq_1_to_50",
        "CREATE TABLE nokey (x INT, y INT)",
        "INSERT INTO nokey SELECT seq, 0 FROM seq_1_to_30",
        "CREATE TABLE empty (id INT PRIMARY KEY)",
        database=database,
    )
    keys = {f'"{database}.nokey"': ["x"]}
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, chunk_rows=7, keys=keys, snapshot_max_threads=2)):
        until(lambda: (found := state_of(ottla.bootstrap)) and (found.error or "follows" in (found.doing or "")))
        assert state_of(ottla.bootstrap).error is None
        mariadb.run("UPDATE nokey SET y = 1 WHERE x = 3", database=database)
        wait_for_events(ottla.bootstrap, "nokey", 31)
    for table in ("texts", "pairs", "floats"):
        [[count]] = mariadb.run(f"SELECT count(*) FROM {database}.{table}")
        events = events_of(ottla.bootstrap, table)
        assert len(events) == count == len(table_of(events))
    last = events_of(ottla.bootstrap, "nokey")[-1]
    assert (last["op"], last["key"], last["before"]["y"], last["after"]["y"]) == ("u", {"x": 3}, 0, 1)


def test_a_table_with_an_index_in_place_of_a_primary_key_is_read_in_chunks(mariadb: MariaDb, database: str) -> None:
    mariadb.run(
        "CREATE TABLE both_ways (x INT NOT NULL, y INT NOT NULL, UNIQUE (x, y))",
        "INSERT INTO both_ways SELECT seq % 3, seq FROM seq_1_to_20",
        "CREATE TABLE nulls (x INT, UNIQUE (x))",
        "CREATE TABLE beginnings (x VARCHAR(20) NOT NULL, UNIQUE (x(2)))",
        "CREATE TABLE often (x INT NOT NULL, KEY (x))",
        database=database,
    )
    wanted = {"both_ways": ["x", "y"], "nulls": ["x"], "beginnings": ["x"], "often": ["x"]}
    sql = SqlConnection(Address("127.0.0.1", mariadb.port, "root", ""))
    try:
        catalog = Catalog(
            sql, TableChoice([f"{database}.*"], []), {f"{database}.{name}": keys for name, keys in wanted.items()}
        )
        tables = {name: catalog.describe(f"{database}.{name}") for name in wanted}
        assert {name: table is not None and table.is_ordered for name, table in tables.items()} == {
            "both_ways": True, "nulls": False, "beginnings": False, "often": False,
        }  # fmt: skip
        table = tables["both_ways"]
        assert table is not None
        found, after = [], None
        for _ in range(3):
            chunk = read_chunk(sql, table, after, 8, is_mariadb=True)
            found += [json.loads(key) for key, _ in chunk.rows]
            after = chunk.last_key
        assert found == sorted(({"x": seq % 3, "y": seq} for seq in range(1, 21)), key=lambda key: (key["x"], key["y"]))
        assert after is None
    finally:
        sql.close()


def test_a_chunk_waits_for_the_binlog_to_reach_its_place(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows change just before each chunk is read, when the binlog has not been followed so far."""
    mariadb.run(ORDERS, "INSERT INTO orders SELECT seq, 'first', 0 FROM seq_1_to_40", database=database)

    def read_behind_a_change(*arguments: Any, **options: Any) -> Any:
        mariadb.run("UPDATE orders SET amount = amount + 1 WHERE id % 2", database=database)
        return read_chunk(*arguments, **options)

    monkeypatch.setattr(capture, "read_chunk", read_behind_a_change)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, chunk_rows=10)):
        until(lambda: (found := state_of(ottla.bootstrap)) and "follows" in (found.doing or ""))
        events = wait_for_events(ottla.bootstrap, "orders", 20 + 5 * 20)
    check_once(events)
    # A row whose change is there anyway is not copied.
    assert {event["key"]["id"] for event in events if event["op"] == "r"} == set(range(2, 41, 2))
    assert table_of(events) == rows_in(mariadb, database, "orders", ["id", "item", "amount"])


def test_without_a_place_of_its_own_a_chunk_leaves_out_what_changes_around_it(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the copy is made of MySQL: between the ends of the binlog before and after a chunk."""
    mariadb.run(ORDERS, "INSERT INTO orders SELECT seq, 'first', 0 FROM seq_1_to_40", database=database)
    query = SqlConnection.query

    def query_amid_changes(sql: SqlConnection, statement: str, arguments: Any = ()) -> Any:
        is_chunk = statement.startswith("SELECT `id`")
        if is_chunk:
            mariadb.run("UPDATE orders SET amount = 1 WHERE id % 10 = 3", database=database)
        found = query(sql, statement, arguments)
        if is_chunk:
            mariadb.run("UPDATE orders SET amount = 2 WHERE id % 10 IN (3, 5)", database=database)
            mariadb.run("DELETE FROM orders WHERE id = 37", database=database)
        return found

    def read_as_of_mysql(*arguments: Any, is_mariadb: bool) -> Any:
        return read_chunk(*arguments, is_mariadb=False)

    monkeypatch.setattr(capture, "read_chunk", read_as_of_mysql)
    monkeypatch.setattr(SqlConnection, "query", query_amid_changes)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        until(lambda: (found := state_of(ottla.bootstrap)) and "follows" in (found.doing or ""))
    events = events_of(ottla.bootstrap, "orders")
    check_once(events)
    copied = {event["key"]["id"] for event in events if event["op"] == "r"}
    assert copied == {number for number in range(1, 41) if number % 10 not in (3, 5) and number != 37}
    assert table_of(events) == rows_in(mariadb, database, "orders", ["id", "item", "amount"])
