"""Bytes that a stranger sends: compiled and plain codec do the same with them, and nothing worse than refuse."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import CorruptBatch
from tests.records.codecs import COMPILED, PLAIN, needs_compiled
from tests.records.strategies import DRAFTS, INT64, Draft


def columns_of(codec: ModuleType, *arguments: Any) -> object:
    columns = codec.Columns(True)
    columns.append_batch(*arguments)
    made = columns.finish()
    parts = [made.offsets, made.timestamps, *made.keys[:3], *made.values[:3], made.headers.offsets]
    parts += [*made.headers.names[:3], *made.headers.values[:3]]
    return made.rows, [None if part is None else bytes(part) for part in parts]


def outcome(call: Callable[[], Any]) -> object:
    try:
        return call()
    except CorruptBatch as error:
        return type(error), str(error)


def outcomes(codec: ModuleType, area: bytes, count: int, base: int, new_base: int) -> list[object]:
    def records() -> object:
        return [repr(record) for record in codec.decode_records(area, count, base, base)]

    return [
        outcome(records),
        outcome(lambda: tuple(codec.scan_records(area, count))),
        outcome(lambda: codec.decode_keys(area, count)),
        outcome(lambda: codec.retain_records(area, count, b"\1" * max(count, 0), base, new_base)),
        outcome(lambda: columns_of(codec, area, count, base, base)),
    ]


def check_same(area: bytes, count: int, base: int, new_base: int) -> None:
    assert COMPILED is not None
    expected = outcomes(PLAIN, area, count, base, new_base)
    assert outcomes(COMPILED, area, count, base, new_base) == expected
    # One reader's refusal is every reader's refusal.
    assert len({isinstance(each, tuple) and each[0] is CorruptBatch for each in expected}) == 1


@needs_compiled
@settings(max_examples=300)
@given(data=st.data(), drafts=DRAFTS.filter(bool), base=INT64, new_base=INT64)
def test_mutated_areas(data: st.DataObject, drafts: list[Draft], base: int, new_base: int) -> None:
    area = PLAIN.encode_records([tuple(draft) for draft in drafts], 0)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(area) - 1))
        area[position] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 0x7E, 0x7F, 0x80, 0xFE, 0xFF]))
    area = area[: data.draw(st.integers(len(area) - 2, len(area)))]
    check_same(bytes(area), len(drafts), base, new_base)


@needs_compiled
@given(
    area=st.binary(max_size=60) | st.lists(st.sampled_from(b"\0\1\2\3\4\x0c\x0e\x7e\x80\xff")).map(bytes),
    count=st.integers(-1, 4),
    base=INT64,
)
def test_random_areas(area: bytes, count: int, base: int) -> None:
    check_same(area, count, base, 0)
