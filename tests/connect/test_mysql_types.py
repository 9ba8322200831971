"""Every type of column: the snapshot and the binlog say the same, and it is what was put in."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from ottla.pipelines.tables.decode import Decoding
from ottla.testing import LocalBroker
from tests.connect.mariadb import MariaDb
from tests.connect.mysql_running import source, wait_for_events
from tests.connect.running import records_of, running

B64 = "AAH/"
# Declaration, type in the event, and pairs of what is put in (SQL) and what the event has.
TYPES: dict[str, tuple[str, str, list[tuple[str, Any]]]] = {
    "tiny": ("TINYINT", "smallint", [("-128", -128), ("127", 127)]),
    "tiny_u": ("TINYINT UNSIGNED", "smallint", [("255", 255), ("0", 0)]),
    "yes": ("BOOLEAN", "smallint", [("TRUE", 1), ("FALSE", 0)]),
    "small": ("SMALLINT", "smallint", [("-32768", -32768), ("32767", 32767)]),
    "small_u": ("SMALLINT UNSIGNED", "int", [("65535", 65535)]),
    "medium": ("MEDIUMINT", "int", [("-8388608", -8388608), ("8388607", 8388607)]),
    "medium_u": ("MEDIUMINT UNSIGNED", "int", [("16777215", 16777215)]),
    "year": ("YEAR", "smallint", [("2026", 2026), ("1901", 1901), ("0", 0)]),
    "whole": ("INT", "int", [("-2147483648", -2147483648), ("2147483647", 2147483647)]),
    "whole_u": ("INT UNSIGNED", "bigint", [("4294967295", 4294967295)]),
    "zero_filled": ("INT(8) ZEROFILL", "bigint", [("42", 42)]),
    "big": ("BIGINT", "bigint", [("-9223372036854775808", -(1 << 63)), ("9223372036854775807", (1 << 63) - 1)]),
    "big_u": ("BIGINT UNSIGNED", "decimal(20,0)", [("18446744073709551615", "18446744073709551615"), ("0", "0")]),
    "float_4": ("FLOAT", "float", [("0.1", 0.10000000149011612), ("-1.5e30", -1.4999999470133356e30)]),
    "float_8": ("DOUBLE", "double", [("0.1", 0.1), ("-1.7976931348623157e308", -1.7976931348623157e308)]),
    "money": ("DECIMAL(10,2)", "decimal(10,2)", [("-123.45", "-123.45"), ("0", "0.00"), ("99999999.99",) * 2]),
    "fraction": ("DECIMAL(5,5)", "decimal(5,5)", [("0.00001", "0.00001"), ("-0.5", "-0.50000")]),
    "wide": ("DECIMAL(38,10)", "decimal(38,10)", [("-1234567890123456789012345678.0123456789",) * 2]),
    "widest": ("DECIMAL(65,29)", "string", [("9876543210987654321098765432109876.12345678901234567890123456789",) * 2]),
    "bits": ("BIT(10)", "bigint", [("b'1010101010'", 682), ("b'0'", 0)]),
    "bits_64": ("BIT(64)", "decimal(20,0)", [("18446744073709551615", "18446744073709551615")]),
    "kind": ("ENUM('x','yé','with, comma')", "string", [("'yé'", "yé"), ("'with, comma'", "with, comma")]),
    "flags": ("SET('p','q','ö')", "string", [("'ö,p'", "p,ö"), ("''", "")]),
    "day": ("DATE", "date", [("'2026-02-28'", "2026-02-28"), ("'0000-00-00'", None), ("'2026-00-00'", None),
                             ("'9999-12-31'", "9999-12-31")]),
    "moment": ("DATETIME", "timestamp", [("'2026-11-16 23:59:58'", "2026-11-16T23:59:58"), ("'0000-00-00'", None)]),
    "moment_3": ("DATETIME(3)", "timestamp", [("'1000-01-01 00:00:00.005'", "1000-01-01T00:00:00.005000")]),
    "moment_6": ("DATETIME(6)", "timestamp", [("'2026-01-01 00:00:00.000001'", "2026-01-01T00:00:00.000001")]),
    "stamp": ("TIMESTAMP NULL", "timestamp", [("'2000-02-29 12:00:00'", "2000-02-29T11:00:00"),
                                              ("'2038-01-19 04:14:07'", "2038-01-19T03:14:07")]),
    "stamp_6": ("TIMESTAMP(6) NULL", "timestamp", [("'1970-01-01 01:00:01.5'", "1970-01-01T00:00:01.500000")]),
    "time_0": ("TIME", "string", [("'-838:59:59'", "-838:59:59"), ("'00:00:01'", "00:00:01")]),
    "time_2": ("TIME(2)", "string", [("'-01:02:03.45'", "-01:02:03.45"), ("'100:00:00.10'", "100:00:00.10")]),
    "time_6": ("TIME(6)", "string", [("'-00:00:00.000001'", "-00:00:00.000001")]),
    "chars": ("CHAR(10)", "string", [("'añ  '", "añ"), ("''", "")]),
    "chars_wide": ("CHAR(200)", "string", [("'wide 漢字'", "wide 漢字")]),
    "text_short": ("VARCHAR(20)", "string", [("'😀 \"quoted\" \\\\ \\n'", '😀 "quoted" \\ \n'), ("''", "")]),
    "text_wide": ("VARCHAR(2000)", "string", [("REPEAT('ä', 1000)", "ä" * 1000)]),
    "latin": ("VARCHAR(20) CHARACTER SET latin1", "string", [("'é€'", "é€")]),
    "utf16": ("VARCHAR(20) CHARACTER SET utf16", "string", [("'漢é'", "漢é")]),
    **{
        f"in_{name}": (
            f"VARCHAR(9) CHARACTER SET {name}", "string", [(f"CONVERT(_{name} x'{digits}' USING {name})", text)],
        )
        for name, digits, text in (
            ("dec8", "41FC", "Aü"), ("hp8", "41FC", "A■"), ("swe7", "415B", "AÄ"), ("cp866", "FC", "ⁿ"),
            ("keybcs2", "41FC", "Aⁿ"), ("armscii8", "41FC", "AՖ"), ("geostd8", "41C0", "Aა"), ("koi8u", "95", "•"),
            ("euckr", "8141", "갂"),
        )
    },
    "greek": ("TEXT CHARACTER SET greek", "string", [("'αβγ'", "αβγ")]),
    "text": ("TEXT", "string", [("REPEAT('x', 70000 / 2)", "x" * 35000)]),
    "text_long": ("LONGTEXT", "string", [("'long'", "long")]),
    "text_tiny": ("TINYTEXT", "string", [("'tiny'", "tiny")]),
    "document": ("JSON", "string", [("'{\"a\": [1, null]}'", '{"a": [1, null]}')]),
    "octets": ("BINARY(5)", "binary", [("x'0001ff'", "AAH/AAA="), ("''", "AAAAAAA=")]),
    "octets_var": ("VARBINARY(300)", "binary", [("x'0001ff'", B64), ("''", "")]),
    "blob_tiny": ("TINYBLOB", "binary", [("x'0001ff'", B64)]),
    "blob": ("BLOB", "binary", [("x'0001ff'", B64)]),
    "blob_medium": ("MEDIUMBLOB", "binary", [("x'0001ff'", B64)]),
    "blob_long": ("LONGBLOB", "binary", [("x'0001ff'", B64)]),
    "packed": ("TEXT COMPRESSED", "string", [("REPEAT('ab', 500)", "ab" * 500), ("'x'", "x"), ("''", "")]),
    "packed_var": ("VARCHAR(2000) COMPRESSED", "string", [("REPEAT('ab', 500)", "ab" * 500)]),
    "packed_blob": ("BLOB COMPRESSED", "binary", [("REPEAT(x'00', 300)", "A" * 400)]),
    "point": ("POINT", "binary", [("POINT(1, 2)", "AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA==")]),
    "uuid": ("UUID", "string", [(f"'{text}'", text) for text in (
        "123e4567-e89b-12d3-a456-426655440000", "01890a5d-ac96-774b-bcce-b302099a8057",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479", "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffff00",
    )]),
    "address_6": ("INET6", "string", [("'2001:db8::ff00:42:8300'", "2001:db8::ff00:42:8300"), ("'::'", "::")]),
    "address_4": ("INET4", "string", [("'192.168.0.0'", "192.168.0.0")]),
    "generated": ("INT AS (id + 1) STORED", "int", []),
    "virtual": ("INT AS (id + 2) VIRTUAL", "int", []),
    "hidden": ("INT INVISIBLE DEFAULT 7", "int", []),
}  # fmt: skip


def statement_and_expected(database: str) -> tuple[list[str], list[dict[str, Any]]]:
    """One row for each value; the other columns are null."""
    statements = ["SET time_zone = '+01:00'", "SET sql_mode = ''", f"USE {database}"]
    columns = ", ".join(f"`{name}` {declared}" for name, (declared, _, _) in TYPES.items())
    statements.append(f"CREATE TABLE things (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4")
    expected: list[dict[str, Any]] = []
    for name, (_, _, values) in TYPES.items():
        for sql, value in values:
            number = len(expected) + 1
            statements.append(f"INSERT INTO things (id, `{name}`) VALUES ({number}, {sql})")
            row: dict[str, Any] = {"id": number} | dict.fromkeys(TYPES)
            row |= {name: value, "generated": number + 1, "virtual": number + 2, "hidden": 7}
            expected.append(row)
    return statements, expected


def test_each_type_comes_alike_from_the_snapshot_and_from_the_binlog(
    ottla: LocalBroker, mariadb: MariaDb, database: str, tmp_path: Path
) -> None:
    statements, expected = statement_and_expected(database)
    mariadb.run(*statements)
    with running(tmp_path, ottla.bootstrap, source(mariadb, database)):
        wait_for_events(ottla.bootstrap, "things", len(expected))
        # The same rows again, through the binlog: each is deleted, and inserted as it was.
        mariadb.run(*statements[:3], "DELETE FROM things", *statements[4:])
        events = wait_for_events(ottla.bootstrap, "things", 3 * len(expected))
    copied, deleted, inserted = (
        {event["key"]["id"]: event[side] for event in events if event["op"] == operation}
        for operation, side in (("r", "after"), ("d", "before"), ("c", "after"))
    )
    for row in expected:
        assert copied[row["id"]] == row
        assert deleted[row["id"]] == row
        assert inserted[row["id"]] == row
    declared = {"id": "int"} | {name: kind for name, (_, kind, _) in TYPES.items()}
    assert [event["schema"] for event in events] == [{"version": 1, "columns": declared}] * len(events)
    _check_as_arrow(records_of(ottla.bootstrap, "things"), declared, expected)


def _check_as_arrow(records: list[Any], declared: dict[str, str], expected: list[dict[str, Any]]) -> None:
    """As the pipeline reads it on its way into a Delta table: every value fits its type."""
    batch = pa.record_batch(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "topic": ["things"] * len(records),
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array([record.offset for record in records], pa.int64()),
        }
    )
    (decoded,) = Decoding(("id",), declared).decode([batch])
    assert set(decoded.column("_error").to_pylist()) == {None}
    first = decoded.slice(0, len(expected)).to_pylist()
    by_id = {row["id"]: row for row in first}
    names = list(TYPES)
    row_of = {name: [r["id"] for r in expected if r[name] is not None] for name in names}
    assert str(by_id[row_of["wide"][0]]["wide"]) == "-1234567890123456789012345678.0123456789"
    assert by_id[row_of["blob"][0]]["blob"] == b"\x00\x01\xff"
    assert by_id[row_of["stamp_6"][0]]["stamp_6"].isoformat() == "1970-01-01T00:00:01.500000+00:00"
    assert by_id[row_of["day"][0]]["day"].isoformat() == "2026-02-28"
