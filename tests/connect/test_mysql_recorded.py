"""The binlog of a real MySQL 8, as real_mysql.py has recorded it: its GTIDs, its bitmaps, its statements."""

import json
from typing import Any

from ottla.connect.mysql.binlog import Begun, BinlogReader, Committed, Ddl, Place, RowChanges
from ottla.connect.mysql.table import Table, make_table, read_table_map
from ottla.connect.mysql.values import Decode, decode_of, utf8
from tests.connect.real_mysql import RECORDED

HEAD, *EVENTS = RECORDED.read_text().splitlines()
RECORDING = json.loads(HEAD)
LATIN1, BINARY = 8, 63
FIRST = {
    "id": 1, "item": "日本", "price": "-1.5000", "flags": "a,b", "size": "é", "at": "2026-01-02T03:04:05.678000",
    "length": "-12:30:01.50", "bits": 257, "code": "é", "data": "AP8=", "big": "18446744073709551615", "made": 2,
    "hidden": 3,
}  # fmt: skip
SECOND = {
    "id": 2, "item": None, "price": "0.0001", "flags": "", "size": "s", "at": None, "length": "00:00:00.00", "bits": 0,
    "code": "", "data": "", "big": "0", "made": 3, "hidden": 3,
}  # fmt: skip


class _Decodes(dict[int, Decode | None]):
    """Of the collations that the tables have: all but two are of UTF-8."""

    def get(self, number: int, _: Any = None) -> Decode | None:
        if number == BINARY:
            return None
        return decode_of("latin1", {"latin1": bytes(range(256)).decode("latin1")}) if number == LATIN1 else utf8


def find_table(body: bytes) -> Table | None:
    decodes = _Decodes()
    return make_table(read_table_map(body, is_mariadb=False, decodes=decodes), None, {}, decodes)


def replay() -> list[Any]:
    start = Place(RECORDING["file"], RECORDING["position"])
    reader = BinlogReader(start, is_mariadb=False, find_table=find_table, is_captured=lambda _: True)
    happened = [each for event in EVENTS for each in reader.read(bytes.fromhex(event))]
    assert reader.place == Place(RECORDING["file"], RECORDING["end"])
    return happened


def test_each_transaction_has_its_gtid_and_ends_once() -> None:
    happened = [each for each in replay() if isinstance(each, Begun) or (isinstance(each, Committed) and each[1])]
    transactions = [each.transaction for each in happened if isinstance(each, Begun)]
    numbers = [int(transaction.removeprefix(f"{RECORDING['uuid']}:")) for transaction in transactions]
    assert numbers == list(range(numbers[0], numbers[0] + 8))
    assert [each.transaction for each in happened if isinstance(each, Committed)] == transactions
    assert [type(each) for each in happened] == [Begun, Committed] * 8


def test_rows_are_what_was_written() -> None:
    changes = [
        (each.table.name, each.operation, *(row and json.loads(row) for row in row_of))
        for each in replay()
        if isinstance(each, RowChanges)
        for row_of in each.rows
    ]
    other = FIRST | {"item": "other"}
    moved = SECOND | {"id": 5, "made": 6}
    assert changes == [
        ("orders", "c", None, FIRST, None, {"id": 1}),
        ("orders", "c", None, SECOND, None, {"id": 2}),
        ("orders", "u", FIRST, other, {"id": 1}, {"id": 1}),
        ("orders", "u", SECOND, moved, {"id": 2}, {"id": 5}),
        ("orders", "d", moved | {"note": None}, None, {"id": 5}, None),
        ("taken", "c", None, {"id": 1}, None, {"id": 1}),
    ]


def test_statements_that_change_tables_are_told() -> None:
    told = [each for each in replay() if isinstance(each, Ddl)]
    assert [each.statement.kind for each in told] == ["CREATE", "ALTER", "CREATE", "TRUNCATE"]
    assert told[-1].statement.truncated == "shop.taken"
