"""The mysql source: rows a second from the binlog, beside mysql-replication on the same binlog where that is installed.

Needs MariaDB (apt-get install mariadb-server-core mariadb-client-core); without it there is nothing to measure.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.report import Result, Spread
from ottla.connect.interface import SourceBatch, SourceRecord, Task
from ottla.connect.mysql.source import MysqlSource
from tests.connect.mariadb import MariaDb, why_missing

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
        mariadb.run(TABLE, database="shop")
        return [
            *_measure(mariadb, f"{bulk:,} rows inserted, 1,000 to a transaction", lambda: _bulk(mariadb, bulk), bulk),
            *_measure(mariadb, f"{bulk:,} rows updated, 1,000 to a transaction", lambda: _update(mariadb, bulk), bulk),
            *_measure(mariadb, f"{single:,} transactions of one row", lambda: _single(mariadb, single, bulk), single),
            *_lag(mariadb),
        ]


def _bulk(mariadb: MariaDb, rows: int) -> None:
    connection = mariadb.connect("shop")
    with connection.cursor() as cursor:
        for begin in range(1, rows, 1_000):
            cursor.execute(f"INSERT INTO orders SELECT {ROW} FROM seq_{begin}_to_{begin + 999}")
    connection.close()


def _update(mariadb: MariaDb, rows: int) -> None:
    connection = mariadb.connect("shop")
    with connection.cursor() as cursor:
        for begin in range(1, rows, 1_000):
            cursor.execute("UPDATE orders SET amount = amount + 1 WHERE id BETWEEN %s AND %s", (begin, begin + 999))
    connection.close()


def _single(mariadb: MariaDb, count: int, first: int) -> None:
    connection = mariadb.connect("shop")
    with connection.cursor() as cursor:
        for number in range(first + 1, first + count + 1):
            cursor.execute(f"INSERT INTO orders SELECT {ROW} FROM seq_{number}_to_{number}")
    connection.close()


def _measure(mariadb: MariaDb, name: str, load: Callable[[], None], rows: int) -> list[Result]:
    file, position = mariadb.run("SHOW MASTER STATUS")[0][:2]
    load()
    results = []
    seconds, cpu = _timed(lambda: _read_ours(mariadb, f"{file}:{position}"), rows)
    target = f">= {TARGET_ROWS:,}" if "inserted" in name else ""
    results.append(Result.of(f"ottla: {name}", _rate(seconds, rows), "rows/s", target))
    results.append(Result.of(f"ottla: {name}, CPU a row", _each(cpu, rows), "us"))
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
