"""Every change of a shop on MariaDB: binlog -> topic -> Spark -> Delta tables, with kills of all five processes.

Needs MariaDB on this machine (`apt-get install mariadb-server-core`); it runs in a folder of its own, on a free port.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pymysql
from demo import moved, say, show, wait_for
from shop_run import ShopRun

from tests.connect.mariadb import MariaDb, why_missing

TRANSACTIONS_A_SECOND = 100
FIRST_ROWS = 2_000
KEYS = 4_000
TABLES = (
    "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40), city VARCHAR(20), credit DECIMAL(9,2))",
    "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount DOUBLE, state VARCHAR(10))",
)
CONNECTOR = """\
bootstrap = "{bootstrap}"
session_timeout_ms = 6000

[connectors.shop]
type = "mysql-source"
host = "127.0.0.1"
port = {port}
user = "root"
tables = ["shop.customers", "shop.orders"]
topic = "shop.{{table}}"
partitions = 2
"""


class MysqlShopRun(ShopRun):
    """A shop in MariaDB, whose changes a runner of connectors sends to the topics."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, transactions=0, rate=0, seed=0)
        self.mariadb = MariaDb(folder / "mariadb", sync_binlog="1", innodb_flush_log_at_trx_commit="1")
        self.runner: subprocess.Popen[bytes] | None = None
        self._runner_from = 0  # where in its file begins what it says

    def prepare(self) -> None:
        self.check_against = f"mysql://root@127.0.0.1:{self.mariadb.port}/shop."
        super().prepare()
        text = CONNECTOR.format(bootstrap=self.bootstrap, port=self.mariadb.port)
        (self.folder / "connect.toml").write_text(text)

    def start_runner(self) -> None:
        with open(self.folder / "runner.txt", "ab") as output:
            self._runner_from = output.tell()
            self.runner = subprocess.Popen(
                [sys.executable, "-m", "ottla", "connect", "run", "connect.toml"],
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def runner_runs(self) -> bool:
        """Whether the runner that was started last has told that its task runs: it needs the broker to come so far."""
        said = (self.folder / "runner.txt").read_bytes()[self._runner_from :].decode()
        if self.runner is not None and self.runner.poll() is not None:
            sys.exit(f"the runner of the connector has ended; it said:\n{said}")
        return "  running  " in said

    def kill(self, what: str) -> bool:
        if what == "mariadb":
            self.mariadb.kill()
            self.mariadb.start()
        elif what == "runner":
            assert self.runner is not None
            self.runner.kill()
            self.runner.wait()
            self.start_runner()
        else:
            return super().kill(what)
        self.kills.append((time.time(), what))
        return True

    def stop(self) -> None:
        if self.runner is not None:
            self.runner.terminate()
            self.runner.wait(60)
        super().stop()


class Load(threading.Thread):
    """Random transactions, through crashes of the server, until it is stopped."""

    def __init__(self, mariadb: MariaDb, seed: int) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.stopping = threading.Event()
        self._mariadb = mariadb
        self._chance = random.Random(seed)

    def run(self) -> None:
        while not self.stopping.is_set():
            with contextlib.suppress(pymysql.Error):
                self._transact_on(self._mariadb.connect("shop", connect_timeout=2))
            self.stopping.wait(0.2)

    def _transact_on(self, connection: pymysql.Connection) -> None:
        with contextlib.closing(connection), connection.cursor() as cursor:
            while not self.stopping.wait(1 / TRANSACTIONS_A_SECOND):
                cursor.execute("BEGIN")
                for _ in range(self._chance.randrange(1, 5)):
                    self._change(cursor)
                cursor.execute("COMMIT")
                self.count += 1

    def _change(self, cursor: pymysql.cursors.Cursor) -> None:
        chance, key = self._chance, self._chance.randrange(KEYS)
        what, number = chance.random(), chance.randrange(10**6)
        if what < 0.3:
            row = (key, f"customer {number}", chance.choice(["Brno", "Oslo", "Porto"]), number / 100)
            cursor.execute("REPLACE INTO customers (id, name, city, credit) VALUES (%s, %s, %s, %s)", row)
        elif what < 0.6:
            row = (key, chance.randrange(KEYS), number / 7, "new")
            cursor.execute("INSERT IGNORE INTO orders (id, customer, amount, state) VALUES (%s, %s, %s, %s)", row)
        elif what < 0.85:
            cursor.execute("UPDATE orders SET state = %s WHERE id = %s", (chance.choice(["paid", "sent"]), key))
        elif what < 0.95:
            cursor.execute(f"DELETE FROM {chance.choice(['customers', 'orders'])} WHERE id = %s", (key,))
        else:  # a new primary key
            cursor.execute("UPDATE IGNORE orders SET id = %s WHERE id = %s", (key + KEYS, key))


def main() -> None:
    if (reason := why_missing()) is not None:
        sys.exit(f"this demo needs MariaDB: {reason}")
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="ottla-demo-mysql-"))
    run = MysqlShopRun(folder)
    load = Load(run.mariadb, seed=2026)
    with run.mariadb:
        try:
            run.mariadb.run("CREATE DATABASE shop CHARACTER SET utf8mb4")
            rows = ", ".join(f"({number}, 'customer {number}', 'Turku', {number})" for number in range(FIRST_ROWS))
            run.mariadb.run(*TABLES, f"INSERT INTO customers VALUES {rows}", database="shop")
            run.start_broker()
            run.prepare()
            say(f"MariaDB has a shop with {FIRST_ROWS:,} customers; a broker listens on {run.bootstrap}")
            run.start_pipeline()
            run.start_runner()
            load.start()
            say(f"the shop opens: {TRANSACTIONS_A_SECOND} transactions a second, while its tables are copied")
            wait_for(moved(run), "the first changes in the tables", run)
            disturb(run)
            load.stopping.set()
            load.join(30)
            level(run)
            say(f"the shop has closed after {load.count:,} transactions, and the tables have all of it")
        finally:
            load.stopping.set()
            run.stop()
        show(run, time.monotonic() - begun)


