"""The sql sink with a real MariaDB: upserts, deletes, columns that are added and widened, and one that is fenced."""

from typing import Any

import pytest

from ottla.client import TopicPartition
from ottla.client.message import Message
from ottla.connect import BadRecord, Fenced, SinkBatch, Task
from ottla.connect.sql_sink import SqlSink
from ottla.pipelines.tables.event import ChangeEvent, encode_event
from ottla.records.codec import Record
from tests.connect.mariadb import MariaDb

COLUMNS = {"id": "int", "name": "string", "price": "decimal(6,2)", "at": "timestamp", "data": "binary", "n": "int"}


def batch(start: int, *changes: tuple[str, dict[str, Any], dict[str, str]]) -> SinkBatch:
    records = []
    for offset, (operation, row, columns) in enumerate(changes, max(start, 0)):
        key = {"id": row["id"]}
        before, after = (row, None) if operation == "d" else (None, row)
        event = ChangeEvent(operation, key, before, after, offset, columns=columns, table="shop.goods")
        value = encode_event(event)
        records.append(Message("goods", 0, Record(offset, 0, None, value, ())))
    return SinkBatch("goods", 0, records, start, max(start, 0) + len(changes))


@pytest.fixture
def url(mariadb: MariaDb, database: str) -> str:
    return f"mysql+pymysql://root@127.0.0.1:{mariadb.port}/{database}?charset=utf8mb4"


def make_sink(url: str) -> SqlSink:
    sink = SqlSink(url=url, table="{table}")
    sink.open(Task("c"))
    return sink


def test_a_table_is_made_followed_and_widened(url: str, mariadb: MariaDb, database: str) -> None:
    sink = make_sink(url)
    row = {"id": 1, "name": "é😀", "price": "12.50", "at": "2026-11-16T12:00:00.5", "data": "AAH/", "n": 7}
    sink.write(batch(-1, ("c", row, COLUMNS), ("c", row | {"id": 2}, COLUMNS), ("u", row | {"n": 8}, COLUMNS)))
    found = mariadb.run("SELECT id, name, price, n, HEX(data), CAST(at AS CHAR) FROM goods", database=database)
    assert [tuple(map(str, each)) for each in found] == [
        ("1", "é😀", "12.50", "8", "0001FF", "2026-11-16 12:00:00.500000"),
        ("2", "é😀", "12.50", "7", "0001FF", "2026-11-16 12:00:00.500000"),
    ]
    wider = COLUMNS | {"n": "bigint", "price": "decimal(12,4)", "more": "string"}
    last = {"id": 3, "n": 1 << 40, "price": "12345678.1234", "more": "m"}
    sink.write(batch(3, ("c", last, wider), ("d", {"id": 2}, wider)))
    found = mariadb.run("SELECT id, n, price, more FROM goods ORDER BY id", database=database)
    assert [tuple(map(str, each)) for each in found] == [
        ("1", "8", "12.5000", "None"),
        ("3", str(1 << 40), "12345678.1234", "m"),
    ]
    assert sink.stored_offsets([TopicPartition("goods", 0)]) == {TopicPartition("goods", 0): 5}
    sink.close()


def test_no_value_is_rounded_where_a_column_was_narrower(url: str, mariadb: MariaDb, database: str) -> None:
    sink = make_sink(url)
    narrow = {"id": "int", "n": "bigint", "f": "float", "d": "decimal(10,2)", "at": "date", "is": "boolean"}
    wide = {"id": "int", "n": "double", "f": "double", "d": "double", "at": "timestamp", "is": "string"}
    first = {"id": 1, "n": 1, "f": 0.5, "d": "1.25", "at": "2026-01-02"}
    second = {"id": 2, "n": 1.5, "f": 0.123456789, "d": 0.123456789, "at": "2026-01-02T03:04:05"}
    sink.write(batch(-1, ("c", first, {name: narrow[name] for name in first})))
    sink.write(batch(1, ("c", second, {name: wide[name] for name in second})))
    found = mariadb.run("SELECT id, n, f, d, CAST(at AS CHAR) FROM goods ORDER BY id", database=database)
    assert found == (
        (1, 1.0, 0.5, 1.25, "2026-01-02 00:00:00.000000"),
        (2, 1.5, 0.123456789, 0.123456789, "2026-01-02 03:04:05.000000"),
    )
    mariadb.run("CREATE TABLE goods2 (id INT PRIMARY KEY, n BIGINT NOT NULL DEFAULT 7)", database=database)
    mariadb.run(f"INSERT INTO goods2 VALUES (1, {(1 << 53) + 1})", database=database)
    other = SqlSink(url=url, table="goods2")
    other.open(Task("c2"))
    with pytest.raises(BadRecord, match="has numbers that are not exact as double"):
        other.write(batch(-1, ("c", {"id": 2, "n": 0.5}, {"id": "int", "n": "double"})))
    other.close()
    sink.close()


