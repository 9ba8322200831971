"""Events of a binlog, from bytes that are put together as the protocol describes them: those of MySQL alone."""

import struct
import uuid

import pytest

from ottla.connect.interface import ConnectorRefused
from ottla.connect.mysql.binlog import Begun, BinlogReader, Committed, Ddl, Place, client_collation
from ottla.connect.mysql.source import refuse_purged

START = Place("binlog.000007", 157)
SOURCE = uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")


def event(kind: int, body: bytes, end_position: int) -> bytes:
    return struct.pack("<IBIIIH", 1_700_000_000, kind, 1, 19 + len(body), end_position, 0) + body


def query(
    text: str, end_position: int, database: str = "shop", *, status: bytes = b"", charset: str = "utf-8"
) -> bytes:
    header = struct.pack("<IIBHH", 1, 0, len(database), 0, len(status)) + status
    return event(2, header + database.encode() + b"\0" + text.encode(charset), end_position)


def load_data(end_position: int) -> bytes:
    header = struct.pack("<IIBHHIIIB", 1, 0, 4, 0, 0, 1, 9, 10, 0)
    return event(18, header + b"shop\0LOAD DATA INFILE 'x' INTO TABLE t", end_position)


def make_reader() -> BinlogReader:
    return BinlogReader(START, is_mariadb=False, find_table=lambda _: None, is_captured=lambda name: name == "shop")


def gtid(number: int, end_position: int) -> bytes:
    return event(33, b"\1" + SOURCE.bytes + struct.pack("<QB", number, 2), end_position)


def test_a_transaction_of_mysql_is_known_by_its_gtid() -> None:
    reader = make_reader()
    events = [gtid(23, 236), query("BEGIN", 310), event(16, bytes(8), 341)]
    happened = [each for one in events for each in reader.read(one)]
    assert happened == [
        Begun(f"{SOURCE}:23", 1_700_000_000, START),
        Committed(Place(START.file, 341), f"{SOURCE}:23"),
    ]


def test_a_transaction_without_a_gtid_is_known_by_its_place() -> None:
    (begun,) = make_reader().read(event(34, bytes(25), 236))
    assert begun == Begun("binlog.000007:157", 1_700_000_000, START)


def test_a_statement_that_changes_tables_is_a_transaction() -> None:
    reader = make_reader()
    list(reader.read(gtid(24, 236)))
    ddl, committed = reader.read(query("/* why */ ALTER TABLE t ADD c INT", 400))
    assert isinstance(ddl, Ddl)
    assert (ddl.statement.kind, ddl.database) == ("ALTER", "shop")
    assert isinstance(committed, Committed)
    assert reader.place == Place(START.file, 400)


def test_a_statement_is_read_in_the_character_set_of_its_client() -> None:
    def decode(data: bytes) -> str:
        return data.decode("latin1")

    in_latin_1 = b"\0" + bytes(4) + b"\1" + bytes(8) + b"\6\3std" + b"\3" + bytes(4) + b"\4\x08\0\x08\0\x2d\0"
    reader = BinlogReader(
        START, is_mariadb=False, find_table=lambda _: None, is_captured=lambda _: True, decodes={8: decode, 45: None}
    )
    text = "ALTER TABLE \u00fcbung MODIFY a INT"
    ddl, _ = reader.read(query(text, 400, status=in_latin_1, charset="latin1"))
    assert isinstance(ddl, Ddl)
    assert (ddl.text, ddl.statement.refilled) == (text, ["shop.\u00fcbung"])
    ddl, _ = reader.read(query(text, 500, status=b"\0" + bytes(4) + b"\x09" + in_latin_1))  # it says too little
    assert isinstance(ddl, Ddl)
    assert ddl.text == text


@pytest.mark.parametrize("status", [b"\6", b"\6\xff", b"\4", b"\0\0", b"\4\x08"])
def test_variables_that_end_early(status: bytes) -> None:
    assert client_collation(status) in (0, 8)


def test_the_next_file_is_followed() -> None:
    reader = make_reader()
    assert list(reader.read(event(4, struct.pack("<Q", 4) + b"binlog.000008", 500))) == []
    assert reader.place == Place("binlog.000008", 4)


def test_positions_behind_4_gb() -> None:
    """An event says 32 bits of its position."""
    begin, wrapped = (3 << 30) + 7, (5 << 30) + 11
    start = Place(START.file, begin)
    reader = BinlogReader(start, is_mariadb=False, find_table=lambda _: None, is_captured=lambda _: True)
    events = [gtid(23, begin + 79), query("BEGIN", begin + 150), event(29, b"", (4 << 30) - 1)]
    events += [event(29, b"", 0), event(16, bytes(8), wrapped % (1 << 32)), gtid(24, (wrapped + 79) % (1 << 32))]
    *_, committed, begun = (each for one in events for each in reader.read(one))
    assert committed == Committed(Place(START.file, wrapped), f"{SOURCE}:23")
    assert begun == Begun(f"{SOURCE}:24", 1_700_000_000, Place(START.file, wrapped))
    list(reader.read(event(4, struct.pack("<Q", 4) + b"binlog.000008", wrapped % (1 << 32))))
    (committed,) = reader.read(event(16, bytes(8), 126))
    assert committed == Committed(Place("binlog.000008", 126), f"{SOURCE}:24")


def test_no_server_is_asked_for_a_position_behind_4_gb() -> None:
    place = {"file": START.file, "pos": 1 << 32}
    with pytest.raises(ConnectorRefused, match="told no position behind 4 GB"):
        refuse_purged(place, {START.file: 5 << 30})


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (event(40, b"", 300), "written with binlog_transaction_compression"),
        (event(39, b"", 300), "written with binlog_row_value_options"),
        (event(38, b"", 300), "holds an XA transaction"),
        (query("INSERT INTO t VALUES (1)", 300), "holds a statement in place of rows"),
        (query("/* of a tool */ INSERT INTO shop.t VALUES (1)", 300, "other"), "holds a statement in place of rows"),
        (query("WITH a AS (SELECT 1) DELETE FROM t", 300), "holds a statement in place of rows"),
        (load_data(300), r"holds a statement in place of rows \(LOAD"),
        (event(26, b"", 300), "the server has lost changes"),
        (event(99, b"", 300), "events of kind 99, which are not known"),
    ],
)
def test_what_would_lose_rows_is_refused(bad: bytes, sentence: str) -> None:
    with pytest.raises(ConnectorRefused, match=sentence):
        list(make_reader().read(bad))


def test_what_has_no_rows_is_passed_over() -> None:
    reader = make_reader()
    ignorable = struct.pack("<IBIIIH", 1_700_000_000, 99, 1, 19, 300, 0x80)
    (passed,) = reader.read(ignorable)
    assert passed == Committed(Place(START.file, 300), None)
    (passed,) = reader.read(query("INSERT INTO t VALUES (1)", 400, "other"))
    assert passed == Committed(Place(START.file, 400), None)


def test_a_table_made_of_rows_is_one_transaction() -> None:
    """CREATE TABLE ... SELECT of MySQL 8 stands between BEGIN and the end of the transaction."""
    reader = make_reader()
    events = [gtid(25, 236), query("BEGIN", 300), query("CREATE TABLE t (id INT) START TRANSACTION", 400)]
    begun, ddl = (each for one in events for each in reader.read(one))
    assert isinstance(begun, Begun)
    assert isinstance(ddl, Ddl)
    assert reader.place == START
    assert list(reader.read(event(16, bytes(8), 500))) == [Committed(Place(START.file, 500), f"{SOURCE}:25")]
