"""What compaction leaves of a batch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import check_batch
from ottla.records.build import build_batch, build_from_tuples
from ottla.records.compression import NAMES
from ottla.records.read import read_records
from ottla.records.retain import empty_batch, retain_batch
from tests.records.strategies import DRAFTS, Draft

KEPT_FIELDS = (
    "base_offset", "leader_epoch", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence",
)  # fmt: skip


@pytest.mark.parametrize("codec", range(5), ids=NAMES)
@settings(max_examples=40)
@given(
    data=st.data(),
    drafts=DRAFTS.filter(bool),
    horizon_ms=st.none() | st.integers(0, 1 << 41),
    append_time=st.none() | st.integers(0, 1 << 41),
)
def test_kept_records_are_unchanged(
    codec: int, data: st.DataObject, drafts: list[Draft], horizon_ms: int | None, append_time: int | None
) -> None:
    batch = build_from_tuples(
        drafts,
        codec=codec,
        base_offset=1000,
        leader_epoch=4,
        producer_id=7,
        producer_epoch=2,
        base_sequence=9,
        is_transactional=True,
        log_append_time=append_time,
    )
    keep = data.draw(st.lists(st.booleans(), min_size=len(drafts), max_size=len(drafts)).filter(any))
    expected = [record for record, is_kept in zip(read_records(batch), keep, strict=True) if is_kept]
    retained = retain_batch(batch, keep, delete_horizon_ms=horizon_ms)
    before, after = check_batch(batch), check_batch(retained)
    assert read_records(retained) == expected
    assert [getattr(after, field) for field in KEPT_FIELDS] == [getattr(before, field) for field in KEPT_FIELDS]
    assert after.count == len(expected)
    assert after.max_timestamp == max(record.timestamp for record in expected)
    assert after.delete_horizon_ms == horizon_ms
    assert after.attributes & ~0x40 == before.attributes


def test_a_horizon_stays_when_more_records_go() -> None:
    batch = build_batch([b"a", None, b"c"], keys=[b"1", b"2", b"3"], timestamp=0, timestamps=[10, 30, 20])
    first = retain_batch(batch, [True, True, True], delete_horizon_ms=5000)
    second = retain_batch(first, [True, False, True])
    header = check_batch(second)
    assert header.delete_horizon_ms == 5000
    assert header.max_timestamp == 20
    assert [(record.offset, record.timestamp) for record in read_records(second)] == [(0, 10), (2, 20)]


@pytest.mark.parametrize("make", [empty_batch, lambda batch: retain_batch(batch, [False, False])])
def test_an_empty_batch_keeps_its_place(make: object) -> None:
    batch = build_batch(
        [b"a", b"b"],
        timestamp=0,
        timestamps=[10, 30],
        codec=1,
        base_offset=50,
        producer_id=7,
        producer_epoch=2,
        base_sequence=9,
    )
    assert callable(make)
    empty = make(batch)
    before, after = check_batch(batch), check_batch(empty)
    assert len(empty) == 61
    assert [getattr(after, field) for field in KEPT_FIELDS] == [getattr(before, field) for field in KEPT_FIELDS]
    assert (after.count, after.codec, after.max_timestamp) == (0, 0, 30)
    assert read_records(empty) == []
