"""Messages become rows of changes, or rows that say why not."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from ottla.pipelines.tables.decode import Decoding
from ottla.pipelines.tables.event import ChangeEvent, InvalidEvent, encode_event
from ottla.pipelines.tables.position import encode_position

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
    decoding = Decoding(("id",), options.pop("columns", COLUMNS), **options)
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


@pytest.mark.parametrize("source", [{"lsn": 77}, {"scn": "77"}])
def test_the_positions_of_other_connectors(source: dict[str, Any]) -> None:
    (row,) = decoded([{"after": {"id": 1}, "source": source, "op": "r"}])
    assert row["_position"] == encode_position(77)