def test_one_of_two_writers_is_fenced(url: str, mariadb: MariaDb, database: str) -> None:
    one, other = make_sink(url), make_sink(url)
    small = {"id": "int", "n": "int"}
    one.write(batch(-1, ("c", {"id": 1, "n": 1}, small)))
    with pytest.raises(Fenced):
        other.write(batch(-1, ("c", {"id": 1, "n": 9}, small)))
    one.write(batch(1, ("u", {"id": 1, "n": 2}, small)))
    with pytest.raises(Fenced):
        other.write(batch(1, ("u", {"id": 1, "n": 9}, small)))
    assert mariadb.run("SELECT n FROM goods", database=database) == ((2,),)
    one.close()
    other.close()


def test_a_value_that_does_not_fit_is_named(url: str, mariadb: MariaDb, database: str) -> None:
    mariadb.run("CREATE TABLE goods (id INT PRIMARY KEY, n INT UNSIGNED)", database=database)
    sink = make_sink(url)
    small = {"id": "int", "n": "int"}
    with pytest.raises(BadRecord) as refused:
        sink.write(batch(-1, ("c", {"id": 1, "n": 1}, small), ("c", {"id": 2, "n": -1}, small)))
    assert refused.value.offset == 1
    assert mariadb.run("SELECT count(*) FROM goods", database=database) == ((0,),)
    sink.close()


def test_keys_and_topics_that_look_alike_are_two(url: str, mariadb: MariaDb, database: str) -> None:
    sink = make_sink(url)
    columns = {"id": "string", "n": "int"}
    keys = ["a", "A", "a ", "e", "é"]
    changes = [("c", {"id": key, "n": number}, columns) for number, key in enumerate(keys)]
    first = batch(-1, *changes)
    sink.write(first)
    sink.write(first._replace(topic="Goods"))
    sink.write(batch(5, ("d", {"id": "A"}, columns)))
    found = dict(mariadb.run("SELECT id, n FROM goods", database=database))
    assert found == {"a": 0, "a ": 2, "e": 3, "é": 4}
    places = [TopicPartition("goods", 0), TopicPartition("Goods", 0)]
    assert sink.stored_offsets(places) == dict(zip(places, (6, 5), strict=True))
    sink.close()


def test_a_row_that_has_what_is_unique_is_not_changed_for_another(url: str, mariadb: MariaDb, database: str) -> None:
    """ON DUPLICATE KEY UPDATE goes by any unique key: the row of another was overwritten, and no new one written."""
    mariadb.run("CREATE TABLE goods (id INT PRIMARY KEY, name VARCHAR(9) UNIQUE, n INT)", database=database)
    sink = make_sink(url)
    sink.write(batch(-1, ("c", {"id": 1, "name": "a", "n": 1}, COLUMNS)))
    with pytest.raises(BadRecord, match="Duplicate entry 'a'"):
        sink.write(batch(1, ("c", {"id": 2, "name": "a", "n": 2}, COLUMNS)))
    sink.write(batch(1, ("u", {"id": 1, "name": "b"}, COLUMNS), ("c", {"id": 2, "name": "a", "n": 2}, COLUMNS)))
    assert mariadb.run("SELECT * FROM goods ORDER BY id", database=database) == ((1, "b", 1), (2, "a", 2))
    sink.close()


def test_nothing_is_cut_without_a_word(url: str, mariadb: MariaDb, database: str) -> None:
    """Also where the server is told to: by its modes, a column of times without parts of seconds, or its charset."""
    strict = mariadb.run("SELECT @@GLOBAL.sql_mode")[0][0]
    mariadb.run(f"ALTER DATABASE {database} CHARACTER SET latin1")
    mariadb.run("CREATE TABLE goods (id INT PRIMARY KEY, name VARCHAR(3), at DATETIME)", database=database)
    try:
        mariadb.run("SET GLOBAL sql_mode = ''")
        sink = make_sink(url)
        sink.write(batch(-1, ("c", {"id": 1, "name": "abc", "at": "2026-01-02T03:04:05.000"}, COLUMNS)))
        with pytest.raises(BadRecord, match="Data too long"):
            sink.write(batch(1, ("c", {"id": 2, "name": "abcd"}, COLUMNS)))
        with pytest.raises(BadRecord, match=r"column at holds 0 digits of parts of a second, and .* has 1"):
            sink.write(batch(1, ("c", {"id": 2, "at": "2026-01-02T03:04:05.5"}, COLUMNS)))
        sink.write(batch(1, ("c", {"id": 2, "more": "é😀"}, COLUMNS | {"more": "string"})))
    finally:
        mariadb.run(f"SET GLOBAL sql_mode = '{strict}'")
    assert mariadb.run("SELECT id, name, more FROM goods", database=database) == ((1, "abc", None), (2, None, "é😀"))
    sink.close()


def test_names_and_numbers_that_mariadb_cannot_have_are_bad_records(url: str) -> None:
    sink = make_sink(url)
    sink.write(batch(-1, ("c", {"id": 1, "a%": 1, "%(b)s": 2}, {"id": "int", "a%": "int", "%(b)s": "int"})))
    for column, word in (("x" * 65, "int"), ("a`b", "int"), ("n", "decimal(66,0)")):
        with pytest.raises(BadRecord, match="table goods: "):
            sink.write(batch(1, ("c", {"id": 2, column: 1}, {"id": "int", column: word})))
    sink.write(batch(1, ("u", {"id": 1, "a%": 3, "c%": 4}, {"id": "int", "a%": "int", "c%": "int"})))
    sink.close()
