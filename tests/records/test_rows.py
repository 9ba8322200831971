"""Keys and values that are written from where Arrow has them, and records parted by their size."""

from __future__ import annotations

from array import array
from itertools import accumulate
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.codecs import both_ways

KINDS = {"binary": pa.binary(), "string": pa.string(), "large_binary": pa.large_binary()}


def rows_of(codec: ModuleType, column: Any) -> Any:
    validity, offsets, data = column.buffers()
    return codec.Rows(data or b"", offsets, validity, column.offset, len(column), column.type == pa.large_binary())


@both_ways
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_rows_are_what_the_array_holds(codec: ModuleType, kind: str, data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.none() | st.text(max_size=20), min_size=1, max_size=40))
    values = [None if text is None else text.encode() for text in texts]
    start = data.draw(st.integers(0, len(values)))
    rows = rows_of(codec, pa.array(values, pa.binary()).cast(KINDS[kind]).slice(start))
    values = values[start:]
    assert (len(rows), list(rows)) == (len(values), values)
    where = data.draw(st.slices(len(values)))
    part, expected = rows[where], values[where]
    assert list(part) == expected
    assert [part[index] for index in range(-len(part), len(part))] == expected + expected
    again = data.draw(st.slices(len(expected)))
    assert list(part[again]) == expected[again]
    assert codec.encode_values(part) == codec.encode_values(expected)
    assert codec.encode_columns(part, part) == codec.encode_columns(expected, expected)
    assert list(codec.weigh(part, None, None, 3)) == list(codec.weigh(expected, None, None, 3))


@both_ways
def test_a_row_that_is_not_there(codec: ModuleType) -> None:
    rows = rows_of(codec, pa.array([b"a"], pa.binary()))
    for index in (1, -2):
        with pytest.raises(IndexError):
            rows[index]
    with pytest.raises(ValueError, match="2 values, but 1 keys"):
        codec.encode_columns([b"a", b"b"], rows)


@both_ways
def test_buffers_that_do_not_hold_their_rows_are_refused(codec: ModuleType) -> None:
    good = array("i", [0, 1, 2])
    codec.Rows(b"ab", good, b"\x03", 0, 2, False)
    for data, offsets, validity, start, count in (
        (b"ab", good, None, 0, 3),
        (b"ab", good, None, 2, 1),
        (b"ab", good, None, -1, 1),
        (b"ab", good, None, 1, -1),
        (b"ab", good, b"", 0, 2),
        (b"a", good, None, 0, 2),
        (b"ab", array("i", [0, 2, 1]), None, 0, 2),
        (b"ab", array("i", [-1, 1, 2]), None, 0, 2),
        (b"ab", array("i"), None, 0, 0),
    ):
        with pytest.raises(ValueError, match=r"array"):
            codec.Rows(data, offsets, validity, start, count, False)
    with pytest.raises(ValueError, match="array"):
        codec.Rows(b"ab", good, None, 0, 1, True)


@both_ways
def test_weight_is_of_all_that_a_record_has(codec: ModuleType) -> None:
    assert list(codec.weigh([b"abc", None], [b"k", None], [5, 0], 10)) == [19, 29]
    assert list(codec.weigh([], None, None, 10)) == []
    for keys, more in (([b"k"], None), (None, [1])):
        with pytest.raises(ValueError, match="2 values, but 1"):
            codec.weigh([b"a", b"b"], keys, more, 0)


@both_ways
@given(
    sizes=st.lists(st.integers(0, 50), max_size=60),
    step=st.integers(1, 4),
    limit_bytes=st.integers(0, 120),
    as_list=st.booleans(),
)
def test_parts_hold_all_records_and_fit(
    codec: ModuleType, sizes: list[int], step: int, limit_bytes: int, as_list: bool
) -> None:
    chosen = range(0, len(sizes), step)
    parts = codec.cut(array("q", accumulate(sizes)), list(chosen) if as_list else chosen, limit_bytes)
    start = 0
    for number, (end, size_bytes) in enumerate(parts):
        part = [sizes[index] for index in chosen[start:end]]
        assert part
        assert sum(part) == size_bytes
        assert size_bytes <= limit_bytes or len(part) == 1
        if number + 1 < len(parts):  # and the next one did not fit any more
            assert size_bytes + sizes[chosen[end]] > limit_bytes
        start = end
    assert start == len(chosen)


@both_ways
def test_records_that_are_not_there_have_no_parts(codec: ModuleType) -> None:
    for indexes in (range(3), [-1], [0, 2]):
        with pytest.raises(IndexError):
            codec.cut(array("q", [1, 2]), indexes, 10)


@both_ways
def test_only_bytes_and_none_are_plain(codec: ModuleType) -> None:
    assert codec.holds_bytes([b"", None])
    for other in ("text", bytearray(b"x"), 1):
        assert not codec.holds_bytes([b"", other])
