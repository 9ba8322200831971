"""By hand: `python -m tests.connect.real_mysql`. The mysql source against a real MySQL, and its binlog recorded.

Runners are killed while tables are copied under a random load, and the topic is compared with the table; JSON of every
form, and at random, is compared with what the server shows of it. Then some statements are executed, and the events of
their binlog are written to files, which test_mysql_recorded.py and test_binary_json.py read: they need no server.
"""

import gzip
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ottla.connect.mysql.binlog import HEARTBEAT, HEARTBEAT_2, Place
from ottla.connect.mysql.connection import Address, BinlogConnection
from ottla.testing import LocalBroker
from tests.connect import mysql_documents as documents
from tests.connect.mysql_running import check_once, events_of, rows_in, source, table_of, wait_for_events
from tests.connect.mysql_server import MySql
from tests.connect.running import RunnerProcess, records_of, until, write_file
from tests.connect.test_mysql import ORDERS, Load

RECORDED = Path(__file__).with_name("mysql_binlog.txt")
RECORDED_DOCUMENTS = Path(__file__).with_name("mysql_documents.txt.gz")
RANDOM_DOCUMENTS = 2_000
DATABASE = "shop"
STATEMENTS = (
    """CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(20), price DECIMAL(20,4), flags SET('a', 'b'),
    size ENUM('s', 'é'), at DATETIME(3), length TIME(2), bits BIT(9), code CHAR(3) CHARACTER SET latin1,
    data VARBINARY(9), big BIGINT UNSIGNED, made INT GENERATED ALWAYS AS (id + 1) STORED,
    hidden INT DEFAULT 3 INVISIBLE)""",
    """INSERT INTO orders (id, item, price, flags, size, at, length, bits, code, data, big) VALUES
    (1, '日本', -1.5, 'a,b', 'é', '2026-01-02 03:04:05.678', '-12:30:01.5', 257, 'é', x'00ff', 18446744073709551615),
    (2, NULL, 0.0001, '', 's', NULL, '00:00:00', 0, '', '', 0)""",
    "UPDATE orders SET item = 'other' WHERE id = 1",
    "UPDATE orders SET id = 5 WHERE id = 2",
    "ALTER TABLE orders ADD note TEXT",
    "DELETE FROM orders WHERE id = 5",
    "CREATE TABLE taken (id INT PRIMARY KEY) AS SELECT id FROM orders",
    "TRUNCATE TABLE taken",
)


def kills(mysql: MySql) -> None:
    mysql.run(f"CREATE DATABASE {DATABASE}")
    mysql.run(ORDERS, database=DATABASE)
    rows = ", ".join(f"({number}, 'first', {number})" for number in range(400))
    mysql.run(f"INSERT INTO orders VALUES {rows}", database=DATABASE)
    with tempfile.TemporaryDirectory(prefix="ottla-") as folder:
        broker = LocalBroker(f"{folder}/broker", settings={"group.min.session.timeout.ms": "100"})
        try:
            connectors = source(mysql, DATABASE, chunk_rows=20)
            file = write_file(Path(folder) / "shop.toml", broker.bootstrap, connectors, session_timeout_ms=1_500)
            load = Load(mysql, DATABASE, seed=1)
            load.start()
            for more in (60, 250, 500, 900):
                with RunnerProcess(file) as runner:
                    seen = len(records_of(broker.bootstrap, "orders"))
                    wait_for_events(broker.bootstrap, "orders", seen + more)
                    runner.kill()
                mysql.run("FLUSH BINARY LOGS")
                print(f"killed behind {seen + more} changes", flush=True)
            load.stopping.set()
            load.join()
            wanted = rows_in(mysql, DATABASE, "orders", ["id", "item", "amount"])
            with RunnerProcess(file) as runner:
                until(lambda: table_of(events_of(broker.bootstrap, "orders")) == wanted)
                runner.stop()
            events = events_of(broker.bootstrap, "orders")
            check_once(events)
            print(
                f"{len(events)} changes of {len(wanted)} rows: topic and table are equal, none came twice", flush=True
            )
        finally:
            broker.stop()


def compare_documents(mysql: MySql) -> None:
    """Some are copied, others come through the binlog, and all are changed: the topic has what the server shows."""
    mysql.run(f"CREATE DATABASE {documents.DATABASE}")
    rows = documents.expressions()
    more = documents.random_expressions(1, RANDOM_DOCUMENTS) + documents.random_doubles(2, RANDOM_DOCUMENTS)
    mysql.run("SET sql_mode = ''", documents.TABLE, *documents.fill(rows), database=documents.DATABASE)
    with tempfile.TemporaryDirectory(prefix="ottla-") as folder:
        broker = LocalBroker(f"{folder}/broker")
        try:
            connectors = source(mysql, documents.DATABASE)
            with RunnerProcess(write_file(Path(folder) / "shop.toml", broker.bootstrap, connectors)) as runner:
                wait_for_events(broker.bootstrap, "documents", len(rows))
                shown = ["id", "document"]
                copied = table_of(events_of(broker.bootstrap, "documents"))
                assert copied == rows_in(mysql, documents.DATABASE, "documents", shown)
                again = ["SET sql_mode = ''", "DELETE FROM documents", *documents.fill(rows + more), *documents.UPDATES]
                mysql.run(*again, database=documents.DATABASE)
                wanted = rows_in(mysql, documents.DATABASE, "documents", shown)
                until(lambda: table_of(events_of(broker.bootstrap, "documents")) == wanted)
                runner.stop()
        finally:
            broker.stop()
    print(f"{len(rows)} documents that were copied, and {len(wanted)} of the binlog, are as the server shows them")


def record(mysql: MySql, database: str, statements: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """What they write to the binlog, and where that was."""
    mysql.run(f"DROP DATABASE IF EXISTS {database}", f"CREATE DATABASE {database}", "FLUSH BINARY LOGS")
    file, position = mysql.run("SHOW MASTER STATUS")[0][:2]
    mysql.run("SET sql_mode = ''", *statements, database=database)
    end = mysql.run("SHOW MASTER STATUS")[0][1]
    start = Place(file, position)
    connection = BinlogConnection(Address("127.0.0.1", mysql.port, "root", ""), "record", start, is_mariadb=False)
    events: list[bytes] = []
    while not events or int.from_bytes(events[-1][13:17], "little") < end:
        events += [event for event in connection.events(1.0) if event[4] not in (HEARTBEAT, HEARTBEAT_2)]
    connection.close()
    head = {"server": mysql.run("SELECT VERSION()")[0][0], "uuid": mysql.run("SELECT @@server_uuid")[0][0],
            "file": file, "position": position, "end": end}  # fmt: skip
    print(f"{len(events)} events of {database} are recorded")
    return head, [event.hex() for event in events]


def record_all(mysql: MySql) -> None:
    head, events = record(mysql, DATABASE, STATEMENTS)
    RECORDED.write_text("\n".join([json.dumps(head), *events]) + "\n")
    statements = [documents.TABLE, *documents.fill(documents.expressions()), *documents.UPDATES]
    head, events = record(mysql, documents.DATABASE, statements)
    head["shown"] = dict(mysql.run("SELECT id, document FROM documents", database=documents.DATABASE))
    text = "\n".join([json.dumps(head), *events])
    RECORDED_DOCUMENTS.write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="ottla-mysql-") as folder, MySql(Path(folder) / "mysql") as mysql:
        kills(mysql)
        compare_documents(mysql)
        record_all(mysql)
    return 0


if __name__ == "__main__":
    sys.exit(main())
