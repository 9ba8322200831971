"""Sinks in a runner: files and tables, each record once; what they cannot take goes to the dead letters."""

import json
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ottla.client import Admin, ClientOptions, Fetched, NewRecord, NewTopic, Producer, TopicPartition
from ottla.client.message import Message
from ottla.connect import BadRecord, ConnectorRefused, Fenced, SinkBatch, Task
from ottla.connect.files_sink import FilesSink
from ottla.connect.metrics import TaskMetrics
from ottla.connect.reset import reset_connector
from ottla.connect.sink_work import SinkWork
from ottla.connect.sql_sink import SqlSink
from ottla.connect.state import load_states
from ottla.pipelines.tables.event import ChangeEvent, encode_event, encode_key, to_json
from ottla.records.codec import Record
from ottla.testing import LocalBroker
from tests.connect.running import configuration_of, records_of, running, until

OPTIONS = ClientOptions()


def send(bootstrap: str, topic: str, records: list[NewRecord]) -> None:
    with Producer(bootstrap) as producer:
        producer.send_many(topic, records)


def lines_of(folder: Path) -> list[Any]:
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


def state_of(bootstrap: str, connector: str) -> list[Any]:
    states, _ = load_states(bootstrap, OPTIONS)
    return list(states.of(connector).tasks.values())


# Files.


@pytest.mark.ottla(topics={"orders": 2, "letters": 1})
def test_files_hold_each_record_once(ottla: LocalBroker, tmp_path: Path) -> None:
    out = tmp_path / "out"
    connectors = {"out": {"type": "files-sink", "path": str(out), "topics": ["orders"], "tasks": 2}}
    send(ottla.bootstrap, "orders", [NewRecord(json.dumps({"n": n}).encode(), b"%d" % n) for n in range(500)])
    with running(tmp_path, ottla.bootstrap, connectors):
        until(lambda: len(lines_of(out)) >= 500)
    send(ottla.bootstrap, "orders", [NewRecord(json.dumps({"n": n}).encode(), b"%d" % n) for n in range(500, 600)])
    with running(tmp_path, ottla.bootstrap, connectors):
        until(lambda: len(lines_of(out)) >= 600)
    assert sorted(line["n"] for line in lines_of(out)) == list(range(600))
    assert list(out.glob(".*")) == []
    # Forgotten, with the files removed, it writes them all again.
    configuration = configuration_of(tmp_path, ottla.bootstrap, connectors)
    assert reset_connector(configuration, configuration.connectors["out"]) == "the offsets are forgotten"
    for file in out.glob("*.jsonl"):
        file.unlink()
    with running(tmp_path, ottla.bootstrap, connectors):
        until(lambda: len(lines_of(out)) >= 600)
    assert sorted(line["n"] for line in lines_of(out)) == list(range(600))


@pytest.mark.ottla(topics={"orders": 1, "letters": 1})
def test_rows_that_do_not_fit_a_parquet_file_are_dead_letters(ottla: LocalBroker, tmp_path: Path) -> None:
    out = tmp_path / "out"
    values = [b'{"n": 1}', b"no json", b'{"n": 2}', b"[3]", b'{"n": "text"}', b'{"n": 4, "more": "m"}',
              b'{"n": %d}' % 2**70, b'{"t": "\\ud800"}', b'{"t": {}}', b"[" * 100_000]  # fmt: skip
    send(ottla.bootstrap, "orders", [NewRecord(value) for value in values])
    sink = {"type": "files-sink", "path": str(out), "format": "parquet", "topics": ["orders"], "dead_letter": "letters"}
    with running(tmp_path, ottla.bootstrap, {"out": sink}):
        (file,) = until(lambda: list(out.glob("*.parquet")))
    assert pq.read_table(file).to_pylist() == [
        {"n": 1, "more": None},
        {"n": 2, "more": None},
        {"n": 4, "more": "m"},
    ]
    letters = records_of(ottla.bootstrap, "letters")
    assert {letter.value for letter in letters} == {values[1], *values[3:5], *values[6:]}
    assert len(letters) == 7
    headers = dict(letters[0].headers)
    assert headers["dead-letter.offset"] == b"1"
    assert headers["dead-letter.reason"].startswith(b"the value is no JSON")


