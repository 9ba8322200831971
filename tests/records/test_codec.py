"""Records to bytes and back, compiled and not."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.batch import CorruptBatch
from tests.records.codecs import COMPILED, PLAIN, both_ways, needs_compiled
from tests.records.strategies import DRAFTS, INT64, Draft

# One record: size 20, attributes, timestamp delta 1, offset delta 2, key "k", value "val", one header.
RECORD = bytes([40, 0, 2, 4, 2]) + b"k" + bytes([6]) + b"val" + bytes([2, 4]) + b"hn" + bytes([8]) + b"hval"
RECORD = bytes([2 * (len(RECORD) - 1)]) + RECORD[1:]
LEAST_RECORD = bytes([12, 0, 0, 0, 1, 1, 0])  # no key, no value, no headers


def encode(codec: ModuleType, drafts: list[Draft], base_timestamp: int = 0, **options: Any) -> bytearray:
    area: bytearray = codec.encode_columns(
        [draft.value for draft in drafts],
        [draft.key for draft in drafts],
        [draft.timestamp for draft in drafts],
        [draft.headers for draft in drafts],
        base_timestamp=base_timestamp,
        **options,
    )
    return area


@both_ways
def test_bytes_made_by_hand(codec: ModuleType) -> None:
    [record] = codec.decode_records(RECORD, 1, 100, 1000)
    assert record == codec.Record(102, 1001, b"k", b"val", (("hn", b"hval"),))
    columns = ([b"val"], [b"k"], [1001], [[("hn", b"hval")]], [2])
    assert codec.encode_columns(*columns, base_timestamp=1000) == RECORD
    assert codec.encode_values([None]) == LEAST_RECORD


@both_ways
@given(drafts=DRAFTS, base_offset=st.integers(0, 1 << 62), base_timestamp=INT64)
def test_round_trip(codec: ModuleType, drafts: list[Draft], base_offset: int, base_timestamp: int) -> None:
    area = encode(codec, drafts, base_timestamp)
    records = codec.decode_records(area, len(drafts), base_offset, base_timestamp)
    assert [record.offset for record in records] == [base_offset + index for index in range(len(drafts))]
    assert [Draft(r.timestamp, r.key, r.value, list(r.headers)) for r in records] == drafts


@both_ways
@given(drafts=DRAFTS, base_timestamp=INT64)
def test_all_ways_to_encode_agree(codec: ModuleType, drafts: list[Draft], base_timestamp: int) -> None:
    area = encode(codec, drafts, base_timestamp)
    assert codec.encode_records([tuple(draft) for draft in drafts], base_timestamp) == area
    assert area == encode(PLAIN, drafts, base_timestamp)
    values = [draft.value for draft in drafts]
    assert codec.encode_values(values) == codec.encode_columns(values)


@both_ways
@given(
    deltas=st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=10),
    base_offset=st.integers(0, 1 << 62),
)
def test_given_offset_deltas(codec: ModuleType, deltas: list[int], base_offset: int) -> None:
    area = codec.encode_columns([b""] * len(deltas), offset_deltas=deltas)
    offsets = [record.offset for record in codec.decode_records(area, len(deltas), base_offset, 0)]
    assert offsets == [base_offset + delta for delta in deltas]


@both_ways
def test_room_is_left_for_a_header(codec: ModuleType) -> None:
    for area in (
        codec.encode_values([b"v"], 61),
        codec.encode_columns([b"v"], reserve_bytes=61),
        codec.encode_records([(0, None, b"v", ())], 0, 61),
    ):
        assert area[61:] == codec.encode_values([b"v"])
    assert len(codec.encode_values([], 61)) == 61


@both_ways
def test_log_append_time_and_start_offset(codec: ModuleType) -> None:
    area = codec.encode_columns([b"a", b"b", b"c"], timestamps=[1, 2, 3])
    records = codec.decode_records(area, 3, 10, 0, log_append_time=77, start_offset=11)
    assert [(record.offset, record.timestamp, record.value) for record in records] == [
        (11, 77, b"b"),
        (12, 77, b"c"),
    ]


@both_ways
def test_whatever_holds_bytes_is_a_value(codec: ModuleType) -> None:
    every_second = memoryview(b"a-b-c")[::2]
    area = codec.encode_values([bytearray(b"x"), memoryview(b"y"), every_second])
    assert [record.value for record in codec.decode_records(memoryview(area), 3, 0, 0)] == [b"x", b"y", b"abc"]
    assert codec.encode_values(value for value in (b"1", b"2")) == codec.encode_values((b"1", b"2"))


@both_ways
@pytest.mark.parametrize("wrong", ["text", 5, 1.5, object()])
def test_nothing_else_is(codec: ModuleType, wrong: object) -> None:
    for arguments in (([wrong],), ([b"v"], [wrong]), ([b"v"], None, None, [[("name", wrong)]])):
        with pytest.raises(TypeError):
            codec.encode_columns(*arguments)
    with pytest.raises(TypeError):
        codec.encode_values([wrong])
    with pytest.raises(TypeError):
        codec.encode_columns([b"v"], None, None, [[(b"name", None)]])


@both_ways
def test_timestamps_are_whole_numbers_of_64_bits(codec: ModuleType) -> None:
    for wrong, error in ((1 << 63, OverflowError), (-(1 << 63) - 1, OverflowError), ("1", TypeError), (1.5, TypeError)):
        with pytest.raises(error):
            codec.encode_columns([b""], timestamps=[wrong])
        with pytest.raises(error):
            codec.encode_records([(wrong, None, None, ())], 0)


@both_ways
def test_sequences_are_parallel(codec: ModuleType) -> None:
    for name in ("keys", "timestamps", "headers", "offset_deltas"):
        with pytest.raises(ValueError, match="2 values"):
            codec.encode_columns([b"a", b"b"], **{name: [0]})


@both_ways
def test_memory_with_gaps_is_no_area(codec: ModuleType) -> None:
    with pytest.raises(BufferError):
        codec.decode_records(memoryview(bytes(20))[::2], 1, 0, 0)


@both_ways
def test_a_header_name_that_is_not_utf8_is_repaired(codec: ModuleType) -> None:
    area = LEAST_RECORD[:-1] + bytes([2, 2, 0xFF, 1])
    area = bytes([2 * (len(area) - 1)]) + area[1:]
    [record] = codec.decode_records(area, 1, 0, 0)
    assert record.headers == (("\ufffd", None),)


@both_ways
@given(drafts=DRAFTS, base_timestamp=st.integers(0, 1 << 41))
def test_scan(codec: ModuleType, drafts: list[Draft], base_timestamp: int) -> None:
    scan = codec.scan_records(encode(codec, drafts, base_timestamp), len(drafts))
    assert scan.is_in_order
    if drafts:
        deltas = [((d.timestamp - base_timestamp + (1 << 63)) % (1 << 64)) - (1 << 63) for d in drafts]
        assert (scan.least_timestamp_delta, scan.most_timestamp_delta) == (min(deltas), max(deltas))
    nulls = [index for index, draft in enumerate(drafts) if draft.key is None]
    assert scan.first_null_key == (nulls[0] if nulls else -1)


@both_ways
@pytest.mark.parametrize(("deltas", "is_in_order"), [([0, 1, 2], True), ([0, 2], False), ([1, 0], False), ([1], False)])
def test_scan_sees_offsets_out_of_order(codec: ModuleType, deltas: list[int], is_in_order: bool) -> None:
    area = codec.encode_columns([b""] * len(deltas), offset_deltas=deltas)
    assert codec.scan_records(area, len(deltas)).is_in_order == is_in_order


@both_ways
@given(drafts=DRAFTS)
def test_keys(codec: ModuleType, drafts: list[Draft]) -> None:
    entries = codec.decode_keys(encode(codec, drafts), len(drafts))
    assert entries == [(index, draft.key, draft.value is None) for index, draft in enumerate(drafts)]


@both_ways
@given(data=st.data(), drafts=DRAFTS, base_timestamp=INT64, new_base_timestamp=INT64)
def test_retain(
    codec: ModuleType, data: st.DataObject, drafts: list[Draft], base_timestamp: int, new_base_timestamp: int
) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(drafts), max_size=len(drafts)))
    area = encode(codec, drafts, base_timestamp)
    before = codec.decode_records(area, len(drafts), 0, base_timestamp)
    expected = [record for record, is_kept in zip(before, keep, strict=True) if is_kept]
    kept, count, most = codec.retain_records(area, len(drafts), bytes(keep), base_timestamp, new_base_timestamp)
    assert codec.decode_records(kept, count, 0, new_base_timestamp) == expected
    if expected:
        assert most == max(record.timestamp for record in expected)
    unmoved, count, _ = codec.retain_records(area, len(drafts), bytes(keep))
    assert codec.decode_records(unmoved, count, 0, base_timestamp) == expected


@both_ways
def test_retain_takes_one_decision_a_record(codec: ModuleType) -> None:
    with pytest.raises(ValueError, match="decision for 2"):
        codec.retain_records(LEAST_RECORD, 1, b"\1\1")


def replaced(position: int, new: bytes) -> bytes:
    """The least record with one byte exchanged, and its size made right."""
    record = LEAST_RECORD[:position] + new + LEAST_RECORD[position + 1 :]
    return bytes([2 * (len(record) - 1)]) + record[1:]


@both_ways
@pytest.mark.parametrize(
    ("area", "message"),
    [
        (b"\x0d" + bytes(10), "its size"),  # a negative size
        (b"\x20" + LEAST_RECORD[1:], "its size"),  # past the end
        (b"\x00" * 7, "its size"),  # nothing in it
        (b"\xff" * 7, "its size"),  # a number without an end
        (replaced(2, b"\xff" * 10), "its timestamp"),
        (replaced(3, b"\xff" * 5), "its offset"),
        (replaced(4, b"\x7e"), "its key"),
        (replaced(4, b"\xfe\xff\xff\xff\x0f"), "its key"),  # 2^31 - 1 bytes
        (replaced(5, b"\x7e"), "its value"),
        (replaced(6, b"\x01"), "its headers"),  # a negative count
        (replaced(6, b"\x7e"), "its headers"),  # more than fit
        (replaced(6, b"\xfe\xff\xff\xff\x0f"), "its headers"),
        (replaced(6, b"\x02\x01\x01"), "its headers"),  # a name that is null
        (replaced(6, b"\x02\x00\x7e"), "its headers"),
        (replaced(6, b"\x00\x00"), "do not fill"),
        (LEAST_RECORD + b"\0", "1 bytes follow"),
        (LEAST_RECORD[:-1], "do not fit in 6 bytes"),
    ],
)
def test_malformed_records(codec: ModuleType, area: bytes, message: str) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: codec.decode_records(area, 1, 0, 0),
        lambda: codec.scan_records(area, 1),
        lambda: codec.decode_keys(area, 1),
        lambda: codec.retain_records(area, 1, b"\1"),
        lambda: codec.Columns().append_batch(area, 1, 0, 0),
    )
    for call in calls:
        with pytest.raises(CorruptBatch, match=message):
            call()


@both_ways
@pytest.mark.parametrize("count", [-1, 2, 1 << 31, (1 << 62)])
def test_a_count_that_cannot_be(codec: ModuleType, count: int) -> None:
    with pytest.raises(CorruptBatch, match="do not fit"):
        codec.decode_records(LEAST_RECORD, count, 0, 0)


@both_ways
def test_numbers_longer_than_need_be(codec: ModuleType) -> None:
    """Kafka reads them, and drops what is beyond 32 bits."""
    for new, offset in ((b"\x80\x00", 0), (b"\x82\x00", 1), (b"\x80\x80\x80\x80\x70", 0)):
        [record] = codec.decode_records(replaced(3, new), 1, 0, 0)
        assert record.offset == offset


@both_ways
def test_sizes_below_minus_one_are_null(codec: ModuleType) -> None:
    [record] = codec.decode_records(replaced(4, b"\x03"), 1, 0, 0)
    assert record.key is None
    [record] = codec.decode_records(replaced(5, b"\x05"), 1, 0, 0)
    assert record.value is None


@both_ways
def test_record_is_a_value(codec: ModuleType) -> None:
    fields = (5, 6, b"k", None, (("n", b"v"),))
    record = codec.Record(*fields)
    assert record == codec.Record(*fields)
    assert hash(record) == hash(codec.Record(*fields))
    for position, other in enumerate((4, 4, None, b"", ())):
        assert record != codec.Record(*fields[:position], other, *fields[position + 1 :])
    assert record != fields
    assert repr(record) == "Record(offset=5, timestamp=6, key=b'k', value=None, headers=(('n', b'v'),))"
    if codec is not PLAIN:  # pickle looks the class up by its module, and the plain one is not importable
        assert pickle.loads(pickle.dumps(record)) == record


@needs_compiled
def test_the_collector_does_not_look_at_compiled_records() -> None:
    """A quarter of the time of reading many went there."""
    assert COMPILED is not None
    [record] = COMPILED.decode_records(COMPILED.encode_values([b"v"]), 1, 0, 0)
    assert not gc.is_tracked(record)


def test_plain_codec_runs_without_cython() -> None:
    program = """
import sys
sys.modules["cython"] = None
import importlib.util, pathlib, ottla.records.memory
path = pathlib.Path(ottla.records.memory.__file__).with_name("codec.py")
spec = importlib.util.spec_from_file_location("plain", path)
plain = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain)
assert not plain.COMPILED
print(plain.decode_records(plain.encode_values([b"v"]), 1, 0, 0)[0].value)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stdout == "b'v'\n", ended.stderr


@both_ways
def test_memory_that_is_given_is_written_over(codec: ModuleType) -> None:
    values = [b"value", None, b"x" * 300]
    for size in (0, 1, 400, 10_000):
        memory = bytearray(b"old" * size)
        assert codec.encode_values(values, 61, memory) is memory
        assert memory[61:] == codec.encode_values(values)
        memory = bytearray(b"old" * size)
        assert codec.encode_columns(values, values, reserve_bytes=61, memory=memory) is memory
        assert memory[61:] == codec.encode_columns(values, values)


@both_ways
def test_memory_of_any_size(codec: ModuleType) -> None:
    for size in (0, 1, 100_000):
        memory = codec.uncleared(size)
        assert (type(memory), len(memory)) == (bytearray, size)
