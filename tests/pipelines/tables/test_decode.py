"""Messages become rows of changes, or rows that say why not."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from ottla.pipelines.tables.decode import Decoding
from ottla.pipelines.tables.event import ChangeEvent, InvalidEvent, encode_event
from ottla.pipelines.tables.position import encode_position
from ottla.pipelines.tables.rules import Rules, RulesRefused

COLUMNS = {"id": "bigint", "name": "string"}


def decoded(values: list[Any], keys: list[bytes | None] | None = None, **options: Any) -> list[dict[str, Any]]:
    raw = [value if value is None or isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    batch = pa.record_batch(
        {
            "key": pa.array(keys or [None] * len(raw), pa.binary()),
            "value": pa.array(raw, pa.binary()),
            "topic": ["t"] * len(raw),
            "partition": pa.array([0] * len(raw), pa.int32()),
            "offset": list(range(len(raw))),
        }
    )
    decoding = options.pop("decoding", None) or Decoding(("id",), options.pop("columns", COLUMNS), **options)
    rows: list[dict[str, Any]] = pa.Table.from_batches(decoding.decode([batch])).to_pylist()
    return rows


def test_the_form_of_ours() -> None:
    event = ChangeEvent(
        "c", {"id": 1}, None, {"id": 1, "name": "Ada"}, [7, 2], 1_700_000_000_000, 1, dict(COLUMNS), "t"
    )
    (row,) = decoded([encode_event(event)])
    assert (row["id"], row["name"], row["_deleted"]) == (1, "Ada", False)
    assert row["_position"] == encode_position([7, 2])
    assert row["_commit_time"].timestamp() == 1_700_000_000
    assert row["_error"] is row["_new_columns"] is None


def test_an_operation_that_is_none_is_not_written() -> None:
    with pytest.raises(InvalidEvent):
        encode_event(ChangeEvent("x", {"id": 1}, None, None, 1))


def test_a_changed_primary_key_is_a_delete_and_an_upsert() -> None:
    change = {"op": "u", "key": {"id": 2}, "before": {"id": 1}, "after": {"id": 2, "name": "b"}, "position": 5}
    old, new = decoded([change])
    assert (old["id"], old["_deleted"]) == (1, True)
    assert (new["id"], new["_deleted"]) == (2, False)
    assert old["_position"] == new["_position"]


def test_a_changed_primary_key_of_more_digits_than_a_float_has() -> None:
    old, new = (b"12345678901234567.%02d" % cents for cents in (1, 2))
    change = b'{"op": "u", "before": {"id": %b}, "after": {"id": %b}, "position": 5}' % (old, new)
    rows = decoded([change], columns={"id": "decimal(20,2)"})
    assert [(str(row["id"]), row["_deleted"]) for row in rows] == [(old.decode(), True), (new.decode(), False)]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"rubbish", "no JSON"),
        (b"[1]", "no JSON object"),
        (b"[" * 100_000, "no JSON"),
        ({"op": "x"}, "unknown"),
        ({"key": {"id": 1}}, "no 'op'"),
        ({"op": "c", "after": {"name": "a"}, "position": 1}, "no key"),
        ({"op": "d", "key": None, "position": 1}, "no key"),
        ({"op": "c", "after": {"id": 1}}, "no position"),
        ({"op": "u", "key": {"id": 1}, "position": 1}, "no 'after'"),
        ({"op": "c", "after": 5, "position": 1}, "no JSON object"),
        ({"op": "c", "after": {"id": "seven"}, "position": 1}, "'id'"),
        ({"op": "c", "after": {"id": 2**70}, "position": 1}, "'id'"),
        ({"op": "c", "after": {"id": 1}, "position": 1.5}, "position"),
        ({"op": "c", "after": {"id": 1, "_bucket": 1}, "position": 1}, "underscore"),
        ({"op": "c", "after": {"id": 1}, "position": 1, "schema": {"columns": {"id": "string"}}}, "cannot become"),
        ({"op": "c", "after": {"id": 1}, "position": 1, "schema": {"columns": {"id": "money"}}}, "unknown"),
        ({"op": ["c"], "after": {"id": 1}, "position": 1}, "unknown"),
        ({"op": "x" * 1_000_000}, "xxx..."),
        ({"op": "c", "after": {"id": 1.5}, "position": 1}, "1.5 is no whole number"),
        ({"op": "c", "after": {"id": True}, "position": 1}, "no whole number"),
        (b'{"op": "c", "after": {"id": 1}, "position": "\\ud800"}', "halves of characters"),
        (b'{"op": "c", "after": {"id": 1, "\\ud800": 1}, "position": 1}', "column"),
        (b'{"op": "c", "after": {"id": 1, "name": "\\ud800"}, "position": 1}', "surrogates"),
        ({"op": "c", "after": {"id": 1, "": 1}, "position": 1}, "empty"),
        ({"op": "c", "after": {"id": 1, "two words": 1}, "position": 1}, "two words"),
        ({"op": "c", "after": {"id": 1, "Name": "a"}, "position": 1}, "the table has 'name'"),
        ({"op": "c", "after": {"id": 1, "a": 1, "A": 2}, "position": 1}, "does not tell them apart"),
        ({"op": "c", "after": {"id": 1}, "position": 1, "schema": {"columns": {"n": "decimal(39,2)"}}}, "digits"),
        ({"op": "c", "after": {"id": 1}, "position": 1, "schema": {"columns": {"n": "decimal(5,6)"}}}, "digits"),
        ({"op": "c", "after": {"id": 1}, "source": {"lsn": "seven"}}, "whole number"),
        (b'{"op": "c", "after": {"id": 1}, "source": {"scn": Infinity}}', "whole number"),
    ],
)
def test_a_bad_message_says_why_and_harms_no_other(message: Any, reason: str) -> None:
    good = {"op": "c", "after": {"id": 3, "name": "c"}, "position": 9}
    first, bad, last = decoded([good, message, good])
    assert reason in bad["_error"]
    assert bad["_position"] is None
    assert bad["_message_value"] is not None
    assert first["_error"] is last["_error"] is None
    assert first["id"] == last["id"] == 3


@pytest.mark.parametrize("moment", [10**30, 10**15, -(10**15), True, "now", [1]])
def test_a_time_that_no_calendar_has_is_no_time_of_a_commit(moment: Any) -> None:
    (row,) = decoded([{"op": "c", "after": {"id": 3}, "position": 9, "commit_time": moment}])
    assert (row["id"], row["_commit_time"], row["_error"]) == (3, None, None)


def test_values_of_a_time_that_no_calendar_has_are_refused() -> None:
    """A history reads its rows one by one, and could not read these."""
    columns = {"id": "bigint", "at": "timestamp", "day": "date"}
    values: list[dict[str, object]] = [
        {"at": 10**15},
        {"at": "0000-01-01T00:00:00"},
        {"at": 2**63},
        {"day": "0000-12-31"},
        {"at": "2026-11-16"},
    ]
    events = [{"op": "c", "after": {"id": 1, **value}, "position": 1} for value in values]
    errors = [row["_error"] for row in decoded(events, columns=columns)]
    assert [error is None for error in errors] == [False, False, False, False, True]
    (last,) = decoded(
        [{"op": "c", "after": {"id": 1, "at": "9999-12-31T23:59:59.999999"}, "position": 1}], columns=columns
    )
    assert last["at"].isoformat() == "9999-12-31T23:59:59.999999+00:00"


def test_times_as_numbers_and_as_texts_stand_side_by_side() -> None:
    events = [
        {"op": "c", "after": {"id": 1, "at": at}, "position": 1} for at in (1500, "1970-01-01T00:00:02", None, -1)
    ]
    rows = decoded(events, columns={"id": "bigint", "at": "timestamp"})
    assert [row["_error"] for row in rows] == [None] * 4
    assert [row["at"] and row["at"].timestamp() for row in rows] == [1.5, 2, None, -0.001]


def test_a_message_of_two_changes_counts_whole_or_not_at_all() -> None:
    change = {"op": "u", "before": {"id": 1}, "after": {"id": 2, "name": "b", "size": "large"}, "position": 5}
    rows = decoded([change], columns={**COLUMNS, "size": "int"})
    assert [row["_position"] for row in rows] == [None, None]
    assert all("size" in row["_error"] for row in rows)


def test_a_whole_number_with_a_point_is_one() -> None:
    (row,) = decoded([b'{"op": "c", "after": {"id": 3.0}, "position": 9}'])
    assert (row["id"], row["_error"]) == (3, None)


def test_a_null_and_another_table_say_nothing() -> None:
    other = {"op": "c", "table": "b", "after": {"id": 3}, "position": 9}
    rows = decoded([None, other], table="a")
    assert [(row["_error"], row["_position"], row["_offset"]) for row in rows] == [(None, None, 0), (None, None, 1)]


def test_new_and_wider_columns_are_asked_for() -> None:
    wider = {"op": "c", "after": {"id": 1, "name": "a"}, "position": 1}
    declared = wider | {"schema": {"version": 2, "columns": {"id": "bigint", "age": "int"}}}
    rows = decoded([wider, declared, wider], columns={"id": "int", "name": "string"})
    assert [row["_new_columns"] and json.loads(row["_new_columns"]) for row in rows] == [
        None,
        {"id": "bigint", "age": "int"},
        None,
    ]
    (row,) = decoded([{"op": "c", "after": {"id": 1, "price": 1.5, "note": None}, "position": 1}])
    assert json.loads(row["_new_columns"]) == {"price": "double"}
    (row,) = decoded([{"op": "c", "after": {"id": 1, "price": 1.5}, "position": 1}], left_out=frozenset(["price"]))
    assert row["_new_columns"] is None


@pytest.mark.parametrize("declared", [None, {}, {"name": "string"}])
@pytest.mark.parametrize("where", ["key", "after"])
def test_key_columns_are_asked_for_wherever_the_event_has_them(where: str, declared: dict[str, str] | None) -> None:
    """And whether it declares them or not: a row cannot be without."""
    event: dict[str, Any] = {"op": "c", "after": {"name": "a"}, "position": 1}
    event[where] = event.get(where, {}) | {"id": 7}
    deleted = {"op": "d", "key": {"id": 7}, "position": 2}
    if declared is not None:
        event, deleted = (each | {"schema": {"version": 1, "columns": declared}} for each in (event, deleted))
    rows = decoded([event, deleted], columns={"other": "int"})
    assert [json.loads(row["_new_columns"])["id"] for row in rows] == ["bigint", "bigint"]


def test_the_type_of_a_column_that_is_left_out_is_nobodys_concern() -> None:
    types = {"id": "bigint", "name": "string", "place": "geometry"}
    event = {"op": "c", "after": {"id": 1, "place": "x"}, "position": 1, "schema": {"version": 1, "columns": types}}
    left_out, listed = decoded([event], left_out=frozenset(["place"])), decoded([event], listed=frozenset(COLUMNS))
    assert [(row["id"], row["_error"]) for row in left_out + listed] == [(1, None)] * 2
    (row,) = decoded([event])
    assert "the type 'geometry' is unknown" in row["_error"]


@pytest.mark.parametrize("kind", ["double", "float"])
def test_zero_is_one_key_whatever_its_sign(kind: str) -> None:
    """As in every database. Its text says in which bucket a row is."""
    events = [{"op": "c", "after": {"id": zero, "value": -0.0}, "position": 1} for zero in (0.0, -0.0, 0)]
    rows = decoded(events, columns={"id": kind, "value": kind})
    assert [str(row["id"]) for row in rows] == ["0.0"] * 3
    assert [str(row["value"]) for row in rows] == ["-0.0"] * 3


def test_a_decimal_that_is_written_as_a_number_keeps_its_digits() -> None:
    columns = {"id": "bigint", "sum": "decimal(38,10)", "half": "double", "text": "string"}
    event = b'{"op": "c", "after": {"id": 1, "sum": %s, "half": 0.5, "text": 1.5}, "position": 1}'
    written = [b"12345678901234567890.0123456789", b"-0.1", b"1e3", b"7"]
    rows = decoded([event % number for number in written], columns=columns)
    assert [row["_error"] for row in rows] == [None] * 4
    assert [f"{row['sum']:f}" for row in rows] == [
        "12345678901234567890.0123456789",
        "-0.1000000000",
        "1000.0000000000",
        "7.0000000000",
    ]
    assert {(row["half"], row["text"]) for row in rows} == {(0.5, "1.5")}


def test_types_beyond_json() -> None:
    columns = {
        "id": "bigint",
        "at": "timestamp",
        "day": "date",
        "sum": "decimal(10,2)",
        "raw": "binary",
        "on": "boolean",
    }
    after = {"id": 1, "at": "2026-11-16T12:00:00.5", "day": "2026-11-16", "sum": "12.30", "raw": "AAE=", "on": 1}
    (row,) = decoded([{"op": "c", "after": after, "position": 1}], columns=columns)
    assert row["_error"] is None
    assert row["at"].isoformat() == "2026-11-16T12:00:00.500000+00:00"
    assert (row["day"].isoformat(), str(row["sum"]), row["raw"], row["on"]) == (
        "2026-11-16",
        "12.30",
        b"\x00\x01",
        True,
    )


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_the_envelope_of_debezium(is_wrapped: bool) -> None:
    source = {
        "db": "shop",
        "table": "customers",
        "ts_ms": 1_700_000_000_000,
        "file": "bin.000003",
        "pos": 154,
        "row": 1,
    }
    created: dict[str, Any] = {
        "before": None,
        "after": {"id": 1, "name": "Ada"},
        "source": source,
        "op": "c",
        "ts_ms": 1,
    }
    deleted: dict[str, Any] = {
        "before": {"id": 1, "name": "Ada"},
        "after": None,
        "source": source | {"pos": 99},
        "op": "d",
    }
    key: dict[str, Any] = {"id": 1}
    if is_wrapped:
        created, deleted, key = ({"schema": {}, "payload": payload} for payload in (created, deleted, key))
    first, second = decoded([created, deleted], [json.dumps(key).encode()] * 2)
    assert (first["id"], first["name"], first["_deleted"], first["_error"]) == (1, "Ada", False, None)
    assert (second["id"], second["_deleted"], second["_error"]) == (1, True, None)
    assert first["_position"] == encode_position(["bin.000003", 154, 1]) > second["_position"]


def test_the_files_of_a_binlog_are_in_the_order_of_their_numbers() -> None:
    numbers = (1, 9, 10, 999_999, 1_000_000, 9_999_999, 10_000_000)
    events = [{"after": {"id": 1}, "source": {"file": f"bin.{each:06d}", "pos": 4}, "op": "c"} for each in numbers]
    positions = [row["_position"] for row in decoded(events)]
    assert positions == sorted(set(positions))
    assert positions[3] == encode_position(["bin.999999", 4, 0])  # as tables have it


@pytest.mark.parametrize("source", [{"lsn": 77}, {"scn": "77"}])
def test_the_positions_of_other_connectors(source: dict[str, Any]) -> None:
    (row,) = decoded([{"after": {"id": 1}, "source": source, "op": "r"}])
    assert row["_position"] == encode_position(77)


def test_a_truncate_is_a_delete_without_a_key() -> None:
    envelope = {"op": "t", "before": None, "after": None, "source": {"file": "bin.000003", "pos": 9, "table": "t"}}
    own, theirs, bad = decoded([{"op": "t", "position": 5, "commit_time": 7}, envelope, {"op": "t"}])
    assert (own["id"], own["_deleted"], own["_position"], own["_error"]) == (None, True, encode_position(5), None)
    assert (theirs["_deleted"], theirs["_position"]) == (True, encode_position(["bin.000003", 9, 0]))
    assert bad["_error"] == "the change has no position"
    (by_offset,) = decoded([{"op": "t"}], sequence_by="offset")
    assert by_offset["_error"] == "a truncate needs positions: offsets of one partition say nothing of the others"


def test_a_key_that_would_be_another_text_is_refused() -> None:
    """By its text a row is found again."""
    events = [
        {"op": "c", "after": {"id": 1}, "position": 1, "schema": {"version": 1, "columns": {"id": kind}}}
        for kind in ("double", "decimal(20,2)", "int")
    ]
    by_double, by_decimal, by_int = decoded(events, columns={"id": "int", "name": "string"})
    assert by_double["_error"] == "the key column 'id' is int, which cannot become double"
    assert by_decimal["_error"] == "the key column 'id' is int, which cannot become decimal(20,2)"
    assert by_int["_error"] is None
    (wider,) = decoded([events[0] | {"schema": {"columns": {"id": "bigint"}}}], columns={"id": "int"})
    assert wider["_new_columns"] == '{"id": "bigint"}'


def test_what_equals_nothing_is_no_key() -> None:
    (row,) = decoded([{"op": "c", "after": {"id": float("nan")}, "position": 1}], columns={"id": "double"})
    assert row["_error"] == "the change has no key (id)"


def test_of_columns_that_are_listed_and_of_those_that_are_left_out() -> None:
    """Whether events declare them or not."""
    plain = {"op": "c", "after": {"id": 1, "name": "a", "secret": 7, "size": 2}, "position": 1}
    declared = plain | {"schema": {"columns": {"id": "bigint", "name": "string", "secret": "int", "size": "int"}}}
    for rules, asked in (
        (Rules(("id",), column_list=("id", "name")), [None, None]),
        (Rules(("id",), except_column_list=("secret",)), ["size", "size"]),
    ):
        batch = decoded([plain, declared], decoding=rules.decoding(COLUMNS))
        found = [row["_new_columns"] and json.loads(row["_new_columns"]) for row in batch]
        assert [columns and ", ".join(columns.keys() - COLUMNS.keys()) for columns in found] == asked
        assert [row["_error"] for row in batch] == [None, None]


def test_a_history_follows_all_columns_but_some() -> None:
    rules = Rules(
        ("id",), stored_as_scd_type=2, columns=COLUMNS | {"note": "string"}, track_history_except_column_list=("note",)
    )
    assert rules.layout.tracked == ("id", "name")
    with pytest.raises(RulesRefused, match="exclude each other"):
        Rules(("id",), stored_as_scd_type=2, track_history_column_list=("a",), track_history_except_column_list=("b",))