@pytest.mark.ottla(topics={"orders": 1})
def test_a_bad_record_stops_a_sink_without_dead_letters(ottla: LocalBroker, tmp_path: Path) -> None:
    send(ottla.bootstrap, "orders", [NewRecord(b"no json")])
    sink = {"type": "files-sink", "path": str(tmp_path / "out"), "format": "parquet", "topics": ["orders"]}
    with running(tmp_path, ottla.bootstrap, {"out": sink}):
        until(lambda: [task for task in state_of(ottla.bootstrap, "out") if task.state == "failed"])
        (task,) = state_of(ottla.bootstrap, "out")
    assert task.error.startswith("orders-0 at offset 0: the value is no JSON")


@pytest.mark.ottla(topics={"in": 1, "letters": 1})
def test_files_in_and_out_again(ottla: LocalBroker, tmp_path: Path) -> None:
    first = tmp_path / "in-1.jsonl"
    first.write_bytes(b'{"id": 1, "n": 1}\nnot json\n{"n": 5}\n\n{"id": 2, "n": 2}\n{"id": 3, "half')
    source = {"type": "files-source", "path": str(tmp_path / "in-*.jsonl"), "topic": "in", "key": ["id"],
              "poll_ms": 20, "dead_letter": "letters"}  # fmt: skip
    with running(tmp_path, ottla.bootstrap, {"in": source}):
        until(lambda: len(records_of(ottla.bootstrap, "in")) >= 2)
        with first.open("ab") as stream:
            stream.write(b'": true}\n')
        until(lambda: len(records_of(ottla.bootstrap, "in")) >= 3)
    with running(tmp_path, ottla.bootstrap, {"in": source}):
        (tmp_path / "in-2.jsonl").write_bytes(b'{"id": 4}\n')
        until(lambda: len(records_of(ottla.bootstrap, "in")) >= 4)
        assert [record.key for record in records_of(ottla.bootstrap, "in")] == [b'{"id":%d}' % n for n in (1, 2, 3, 4)]
        assert [letter.value for letter in records_of(ottla.bootstrap, "letters")] == [b"not json", b'{"n": 5}']
        first.write_bytes(b'{"id": 9}\n')
        until(lambda: state_of(ottla.bootstrap, "in")[0].state == "failed")
        assert "is not the file that was read before" in state_of(ottla.bootstrap, "in")[0].error


@pytest.mark.ottla(topics={"rows": 1})
def test_rows_of_parquet_files_are_read_once(ottla: LocalBroker, tmp_path: Path) -> None:
    import pyarrow as pa

    pq.write_table(pa.table({"id": list(range(3000)), "name": ["x"] * 3000}), tmp_path / "rows.parquet")
    source = {"type": "files-source", "path": str(tmp_path / "*.parquet"), "topic": "rows", "format": "parquet",
              "poll_ms": 20, "transaction_records": 1}  # fmt: skip
    for _ in range(2):
        with running(tmp_path, ottla.bootstrap, {"in": source}):
            until(lambda: len(records_of(ottla.bootstrap, "rows")) >= 3000)
            until(lambda: (tasks := state_of(ottla.bootstrap, "in")) and tasks[0].state == "running")
    found = [json.loads(record.value) for record in records_of(ottla.bootstrap, "rows")]
    assert found == [{"id": number, "name": "x"} for number in range(3000)]


def batch(values: list[bytes], start: int, *, offset: int | None = None, topic: str = "t") -> SinkBatch:
    first = max(start, 0) if offset is None else offset
    records = [Message(topic, 0, Record(first + n, 0, None, value, ())) for n, value in enumerate(values)]
    return SinkBatch(topic, 0, records, start, first + len(values))


