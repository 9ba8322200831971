"""The glance at a plain batch says yes only where the close look does, and finds the same."""

from __future__ import annotations

from types import ModuleType
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.records import batch as at
from ottla.records import validate as room
from ottla.records.build import build_batch
from ottla.records.validate import InvalidRecords, ProduceSettings, Validated, plain_batch, validate_produce
from tests.records.codecs import COMPILED, PLAIN, both_ways

NOW_MS = 1_700_000_000_000
FIELDS = {
    at.LENGTH_AT: 4,
    at.MAGIC_AT: 1,
    at.CRC_AT: 4,
    at.ATTRIBUTES_AT: 2,
    at.LAST_OFFSET_DELTA_AT: 4,
    at.BASE_TIMESTAMP_AT: 8,
    at.MAX_TIMESTAMP_AT: 8,
    at.PRODUCER_ID_AT: 8,
    at.BASE_SEQUENCE_AT: 4,
    at.COUNT_AT: 4,
    0: 8,
}

times = st.sampled_from([NOW_MS, NOW_MS - 1, NOW_MS + 1, NOW_MS + 10**7, 0, -1, 2**62, 2**63 - 1, -(2**63)])
settings = st.builds(
    ProduceSettings,
    is_log_append_time=st.booleans(),
    before_max_ms=st.sampled_from([2**63 - 1, 5]),
    is_compacted=st.booleans(),
    max_message_bytes=st.sampled_from([1_048_588, 90]),
    codec=st.sampled_from([None, None, 0]),
)


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    """Batches as producers make them, with a field set to something, the checksum right again or not."""
    values = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=3))
    keys = draw(st.sampled_from([None, [b"k"] * len(values)]))
    batch = build_batch(values, keys=keys, timestamp=0, timestamps=[draw(times) for _ in values])
    for _ in range(draw(st.integers(0, 2))):
        position = draw(st.sampled_from(sorted(FIELDS)))
        size = FIELDS[position]
        number = draw(st.sampled_from([0, 1, 2, 8, 16, 48, 2 ** (8 * size - 1) - 1, 2 ** (8 * size - 1), 2**62]))
        batch[position : position + size] = (number % 2 ** (8 * size)).to_bytes(size, "big")
    if draw(st.booleans()):
        at.stamp_crc(batch, 0, len(batch))
    if draw(st.integers(0, 9)) == 0:
        batch[draw(st.integers(0, len(batch) - 1))] ^= 1 << draw(st.integers(0, 7))
    return batch


def close_look(batch: bytearray, asked: ProduceSettings, has_transactional_id: bool) -> Validated | None:
    with patch.object(room, "plain_batch", return_value=None):
        try:
            return validate_produce(
                batch,
                asked,
                partition="t-0",
                version=12,
                has_transactional_id=has_transactional_id,
                now_ms=NOW_MS,
            )
        except InvalidRecords:
            return None


@given(batches(), settings, st.booleans())
def test_what_looks_plain_is_taken_unchanged(
    batch: bytearray, asked: ProduceSettings, has_transactional_id: bool
) -> None:
    glanced = plain_batch(bytearray(batch), asked, NOW_MS, has_transactional_id=has_transactional_id)
    if glanced is not None:
        looked = close_look(bytearray(batch), asked, has_transactional_id)
        assert looked is not None
        assert (bytes(looked.batch), looked.header, looked.log_append_time) == (bytes(batch), glanced[1], -1)
        assert bytes(glanced[0]) == bytes(batch)


@given(batches(), st.booleans())
@example(bytearray(), False)
@example(bytearray(61), False)
def test_both_codecs_see_the_same(batch: bytearray, has_transactional_id: bool) -> None:
    if COMPILED is not None:
        for needs_keys in (False, True):
            counts = [
                codec.PlainCheck(1_000, 10, 10, needs_keys).count(bytearray(batch), NOW_MS, has_transactional_id)
                for codec in (COMPILED, PLAIN)
            ]
            assert counts[0] == counts[1]


@both_ways
def test_a_plain_batch_is_seen_through(codec: ModuleType) -> None:
    batch = build_batch([b"a", b"b"], keys=[b"k", None], timestamp=0, timestamps=[7, 5])
    assert codec.PlainCheck(1_000, 1, 1, False).count(batch, 6, False) == 2
    for asked in ((1_000, 0, 1, False), (1_000, 1, 0, False), (1_000, 1, 1, True), (70, 1, 1, False)):
        assert codec.PlainCheck(*asked).count(batch, 6, False) == 0  # too old, too new, without a key, too large
    numbered = build_batch([b"a", b"b"], timestamp=6, producer_id=1, producer_epoch=0, base_sequence=0)
    assert codec.PlainCheck(1_000, 1, 1, False).count(numbered, 6, False) == -2


@both_ways
def test_entries_of_indexes_are_found_in_batches(codec: ModuleType) -> None:
    batches = [build_batch([b"a" * 40], timestamp=time) for time in (7, 9, 8, 10)]
    size = len(batches[0])
    together = bytearray().join(batches)
    codec.stamp_batches(together, 50, 3)
    found = codec.index_batches(together, 1_000, 5, size, 6, 49)
    assert found == (size, 10, 53, [(51, 1_000 + size, 9, 51), (53, 1_000 + 3 * size, 10, 53)])


@both_ways
def test_batches_are_stamped_where_they_lie(codec: ModuleType) -> None:
    first, second = build_batch([b"a", b"b"], timestamp=7), build_batch([b"c"], timestamp=5, producer_id=1)
    for producers, batches in ((False, first + first), (True, first + second)):
        assert codec.stamp_batches(batches, 40, 3) == (44 - producers, 7, producers)
        headers = [header for _, header in at.whole_batches(batches)]
        assert [(header.base_offset, header.leader_epoch) for header in headers] == [(40, 3), (42, 3)]
        for position, _ in at.whole_batches(batches):
            at.check_batch(batches, position)


@both_ways
@pytest.mark.parametrize("cut", [1, 80])
def test_what_is_no_whole_batch_is_not_stamped(codec: ModuleType, cut: int) -> None:
    batch = build_batch([b"a" * 100], timestamp=7)
    with pytest.raises(at.CorruptBatch):
        codec.stamp_batches(batch[:-cut], 0, 0)
    with pytest.raises(TypeError):
        codec.stamp_batches(bytes(batch), 0, 0)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_cut_batch_is_not_plain(cut: int) -> None:
    batch = build_batch([b"value"], timestamp=NOW_MS)
    assert plain_batch(batch, ProduceSettings(), NOW_MS) is not None
    assert plain_batch(batch[:-cut], ProduceSettings(), NOW_MS) is None


def test_memory_that_cannot_be_stamped_is_not_plain() -> None:
    assert plain_batch(bytes(build_batch([b"value"], timestamp=NOW_MS)), ProduceSettings(), NOW_MS) is None
