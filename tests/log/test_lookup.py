"""Finding records by time, in steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.log import Log
from ottla.log.lookup import STEP_BATCHES, FoundOffset, Search, offset_for_timestamp, offset_of_max_timestamp
from ottla.log.topic_config import TopicConfig
from ottla.records.build import build_batch
from ottla.records.portions import MOST_RECORDS
from ottla.testing.files import SimulatedFiles
from tests.log.writing import append, append_batch, new_log, served_batches

MANY = TopicConfig(internal_segment_bytes=1 << 20, index_interval_bytes=1 << 20)
FEW = TopicConfig(internal_segment_bytes=600, index_interval_bytes=100)


def finished(search: Search) -> tuple[FoundOffset | None, int]:
    """What was found, and after how many steps."""
    steps = 0
    while True:
        try:
            next(search)
        except StopIteration as end:
            return end.value, steps
        steps += 1


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=5), min_size=1, max_size=20),
    st.integers(0, 4),
    st.integers(0, 31),
    st.integers(0, 10),
)
def test_it_is_the_first_record_that_is_late_enough(
    batches: list[list[int]], codec: int, timestamp: int, start: int
) -> None:
    log = new_log(config=FEW)
    for timestamps in batches:
        append_batch(log, build_batch([b"v"] * len(timestamps), timestamp=0, timestamps=timestamps, codec=codec))
    log.advance_high_watermark(log.end_offset)
    log.advance_log_start(min(start, log.end_offset))
    records = [record for batch in served_batches(log) for record in batch.records()]
    kept = [(record.offset, record.timestamp) for record in records if record.offset >= log.log_start_offset]
    expected = next((found for found in kept if found[1] >= timestamp), None)
    found, _ = finished(offset_for_timestamp(log, timestamp))
    assert (None if found is None else (found.offset, found.timestamp)) == expected


def test_others_are_let_in_while_headers_are_looked_at() -> None:
    log = new_log(config=MANY)
    for _ in range(5 * STEP_BATCHES):
        append(log, timestamp=1000)
    append(log, timestamp=2000)
    assert finished(offset_for_timestamp(log, 2000)) == (FoundOffset(5 * STEP_BATCHES, 2000, 0), 5)


def test_others_are_let_in_while_a_batch_is_looked_at() -> None:
    log = new_log(config=MANY)
    timestamps = list(range(5 * MOST_RECORDS))
    append_batch(log, build_batch([b""] * len(timestamps), timestamp=0, timestamps=timestamps))
    assert finished(offset_for_timestamp(log, timestamps[-1])) == (FoundOffset(timestamps[-1], timestamps[-1], 0), 4)
    assert finished(offset_of_max_timestamp(log)) == (FoundOffset(timestamps[-1], timestamps[-1], 0), 4)


def remove_first(log: Log) -> None:
    log.remove_first(1, 0)


def truncate(log: Log) -> None:
    log.truncate_to(STEP_BATCHES + 10, 0)
    append(log, timestamp=3000)


@pytest.mark.parametrize(
    ("change", "expected"),
    [(remove_first, (3 * STEP_BATCHES, 2000)), (truncate, (STEP_BATCHES + 10, 3000))],
)
def test_a_log_that_changes_in_between_is_searched_anew(
    change: Callable[[Log], None], expected: tuple[int, int]
) -> None:
    log = new_log(SimulatedFiles(), MANY)
    for number in range(3 * STEP_BATCHES):
        append(log, timestamp=1000 + (number == 2 * STEP_BATCHES))
        if number == STEP_BATCHES:
            log.roll(0)
    append(log, timestamp=2000)
    log.advance_high_watermark(log.end_offset)
    search = offset_for_timestamp(log, 1500)
    next(search)
    change(log)
    found, _ = finished(search)
    assert found is not None
    assert (found.offset, found.timestamp) == expected
