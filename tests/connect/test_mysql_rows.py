"""Rows of MariaDB to check tables against, and the sentences for what cannot be read."""

from __future__ import annotations

import pytest

from ottla.connect.interface import ConnectorRefused
from ottla.connect.mysql.rows import read_rows
from tests.connect.mariadb import MariaDb


def test_rows_are_as_change_events_have_them(mariadb: MariaDb, database: str) -> None:
    mariadb.run(
        "CREATE TABLE t (id INT PRIMARY KEY, price DECIMAL(9,2), at DATETIME(3), data BLOB, note TEXT)",
        "INSERT INTO t VALUES (2, 1.5, '2026-01-02 03:04:05.678', x'00ff', 'é'), (1, NULL, NULL, NULL, NULL)",
        database=database,
    )
    name, rows = read_rows(f"mysql://root@127.0.0.1:{mariadb.port}/{database}.t")
    assert name == f"{database}.t"
    assert list(rows) == [
        {"id": 1, "price": None, "at": None, "data": None, "note": None},
        {"id": 2, "price": "1.50", "at": "2026-01-02T03:04:05.678000", "data": "AP8=", "note": "é"},
    ]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("", "a table of MySQL is mysql://USER:PASSWORD@HOST:PORT/DATABASE.TABLE, and this is not"),
        ("a.b.c", "a table of MySQL is mysql://USER"),
        ("nothing.here", "there is no table nothing.here"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(mariadb: MariaDb, path: str, sentence: str) -> None:
    with pytest.raises(ConnectorRefused, match=sentence.replace(".", r"\.")):
        read_rows(f"mysql://root@127.0.0.1:{mariadb.port}/{path}")


def test_a_password_is_not_shown(mariadb: MariaDb) -> None:
    with pytest.raises(ConnectorRefused) as refused:
        read_rows(f"mysql://nobody:hunter2@127.0.0.1:{mariadb.port}/a.b")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(ConnectorRefused, match=r"127\.0\.0\.1:1"):
        read_rows("mysql://root@127.0.0.1:1/a.b")
