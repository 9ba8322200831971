"""The mysql source: rows a second from the binlog, beside mysql-replication and Debezium on the same binlog where those
are to be had; a runner that writes them to a topic; and how long a row takes at half the load.

Needs MariaDB (apt-get install mariadb-server-core mariadb-client-core); without it there is nothing to measure.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.broker_servers import cpu_seconds_of
from bench.debezium import Debezium
from bench.mirror import running_broker
from bench.report import Result, Spread, spread_of
from ottla.client import LATEST, Admin, ServerError
from ottla.connect.interface import SourceBatch, SourceRecord, Task
from ottla.connect.mysql.source import MysqlSource
from tests.connect.mariadb import MariaDb, why_missing
from tests.connect.running import RunnerProcess, write_file

TABLE = """CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(40), price DECIMAL(10,2), amount INT,
created DATETIME(3), note TEXT, ratio DOUBLE, is_paid BOOLEAN)"""
ROW = """seq, CONCAT('customer ', seq), seq / 7, seq % 100, '2026-11-16 12:00:00.123' + INTERVAL seq SECOND,
REPEAT('x', 30), seq * 0.37, seq % 2"""
REPEATS = 3
TARGET_ROWS = 5 * 13_900  # five times what mysql-replication was measured to do


class _NoTopic:
    """A topic with nothing in it."""

    def __enter__(self) -> Iterator[Any]:
        return iter(())

    def __exit__(self, *_: object) -> None:
        pass


def run(quick: bool) -> list[Result]:
    if (reason := why_missing()) is not None:
        print(reason)
        return []
    bulk, single = (20_000, 1_000) if quick else (200_000, 10_000)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, MariaDb(Path(folder)) as mariadb:
        mariadb.run("CREATE DATABASE shop")
        mariadb.run(TABLE, f"INSERT INTO orders SELECT {ROW} FROM seq_1_to_1", database="shop")
        debezium = Debezium(mariadb)
        measure = partial(_measure, mariadb, debezium)
        try:
            results = [
                *measure(f"{bulk:,} rows inserted, 1,000 to a transaction", lambda: _bulk(mariadb, bulk), bulk),
                *measure(f"{bulk:,} rows updated, 1,000 to a transaction", lambda: _update(mariadb, bulk), bulk),
                *measure(f"{single:,} transactions of one row", lambda: _single(mariadb, single, bulk), single),
            ]
        finally:
            debezium.close()
        results += _copies(mariadb, bulk // 4)
        rate = next(each.value for each in results if "one row" in each.name and each.unit == "rows/s")
        return [*results, *_through_a_runner(mariadb, Path(folder), bulk), *_lag(mariadb), *_half_load(mariadb, rate)]


def _bulk(mariadb: MariaDb, rows: int) -> None:
    connection = mariadb.connect("shop")
    with connection.cursor() as cursor:
        for begin in range(2, rows, 1_000):
            cursor.execute(f"INSERT INTO orders SELECT {ROW} FROM seq_{begin}_to_{begin + 999}")
    connection.close()


def _update(mariadb: MariaDb, rows: int) -> None:
    connection = mariadb.connect("shop")
    with connection.cursor() as cursor:
        for begin in range(2, rows, 1_000):
            cursor.execute("UPDATE orders SET amount = amount + 1 WHERE id BETWEEN %s AND %s", (begin, begin + 999))
    connection.close()


def _single(mariadb: MariaDb, count: int, first: int) -> None:
    connection = mariadb.connect("shop")
    with connection.cursor() as cursor:
        for number in range(first + 2, first + count + 2):
            cursor.execute(f"INSERT INTO orders SELECT {ROW} FROM seq_{number}_to_{number}")
    connection.close()


def _measure(mariadb: MariaDb, debezium: Debezium, name: str, load: Callable[[], None], rows: int) -> list[Result]:
    has_debezium = debezium.note()
    file, position = mariadb.run("SHOW MASTER STATUS")[0][:2]
    load()
    results = []
    seconds, cpu = _timed(lambda: _read_ours(mariadb, f"{file}:{position}"), rows)
    target = f">= {TARGET_ROWS:,}" if "inserted" in name else ""
    results.append(Result.of(f"ottla: {name}", _rate(seconds, rows), "rows/s", target))
    results.append(Result.of(f"ottla: {name}, CPU a row", _each(cpu, rows), "us"))
    if has_debezium:
        figures = [debezium.read(rows)]
        results.append(Result.of(f"Debezium: {name}", _rate([each[0] for each in figures], rows), "rows/s"))
        results.append(Result.of(f"Debezium: {name}, CPU a row", _each([each[1] for each in figures], rows), "us"))
    try:
        import pymysqlreplication  # type: ignore[import-untyped, unused-ignore] # noqa: F401
    except ModuleNotFoundError:
        return results
    seconds, cpu = _timed(lambda: _read_theirs(mariadb, file, position), rows)
    results.append(Result.of(f"mysql-replication: {name}", _rate(seconds, rows), "rows/s"))
    results.append(Result.of(f"mysql-replication: {name}, CPU a row", _each(cpu, rows), "us"))
    return results


def _timed(read: Callable[[], Iterator[int]], rows: int) -> tuple[list[float], list[float]]:
    """From the first rows on: to connect costs both the same."""
    seconds, cpu = [], []
    for _ in range(REPEATS):
        counts = read()
        seen = next(counts)
        begun, begun_cpu = time.perf_counter(), time.process_time()
        while seen < rows:
            seen += next(counts)
        seconds.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - begun_cpu)
    return sorted(seconds), sorted(cpu)


def _rate(seconds: list[float], rows: int) -> Spread:
    return Spread(rows / seconds[len(seconds) // 2], rows / seconds[-1], rows / seconds[0])


def _each(cpu: list[float], rows: int) -> Spread:
    return Spread(*(cpu[index] / rows * 1e6 for index in (len(cpu) // 2, 0, -1)))


def _task() -> Task:
    return Task("bench", read_topic=lambda _: _NoTopic(), create_topic=lambda *_, **__: None)  # type: ignore[arg-type, return-value]


def _source(mariadb: MariaDb, start: str) -> MysqlSource:
    return MysqlSource(host="127.0.0.1", port=mariadb.port, user="root", tables=["shop.*"], start=start)


def _is_order(record: SourceRecord | SourceBatch) -> bool:
    return isinstance(record, SourceRecord) and record.topic == "shop.orders"


def _read_ours(mariadb: MariaDb, start: str) -> Iterator[int]:
    """To records with their events, as they would be sent."""
    for yielded in _source(mariadb, start).read(_task(), None):
        if yielded is not None:
            yield sum(_is_order(record) for record in yielded[0])


def _read_theirs(mariadb: MariaDb, file: str, position: int) -> Iterator[int]:
    """To Python objects, without making anything of them."""
    from pymysqlreplication import BinLogStreamReader  # type: ignore[import-untyped, unused-ignore]
    from pymysqlreplication.row_event import (  # type: ignore[import-untyped, unused-ignore]
        UpdateRowsEvent,
        WriteRowsEvent,
    )

    stream = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": mariadb.port, "user": "root", "passwd": ""}, server_id=99,
        log_file=file, log_pos=position, resume_stream=True, only_events=[WriteRowsEvent, UpdateRowsEvent],
        is_mariadb=True, blocking=True,
    )  # fmt: skip
    try:
        for event in stream:
            yield len(event.rows)
    finally:
        stream.close()


def _copies(mariadb: MariaDb, rows: int) -> list[Result]:
    """The first copy of four tables, read one after the other and at once."""
    mariadb.run("CREATE DATABASE copied")
    for number in range(4):
        name = f"orders{number}"
        fill = f"INSERT INTO {name} SELECT {ROW} FROM seq_1_to_{rows}"
        mariadb.run(TABLE.replace("orders", name), fill, database="copied")
    results = []
    for threads in (1, 4):
        source = MysqlSource(
            host="127.0.0.1", port=mariadb.port, user="root", tables=["copied.*"], snapshot_max_threads=threads
        )
        seconds, cpu = _timed(partial(_copied, source), 4 * rows)
        name = f"ottla: 4 tables of {rows:,} rows copied, {threads} at once"
        results.append(Result.of(name, _rate(seconds, 4 * rows), "rows/s"))
        results.append(Result.of(f"{name}, CPU a row", _each(cpu, 4 * rows), "us"))
    mariadb.run("DROP DATABASE copied")
    return results


def _copied(source: MysqlSource) -> Iterator[int]:
    for yielded in source.read(_task(), None):
        if yielded is not None:
            count = sum(isinstance(record, SourceRecord) and "orders" in record.topic for record in yielded[0])
            if count:
                yield count


def _lag(mariadb: MariaDb) -> list[Result]:
    """From a statement's answer to its event in hand, one row at a time."""
    file, position = mariadb.run("SHOW MASTER STATUS")[0][:2]
    batches = _source(mariadb, f"{file}:{position}").read(_task(), None)
    connection = mariadb.connect("shop")
    waits = []
    with connection.cursor() as cursor:
        for number in range(200):
            cursor.execute("UPDATE orders SET note = %s WHERE id = 1", (f"note {number}",))
            begun = time.perf_counter()
            for yielded in batches:
                if yielded is not None and any(_is_order(record) for record in yielded[0]):
                    break
            waits.append(time.perf_counter() - begun)
    connection.close()
    batches.close()  # type: ignore[attr-defined]
    waits.sort()
    spread = Spread(waits[100], waits[50], waits[150])
    return [Result.of("ottla: one row, from the statement's answer to its event", spread, "ms", scale=1e3)]


