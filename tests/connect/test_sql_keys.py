"""Keys that the sql sink cannot go by: such a record is a bad one, and no row of another key goes with it."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ottla.client.message import Message
from ottla.connect import BadRecord, SinkBatch
from ottla.records.codec import Record
from tests.connect.test_sinks import make_sql_sink, rows_of

ROWS = [(b'{"id": 1}', b'{"id": 1, "v": 5}'), (b'{"id": 2}', b'{"id": 2, "v": 5}')]


def rows_batch(*records: tuple[bytes | None, bytes | None], start: int = -1) -> SinkBatch:
    first = max(start, 0)
    messages = [Message("t", 0, Record(first + n, 0, key, value, ())) for n, (key, value) in enumerate(records)]
    return SinkBatch("t", 0, messages, start, first + len(messages))


@pytest.mark.parametrize("keys", [["id"], None], ids=["with keys", "without"])
@pytest.mark.parametrize("value", [None, b'{"v": 6}'], ids=["delete", "row"])
@pytest.mark.parametrize("key", [b"{}", b'{"id": null}', b'{"v": 5}', b'"1"', None])
def test_nothing_happens_to_other_rows(
    tmp_path: Path, keys: list[str] | None, value: bytes | None, key: bytes | None
) -> None:
    """An empty key emptied the table, and one of other columns took all rows that had them."""
    sink = make_sql_sink(tmp_path / "x.db", format="row", table="goods", keys=keys)
    sink.write(rows_batch(*ROWS))
    with pytest.raises(BadRecord) as bad:
        sink.write(rows_batch((key, value), start=2))
    assert bad.value.offset == 2
    assert rows_of(tmp_path / "x.db") == [(1, 5), (2, 5)]
    sink.close()


def test_a_delete_goes_by_the_keys_that_were_chosen(tmp_path: Path) -> None:
    sink = make_sql_sink(tmp_path / "x.db", format="row", table="goods", keys=["id"])
    sink.write(rows_batch(*ROWS, (b'{"id": 1, "v": 999}', None)))
    assert rows_of(tmp_path / "x.db") == [(2, 5)]
    sink.close()


def test_names_of_columns_that_look_like_parameters(tmp_path: Path) -> None:
    sink = make_sql_sink(tmp_path / "x.db", format="row", table="goods", keys=["id"])
    sink.write(rows_batch(*ROWS[:1]))
    sink.write(rows_batch((None, b'{"id": 1, ":x": 1, "a%s": 2, "c:d": 3}'), start=1))
    sink.close()
    with sqlite3.connect(tmp_path / "x.db") as connection:
        found: list[Any] = connection.execute('SELECT ":x", "a%s", "c:d" FROM goods').fetchall()
    connection.close()
    assert found == [(1, 2, 3)]