# Tables.

COLUMNS = {"id": "bigint", "name": "string", "price": "decimal(10,2)", "at": "timestamp", "data": "binary"}


def change(operation: str, key: int, row: dict[str, Any] | None = None, **options: Any) -> NewRecord:
    after = None if row is None else {"id": key, **row}
    before = options.pop("before", {"id": key} if operation == "d" else None)
    columns = options.pop("columns", COLUMNS)
    event = ChangeEvent(operation, {"id": key}, before, after, 1, columns=columns, table="shop.goods")
    return NewRecord(encode_event(event), encode_key({"id": key}))


def rows_of(database: Path, table: str = "goods") -> list[Any]:
    with sqlite3.connect(database) as connection:
        try:
            return connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
        except sqlite3.OperationalError:
            return []
        finally:
            connection.commit()


@pytest.mark.ottla(topics={"goods": 1, "letters": 1})
def test_a_table_follows_its_changes(ottla: LocalBroker, tmp_path: Path) -> None:
    database = tmp_path / "shop.db"
    sink = {"type": "sql-sink", "url": f"sqlite:///{database}", "topics": ["goods"], "table": "{table}",
            "dead_letter": "letters"}  # fmt: skip
    full = {"name": "pen", "price": "1.50", "at": "2026-11-16T12:00:00", "data": "AAE="}
    records = [
        change("r", 1, full),
        change("c", 2, {"name": "ink"}),
        change("c", 3, {"name": "cap"}),
        change("u", 2, {"name": "red ink"}),
        change("d", 3),
        NewRecord(None, encode_key({"id": 3})),
        NewRecord(b"no event"),
        change("u", 5, {"name": "moved"}, before={"id": 1}),
        change("c", 6, {"price": "much"}),
    ]
    send(ottla.bootstrap, "goods", records)
    with running(tmp_path, ottla.bootstrap, {"out": sink}):
        until(lambda: len(rows_of(database)) >= 2)
        assert rows_of(database) == [(2, "red ink", None, None, None), (5, "moved", None, None, None)]
        # Another column, and a row like the first: as the database has them.
        wider = COLUMNS | {"size": "int"}
        send(ottla.bootstrap, "goods", [change("c", 7, full | {"size": 4}, columns=wider)])
        until(lambda: len(rows_of(database)) >= 3)
    assert rows_of(database)[-1] == (7, "pen", 1.5, "2026-11-16 12:00:00.000000", b"\x00\x01", 4)
    reasons = [dict(letter.headers)["dead-letter.reason"] for letter in records_of(ottla.bootstrap, "letters")]
    assert reasons[0].startswith(b"Expecting value")
    assert reasons[1].startswith(b"column price: 'much' is no decimal(10,2)")


def make_sql_sink(database: Path, **settings: Any) -> SqlSink:
    sink = SqlSink(url=f"sqlite:///{database}", **settings)
    sink.open(Task("c"))
    return sink


def test_of_two_writers_of_a_table_one_is_fenced_and_leaves_nothing(tmp_path: Path) -> None:
    database = tmp_path / "x.db"
    one, other = (make_sql_sink(database, format="row", keys=["id"], table="goods") for _ in range(2))
    one.write(batch([b'{"id": 1, "n": 1}'], -1))
    with pytest.raises(Fenced):
        other.write(batch([b'{"id": 1, "n": 1}', b'{"id": 2, "n": 1}'], -1))
    one.write(batch([b'{"id": 2, "n": 2}'], 1))
    with pytest.raises(Fenced):
        other.write(batch([b'{"id": 2, "n": 9}'], 1))
    place = TopicPartition("t", 0)
    assert other.stored_offsets([place]) == {place: 2}
    assert rows_of(database) == [(1, 1), (2, 2)]
    one.close()
    other.close()


