"""What the binlog does not tell of tables is refused with a sentence, before rows are lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.connect.check import check_connector
from ottla.connect.configuration import load
from ottla.connect.mysql.connection import SqlConnection
from ottla.testing import LocalBroker
from tests.connect.mariadb import MariaDb
from tests.connect.mysql_running import events_of, rows_in, source, state_of, table_of, wait_for_events
from tests.connect.running import running, until, write_file
from tests.connect.test_mysql import ORDERS, failed_with

ITEMS = """CREATE TABLE items (
    id INT PRIMARY KEY, order_id INT, CONSTRAINT of_order FOREIGN KEY (order_id) REFERENCES orders (id) ON DELETE {rule}
)"""


def problems_of(folder: Path, bootstrap: str, mariadb: MariaDb, database: str) -> list[str]:
    configuration = load(write_file(folder / "c.toml", bootstrap, source(mariadb, database)))
    findings = check_connector(configuration, configuration.connectors["shop"])
    return [finding.text for finding in findings if finding.is_problem]


@pytest.fixture
def other_database(mariadb: MariaDb, database: str) -> Iterator[str]:
    """Its tables have foreign keys to those of the first, and are dropped before them."""
    name = f"{database}_other"
    mariadb.run(f"CREATE DATABASE {name}")
    yield name
    mariadb.run(f"DROP DATABASE {name}")


def test_foreign_keys_that_change_rows(
    ottla: LocalBroker, mariadb: MariaDb, database: str, other_database: str, tmp_path: Path
) -> None:
    """The server deletes rows of `items` with those of `orders`, and the binlog has only these."""
    mariadb.run(ORDERS, ITEMS.format(rule="CASCADE"), database=database)
    mariadb.run(
        ITEMS.format(rule="CASCADE").replace("orders", f"{database}.orders"), database=other_database
    )  # not wanted
    sentence = (
        f"table {database}.items: its foreign key of_order says ON DELETE CASCADE, and rows that the server changes"
    )
    [problem] = problems_of(tmp_path, ottla.bootstrap, mariadb, database)
    assert problem.startswith(sentence)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        assert failed_with(ottla.bootstrap).startswith(sentence)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database, cascades="ignore")):
        until(lambda: (found := state_of(ottla.bootstrap)) and "follows" in (found.doing or ""))


def test_a_foreign_key_that_comes_later(ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    mariadb.run(ORDERS, ITEMS.format(rule="RESTRICT"), "INSERT INTO orders VALUES (1, 'a', 1)", database=database)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        wait_for_events(ottla.bootstrap, "orders", 1)
        mariadb.run(
            "INSERT INTO orders VALUES (2, 'b', 1)",
            "ALTER TABLE items ADD CONSTRAINT more FOREIGN KEY (order_id) REFERENCES orders (id) ON UPDATE SET NULL",
            database=database,
        )
        assert "its foreign key more says ON UPDATE SET NULL" in failed_with(ottla.bootstrap)
        assert len(events_of(ottla.bootstrap, "orders")) == 2  # what came before it is there


def test_rows_that_go_by_an_alter_that_ignores_them(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    """The binlog has the statement, and none of the rows."""
    mariadb.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 3)", database=database)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        wait_for_events(ottla.bootstrap, "orders", 3)
        mariadb.run("ALTER IGNORE TABLE orders ADD UNIQUE (item)", database=database)
        left = rows_in(mariadb, database, "orders", ["id", "item", "amount"])
        assert len(left) == 2
        events = wait_for_events(ottla.bootstrap, "orders", 6)
    assert [event["op"] for event in events[3:]] == ["t", "r", "r"]
    assert events[3]["position"] <= events[4]["position"]
    assert table_of(events[4:]) == left


def test_xa_transactions(ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    insert = "INSERT INTO orders VALUES ({}, 'a', 1)"
    mariadb.run(ORDERS, insert.format(1), database=database)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        wait_for_events(ottla.bootstrap, "orders", 1)
        mariadb.run("XA START 'x'", insert.format(2), "XA END 'x'", "XA COMMIT 'x' ONE PHASE", database=database)
        wait_for_events(ottla.bootstrap, "orders", 2)
        mariadb.run(
            "XA START 'x'", insert.format(3), "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'", database=database
        )
        told = failed_with(ottla.bootstrap)
    assert "holds an XA transaction" in told
    assert "committed without XA PREPARE, and 'ottla connect reset'" in told
    assert [event["key"]["id"] for event in events_of(ottla.bootstrap, "orders")] == [1, 2]


def test_tables_with_a_history(ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    mariadb.run(ORDERS, f"{ORDERS.replace('orders', 'old')} WITH SYSTEM VERSIONING", database=database)
    [problem] = problems_of(tmp_path, ottla.bootstrap, mariadb, database)
    assert problem.startswith(f"table {database}.old is system-versioned, and the binlog has its old rows beside")


def test_sequences_are_no_tables(ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    mariadb.run(ORDERS, "CREATE SEQUENCE numbers", database=database)
    insert = "INSERT INTO orders SELECT NEXTVAL(numbers), 'a', 1"
    mariadb.run(insert, database=database)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        wait_for_events(ottla.bootstrap, "orders", 1)
        mariadb.run(insert, "ALTER SEQUENCE numbers RESTART 50", insert, "DROP SEQUENCE numbers", database=database)
        events = wait_for_events(ottla.bootstrap, "orders", 3)
    assert [event["key"]["id"] for event in events] == [1, 2, 50]


@pytest.mark.parametrize(("only", "ignored"), [("shop,other", ""), ("", "{database}")])
def test_databases_that_the_binlog_leaves_out(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: str,
    ignored: str,
) -> None:  # fmt: skip
    mariadb.run(ORDERS, database=database)
    status = SqlConnection._binlog_status

    def filtered(sql: SqlConnection) -> tuple[str, ...]:
        file, position, *_ = status(sql)
        return file, position, only, ignored.format(database=database)

    monkeypatch.setattr(SqlConnection, "_binlog_status", filtered)
    [problem] = problems_of(tmp_path, ottla.bootstrap, mariadb, database)
    setting = "binlog_do_db" if only else "binlog_ignore_db"
    assert problem.startswith(f"database {database} is left out of the binlog by {setting}, and its rows would be lost")


def test_a_replica_that_does_not_log_what_it_copies(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    mariadb.run(ORDERS, database=database)
    mariadb.run("CHANGE MASTER 'main' TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'nobody'")
    try:
        [problem] = problems_of(tmp_path, ottla.bootstrap, mariadb, database)
    finally:
        mariadb.run("RESET SLAVE 'main' ALL")
    assert problem.startswith("the server is a replica, and log_slave_updates is OFF: what it copies")
    assert problems_of(tmp_path, ottla.bootstrap, mariadb, database) == []