def _through_a_runner(mariadb: MariaDb, folder: Path, rows: int) -> list[Result]:
    """`ottla connect run`, to a topic of a broker: from the first rows that are there to the last, and all its CPU."""
    file, position = mariadb.run("SHOW MASTER STATUS")[0][:2]
    _update(mariadb, rows)
    seconds, cpu = [], []
    for number in range(REPEATS):
        settings = {
            "type": "mysql-source", "host": "127.0.0.1", "port": mariadb.port, "user": "root", "tables": ["shop.*"],
            "topic": f"rows{number}", "start": f"{file}:{position}",
        }  # fmt: skip
        with running_broker() as bootstrap, Admin(bootstrap) as admin:
            toml = write_file(folder / "bench.toml", bootstrap, {"bench": settings})
            with RunnerProcess(toml) as runner:
                seen = begun = begun_cpu = 0.0
                while seen < rows:
                    time.sleep(0.01)
                    try:
                        seen = admin.find_offsets(f"rows{number}", LATEST)[0]
                    except ServerError:
                        continue
                    if seen and not begun:
                        begun, begun_cpu, first = time.perf_counter(), cpu_seconds_of(runner.process.pid), seen
                seconds.append((time.perf_counter() - begun) * rows / max(rows - first, 1))
                cpu.append((cpu_seconds_of(runner.process.pid) - begun_cpu) * rows / max(rows - first, 1))
    name = f"ottla: {rows:,} rows updated, to a topic"
    return [
        Result.of(name, _rate(sorted(seconds), rows), "rows/s"),
        Result.of(f"{name}, CPU a row", _each(sorted(cpu), rows), "us"),
    ]