def test_a_row_that_the_database_refuses_is_named(tmp_path: Path) -> None:
    database = tmp_path / "x.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE goods (id INTEGER PRIMARY KEY, n INTEGER CHECK (n > 0))")
    sink = make_sql_sink(database, format="row", keys=["id"], table="goods")
    with pytest.raises(BadRecord, match="CHECK constraint failed") as refused:
        sink.write(batch([b'{"id": 1, "n": 1}', b'{"id": 2, "n": -1}'], -1))
    assert refused.value.offset == 1
    assert sink.stored_offsets([TopicPartition("t", 0)]) == {}
    assert rows_of(database) == []
    sink.close()


@pytest.mark.parametrize(
    "value",
    [b'{"id": %d}' % 2**70, b'{"id": 2, "n": "\\ud800"}', b"[" * 100_000],
    ids=["wide", "half", "deep"],
)
def test_a_value_that_no_driver_takes_is_named(tmp_path: Path, value: bytes) -> None:
    sink = make_sql_sink(tmp_path / "x.db", format="row", keys=["id"], table="goods")
    with pytest.raises(BadRecord) as refused:
        sink.write(batch([b'{"id": 1, "n": "a"}', value], -1))
    assert refused.value.offset == 1
    sink.close()


def test_rows_without_events_are_upserted_and_deleted(tmp_path: Path) -> None:
    database = tmp_path / "x.db"
    sink = make_sql_sink(database, format="row", table="goods")
    keys = [b'{"id": 1}', b'{"id": 2}', b'{"id": 1}']
    values = [b'{"id": 1, "n": 1}', b'{"id": 2, "n": 2}', None]
    records = [
        Message("t", 0, Record(offset, 0, key, value, ()))
        for offset, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    sink.write(SinkBatch("t", 0, records, -1, 3))
    assert rows_of(database) == [(2, 2)]
    sink.close()


def row_batch(*records: tuple[dict[str, Any], dict[str, Any] | None], start: int = -1) -> SinkBatch:
    """Of keys and rows."""
    first = max(start, 0)
    messages = [
        Message("t", 0, Record(offset, 0, encode_key(key), None if row is None else to_json(row), ()))
        for offset, (key, row) in enumerate(records, first)
    ]
    return SinkBatch("t", 0, messages, start, first + len(messages))


def test_a_key_is_the_same_in_any_order_of_its_columns(tmp_path: Path) -> None:
    database = tmp_path / "x.db"
    sink = make_sql_sink(database, format="row", table="goods")
    sink.write(
        row_batch(
            ({"id": 1, "b": 2}, {"v": "deleted"}),
            ({"id": 2, "b": 1}, {"v": "stays"}),
            ({"b": 1, "id": 1}, {"v": "stays, too"}),
            ({"b": 2, "id": 1}, None),
        )
    )
    assert sorted(rows_of(database)) == [(1, 1, "stays, too"), (2, 1, "stays")]
    sink.close()


def test_rows_are_the_same_in_one_batch_and_in_several(tmp_path: Path) -> None:
    key = {"id": 1}
    changes = [(key, {"a": 1, "b": 1}), (key, {"a": 2}), (key, None), (key, {"b": 3}), (key, {"c": [4, {"x": None}]})]
    found = []
    for size in (len(changes), 1):
        database = tmp_path / f"{size}.db"
        sink = make_sql_sink(database, format="row", table="goods")
        for start in range(0, len(changes), size):
            sink.write(row_batch(*changes[start : start + size], start=start or -1))
        sink.close()
        with sqlite3.connect(database) as connection:
            found.append(connection.execute("SELECT id, a, b, c FROM goods").fetchall())
    assert found == [[(1, None, 3, '[4, {"x": null}]')]] * 2


def test_numbers_and_times_lose_nothing_in_columns_that_were_narrower(tmp_path: Path) -> None:
    database = tmp_path / "x.db"
    sink = make_sql_sink(database, table="goods")
    narrow = {"id": "int", "n": "int", "at": "date", "is": "boolean"}
    wide = {"id": "int", "n": "double", "at": "timestamp", "is": "int"}

    def event(key: int, columns: dict[str, str], **row: Any) -> Message:
        made = ChangeEvent("c", {"id": key}, None, {"id": key, **row}, 1, columns=columns, table="goods")
        return Message("t", 0, Record(key, 0, None, encode_event(made), ()))

    sink.write(SinkBatch("t", 0, [event(0, narrow, n=1, at="2026-01-02", **{"is": True})], -1, 1))
    sink.write(SinkBatch("t", 0, [event(1, wide, n=1.5, at="2026-01-02T03:04:05", **{"is": 7})], 1, 2))
    assert rows_of(database) == [(0, 1, "2026-01-02", 1), (1, 1.5, "2026-01-02 03:04:05.000000", 7)]
    with pytest.raises(BadRecord, match="column at is timestamp, which cannot hold bigint as well"):
        sink.write(SinkBatch("t", 0, [event(2, wide | {"at": "bigint"}, at=1)], 2, 3))
    sink.close()


def test_a_truncate_empties_the_table(tmp_path: Path) -> None:
    database = tmp_path / "x.db"
    sink = SqlSink(url=f"sqlite:///{database}", table="goods")
    sink.open(Task("c", count_partitions=lambda topic: 2 if topic == "t2" else 1))

    def messages(topic: str) -> list[Message]:
        events = [
            ChangeEvent("c", {"id": 1}, None, {"id": 1}, 1, table="goods"),
            ChangeEvent("t", None, None, None, 2, table="goods"),
            ChangeEvent("c", {"id": 2}, None, {"id": 2}, 3, table="goods"),
        ]
        return [
            Message(topic, 0, Record(offset, 0, None, encode_event(event), ())) for offset, event in enumerate(events)
        ]

    sink.write(SinkBatch("t", 0, messages("t"), -1, 3))
    assert rows_of(database) == [(2,)]
    with pytest.raises(BadRecord, match="its changes are in 2 partitions"):
        sink.write(SinkBatch("t2", 0, messages("t2"), -1, 3))
    sink.close()


@pytest.mark.ottla(topics={"numbers": 1, "letters": 1})
def test_a_sink_without_offsets_goes_on_where_its_group_is(ottla: LocalBroker, tmp_path: Path) -> None:
    out = tmp_path / "lines.txt"
    sink = {"type": "tests.connect.counting:Lines", "path": str(out), "topics": ["numbers"], "bad": "7",
            "dead_letter": "letters"}  # fmt: skip
    send(ottla.bootstrap, "numbers", [NewRecord(b"%d" % n) for n in range(10)])
    for end in (10, 20):
        with running(tmp_path, ottla.bootstrap, {"lines": sink}):
            until(partial(_has_lines, out, end - 1))
        send(ottla.bootstrap, "numbers", [NewRecord(b"%d" % n) for n in range(10, 20)])
    assert out.read_text().split() == [str(n) for n in range(20) if n != 7]
    assert [letter.value for letter in records_of(ottla.bootstrap, "letters")] == [b"7"]


def _has_lines(path: Path, count: int) -> bool:
    return path.exists() and len(path.read_text().split()) >= count


@pytest.mark.ottla(topics={"numbers": 1})
def test_records_that_are_deleted_before_they_are_read_are_told(ottla: LocalBroker, tmp_path: Path) -> None:
    """While it runs: the consumer goes on where the topic begins then."""
    send(ottla.bootstrap, "numbers", [NewRecord(b"%d" % n) for n in range(10)])
    place = TopicPartition("numbers", 0)
    with Admin(ottla.bootstrap) as admin:
        admin.delete_records({place: 6})
    sink = {"type": "files-sink", "path": str(tmp_path / "out"), "topics": ["numbers"]}
    configuration = configuration_of(tmp_path, ottla.bootstrap, {"out": sink})
    work = SinkWork(
        ottla.bootstrap, ClientOptions(), configuration.connectors["out"], 2_000, TaskMetrics(), lambda: None
    )
    writer = FilesSink(path=str(tmp_path / "out"))
    writer.open(Task("out"))

    def fetched(first: int, end: int) -> Fetched:
        return Fetched("numbers", 0, [Record(n, 0, None, b"%d" % n, ()) for n in range(first, end)], end, 10)

    work._stored[place] = 2
    work._write(writer, fetched(4, 6))  # compaction has taken two of them; fetched before the others were deleted
    work._stored[place] = 4
    with pytest.raises(ConnectorRefused, match="numbers-0: the records from offset 4 to 6 were deleted before"):
        work._write(writer, fetched(6, 10))
    work._stored[place] = 6
    work._write(writer, fetched(7, 10))


def recreate(bootstrap: str, count: int) -> None:
    with Admin(bootstrap) as admin:
        admin.delete_topics(["goods"])
        admin.create_topics([NewTopic("goods", 1)])
    send(bootstrap, "goods", [NewRecord(b'{"id": %d, "v": "new"}' % n) for n in range(count)])


@pytest.mark.parametrize("kind", ["files-sink", "sql-sink"])
@pytest.mark.parametrize("while_it_runs", [True, False])
@pytest.mark.ottla(topics={"goods": 1})
def test_a_topic_that_was_created_again_is_told(
    ottla: LocalBroker, tmp_path: Path, kind: str, while_it_runs: bool
) -> None:
    """Its first records would be passed over, or take the place of those that were written before."""
    own = (
        {"path": str(tmp_path / "out")}
        if kind == "files-sink"
        else {"url": f"sqlite:///{tmp_path}/x.db", "format": "row", "keys": ["id"]}
    )
    sink = {"out": {"type": kind, "topics": ["goods"], **own}}

    def status() -> Any:
        return next(iter(load_states(ottla.bootstrap, ClientOptions())[0].of("out").tasks.values()), None)

    send(ottla.bootstrap, "goods", [NewRecord(b'{"id": %d, "v": "old"}' % n) for n in range(3)])
    with running(tmp_path, ottla.bootstrap, sink):
        until(lambda: (found := status()) and found.records == 3)
        if while_it_runs:
            recreate(ottla.bootstrap, 5)
            told = until(lambda: (found := status()) and found.error and found)
    if not while_it_runs:
        recreate(ottla.bootstrap, 5)
        with running(tmp_path, ottla.bootstrap, sink):
            told = until(lambda: (found := status()) and found.error and found)
    assert told.state == "failed"
    assert "topic goods was deleted and created again" in told.error
    if kind == "sql-sink":
        assert {row[1] for row in rows_of(tmp_path / "x.db")} == {"old"}
    else:
        assert b"new" not in b"".join(file.read_bytes() for file in (tmp_path / "out").glob("*.jsonl"))


def test_a_partition_that_ends_before_what_was_read_is_told(ottla: LocalBroker, tmp_path: Path) -> None:
    """Of a cluster that has no ids of topics."""
    sink = make_sql_sink(tmp_path / "x.db", format="row", keys=["id"])
    sink.write(batch([b'{"id": 1}', b'{"id": 2}'], -1))
    ottla.topic("t", partitions=1)
    settings = {
        "type": "sql-sink",
        "url": f"sqlite:///{tmp_path}/x.db",
        "format": "row",
        "keys": ["id"],
        "topics": ["t"],
    }
    configuration = configuration_of(tmp_path, ottla.bootstrap, {"c": settings})
    work = SinkWork(ottla.bootstrap, ClientOptions(), configuration.connectors["c"], 2_000, TaskMetrics(), lambda: None)
    with pytest.raises(ConnectorRefused, match="t-0 ends at 0, before offset 2, up to which it was read"):
        work._check_kept(sink.stored_offsets([TopicPartition("t", 0)]))
    sink.close()