def disturb(run: MysqlShopRun) -> None:
    """Kill each process while changes come, and change a table."""
    run.kill("runner")
    say("kill -9 of the runner of the connector, and another one")
    wait_for(run.runner_runs, "the other runner to begin", run)
    wait_for(moved(run), "changes after the kill of the runner", run)
    run.kill("mariadb")
    say("kill -9 of MariaDB, and a start")
    wait_for(moved(run), "changes after the kill of MariaDB", run)
    run.mariadb.run("ALTER TABLE customers ADD COLUMN points INT DEFAULT 7", database="shop")
    say("ALTER TABLE customers ADD COLUMN points")
    run.kill("broker")
    run.start_broker()
    say("kill -9 of the broker, and a start")
    wait_for(moved(run), "changes after the kill of the broker", run)
    run.kill("driver")
    run.start_pipeline()
    say("kill -9 of the pipeline, and a start")
    wait_for(moved(run), "changes after the kill of the pipeline", run)
    run.kill("java")
    assert run.pipeline is not None
    run.pipeline.wait(60)
    run.start_pipeline()
    say("kill -9 of Spark's Java side, which ends the pipeline, and a start")
    wait_for(moved(run), "changes after the kill of Spark", run)


def level(run: MysqlShopRun) -> None:
    """Until the topics have the end of the binlog, and the tables the end of the topics."""
    run.mariadb.run("INSERT INTO customers (id, name) VALUES (-1, 'the last')", database="shop")
    command = [sys.executable, "-m", "ottla", "consume", "shop.customers", "--bootstrap", run.bootstrap]

    def has_last() -> bool:
        read = subprocess.run([*command, "--from-beginning", "--to-end"], capture_output=True, text=True)
        return '"the last"' in read.stdout

    wait_for(has_last, "the last change in its topic", run)
    told = len(run.progress)
    wait_for(lambda: len(run.progress) > told + 4 and run.lag() == 0, "the tables to be level", run)


if __name__ == "__main__":
    main()