_WRITER = """
import sys, time, pymysql
port, rate, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
cursor = pymysql.connect(host="127.0.0.1", port=port, user="root", database="shop", autocommit=True).cursor()
begun = time.perf_counter()
done = 0
while (now := time.perf_counter() - begun) < seconds:
    if done > now * rate:
        time.sleep(0.0005)
        continue
    cursor.execute("UPDATE orders SET note = %s WHERE id = %s", (str(time.time_ns()), done % 1000 + 2))
    done += 1
print(done)
"""


def _half_load(mariadb: MariaDb, rate: float) -> list[Result]:
    """Transactions of one row, half as many a second as it can read: from before the statement to its event."""
    file, position = mariadb.run("SHOW MASTER STATUS")[0][:2]
    batches = _source(mariadb, f"{file}:{position}").read(_task(), None)
    command = [sys.executable, "-c", _WRITER, str(mariadb.port), str(rate / 2), "10"]
    waits: list[float] = []
    begun = time.process_time()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        for yielded in batches:
            if yielded is None:
                if writer.poll() is not None:
                    break
                continue
            now = time.time_ns()
            for record in yielded[0]:
                if _is_order(record):
                    assert isinstance(record, SourceRecord)
                    waits.append((now - int(json.loads(record.value or b"")["after"]["note"])) / 1e9)
    cpu = time.process_time() - begun
    waits.sort()
    low, high = waits[len(waits) // 20], waits[len(waits) * 99 // 100]
    name = f"ottla: {len(waits) / 10:,.0f} transactions of one row a second"
    return [
        Result.of(f"{name}, from before the statement to its event (5 %, 99 %)",
                  Spread(waits[len(waits) // 2], low, high), "ms", scale=1e3),
        Result.of(f"{name}, CPU of one core", spread_of([cpu / 10]), "share"),
    ]  # fmt: skip
