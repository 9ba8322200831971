"""Tables whose names a statement writes in another way than the binlog has them with its rows."""

from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from ottla.testing import LocalBroker
from tests.connect.mariadb import MariaDb, why_missing
from tests.connect.mysql_running import source, table_of, wait_for_events
from tests.connect.running import running

FILLED = {'{"id": 1}': {"id": 1, "points": 7}, '{"id": 2}': {"id": 2, "points": 7}}


def test_a_client_that_speaks_latin_1(ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    """The binlog has its statements as it sent them."""
    name = "\u00fcbung"
    mariadb.run(f"CREATE TABLE {name} (id INT PRIMARY KEY)", f"INSERT INTO {name} VALUES (1), (2)", database=database)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, topic="all")):
        wait_for_events(ottla.bootstrap, "all", 2)
        client = pymysql.connect(
            host="127.0.0.1", port=mariadb.port, user="root", database=database, charset="latin1", autocommit=True
        )
        with client, client.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {name} ADD points INT NOT NULL DEFAULT 7")
        events = wait_for_events(ottla.bootstrap, "all", 4)
    assert [event["op"] for event in events] == ["r"] * 4
    assert table_of(events) == FILLED


@pytest.fixture
def lower_case_mariadb(mariadb: MariaDb, tmp_path: Path) -> Iterator[MariaDb]:
    """As on Windows. `mariadb` says that one is there, and where all that need one run."""
    assert why_missing() is None
    with MariaDb(tmp_path / "lower", lower_case_table_names="1") as started:
        yield started


def test_names_in_capitals(ottla: LocalBroker, lower_case_mariadb: MariaDb, tmp_path: Path) -> None:
    lower_case_mariadb.run(
        "CREATE DATABASE Shop",
        "CREATE TABLE Shop.Orders (id INT PRIMARY KEY)",
        "INSERT INTO Shop.Orders VALUES (1), (2)",
    )
    with running(tmp_path, ottla.bootstrap, source(lower_case_mariadb, "shop")):
        wait_for_events(ottla.bootstrap, "orders", 2)
        lower_case_mariadb.run("ALTER TABLE Shop.ORDERS ADD points INT NOT NULL DEFAULT 7")
        events = wait_for_events(ottla.bootstrap, "orders", 4)
        assert table_of(events) == FILLED
        lower_case_mariadb.run("TRUNCATE TABLE Shop.Orders")
        assert wait_for_events(ottla.bootstrap, "orders", 5)[4]["op"] == "t"
