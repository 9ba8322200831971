"""How many records a consumer of committed records would get: against counting them one by one."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log import segments, visible
from ottla.log.aborted import AbortedRanges
from ottla.log.segment import Segment
from ottla.log.topic_config import TopicConfig
from ottla.log.visible import VisibleTally, visible_count, visible_end
from ottla.records.batch import BatchHeader
from ottla.records.build import build_from_records
from ottla.records.codec import Record
from tests.log.committed_reader import committed_records
from tests.log.writing import append, append_marker, new_log

T = TypeVar("T")
PRODUCERS = (7, 8)
SMALLEST = TopicConfig(internal_segment_bytes=400)
LONG = 10 * visible.LOOKED_AT_ONCE


class Written:
    """A log, and which offsets hold a record that is to be seen."""

    def __init__(self, config: TopicConfig = SMALLEST) -> None:
        self.log = new_log(config=config)
        self.visible: set[int] = set()
        self._open: dict[int, list[int]] = {}
        self._sequences = dict.fromkeys(PRODUCERS, 0)

    def plain(self, count: int) -> None:
        self.visible |= set(range(self.log.end_offset, self.log.end_offset + count))
        append(self.log, [b"v"] * count)
        self._written()

    def transactional(self, producer_id: int, count: int) -> None:
        first = self.log.end_offset
        self._open.setdefault(producer_id, []).extend(range(first, first + count))
        append(
            self.log,
            [b"v"] * count,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self._sequences[producer_id],
            is_transactional=True,
        )
        self._sequences[producer_id] += count
        self._written()

    def end(self, producer_id: int, is_commit: bool) -> None:
        written = self._open.pop(producer_id, [])
        if is_commit:
            self.visible |= set(written)
        append_marker(self.log, producer_id, is_commit=is_commit)
        self._written()

    def _written(self) -> None:
        self.log.advance_high_watermark(self.log.end_offset)

    def expected(self, start: int, end: int) -> int:
        return len([offset for offset in self.visible if start <= offset < end])


STEPS = st.one_of(
    st.tuples(st.just("plain"), st.integers(1, 5)),
    st.tuples(st.just("transactional"), st.sampled_from(PRODUCERS), st.integers(1, 4)),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
)


@given(st.lists(STEPS, max_size=25), st.data())
def test_between_any_two_offsets(steps: list[tuple], data: st.DataObject) -> None:  # type: ignore[type-arg]
    written = Written()
    for name, *arguments in steps:
        getattr(written, name)(*arguments)
    stable = written.log.last_stable_offset
    start = data.draw(st.integers(0, stable))
    end = data.draw(st.integers(start, stable))
    assert visible_count(written.log, start, end) == written.expected(start, end)


@given(st.lists(STEPS, max_size=25), st.integers(1, 4), st.data())
def test_the_end_of_what_is_visible(steps: list[tuple], window: int, data: st.DataObject) -> None:  # type: ignore[type-arg]
    written = Written()
    for name, *arguments in steps:
        getattr(written, name)(*arguments)
    stable = written.log.last_stable_offset
    end = data.draw(st.integers(0, stable))
    start = data.draw(st.integers(0, end))
    written.log.advance_log_start(start)
    seen = [offset for offset in written.visible if start <= offset < end]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(visible, "FIRST_WINDOW", window)
        assert finished(visible_end(written.log, end)) == (max(seen) + 1 if seen else start)


def test_the_end_is_found_without_looking_at_much(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(config=TopicConfig(internal_segment_bytes=1 << 20))
    for _ in range(2000):
        append(log, [b"v"])
    log.advance_high_watermark(log.end_offset)
    looked = []
    batches = Segment.batches

    def noted(segment: Segment, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        for found in batches(segment, position):
            looked.append(found)
            yield found

    monkeypatch.setattr(Segment, "batches", noted)
    assert finished(visible_end(log, log.end_offset)) == log.end_offset
    assert len(looked) < 100  # it is asked of every parent of a topic in one go


def test_the_end_is_found_in_steps_where_nothing_can_be_seen_for_long() -> None:
    log = new_log(config=TopicConfig(internal_segment_bytes=1 << 20))
    append(log, [b"v"])
    for number in range(LONG):
        append(log, [b"v"], producer_id=1, producer_epoch=0, base_sequence=number, is_transactional=True)
    append_marker(log, 1, is_commit=False)
    log.advance_high_watermark(log.end_offset)
    assert finished(visible_end(log, log.last_stable_offset)) == 1
    assert sum(1 for _ in visible_end(log, log.last_stable_offset)) > LONG // visible.LOOKED_AT_ONCE


@given(st.lists(STEPS, max_size=40), st.integers(0, 2), st.integers(0, 10))
def test_readers_are_told_of_few_aborts_at_once(steps: list[tuple], most: int, start: int) -> None:  # type: ignore[type-arg]
    written = Written(TopicConfig(internal_segment_bytes=2000))
    for name, *arguments in steps:
        getattr(written, name)(*arguments)
    stable = written.log.last_stable_offset
    seen = [offset for offset in sorted(written.visible) if min(start, stable) <= offset < stable]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "MOST_ABORTS", most)
        assert [record.offset for record in committed_records(written.log, min(start, stable))] == seen


def test_very_many_aborts_are_gathered_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "ABORTS_A_STEP", 2)
    written = Written()
    for number in range(20):
        for producer in PRODUCERS:
            written.transactional(producer, 1)
        for producer in PRODUCERS:
            written.end(producer, is_commit=number % 3 == 0)
    log = written.log
    assert len(log.segments) > 3
    for start, end in ((0, log.end_offset), (17, 40), (40, 41)):
        gathered = finished(log.segments.aborted_ranges(start, end))
        known = AbortedRanges(log.aborted_transactions(start, end))
        headers = [header for segment in log.segments for _, header in segment.batches()]
        assert [gathered.find(header) for header in headers] == [known.find(header) for header in headers]
    assert sum(1 for _ in log.segments.aborted_ranges(0, log.end_offset)) >= 12


def finished(steps: Generator[None, None, T]) -> T:
    """What they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


@given(st.lists(st.tuples(STEPS, st.integers(0, 3), st.booleans()), max_size=20), st.integers(1, 4))
def test_kept_up_to_date_while_the_edges_move(steps: list[tuple], marked: int) -> None:  # type: ignore[type-arg]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(visible, "MARKED_BATCHES", marked)
        patch.setattr(visible, "LOOKED_AT_ONCE", 2)
        written = Written()
        tally, start = VisibleTally(written.log), 0
        for (name, *arguments), advance, is_deleted in steps:
            getattr(written, name)(*arguments)
            stable = written.log.last_stable_offset
            start = min(start + advance, stable)
            if is_deleted:
                written.log.advance_log_start(min(start + 1, stable))
            for _ in tally.counting(start, stable):
                pass
            for offset in range(start, stable + 1):
                begin = max(offset, written.log.log_start_offset)
                assert finished(tally.between(offset, stable)) == written.expected(begin, stable)


def test_a_log_is_looked_at_once_for_all_who_are_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(config=TopicConfig(internal_segment_bytes=20_000))
    for _ in range(1000):
        append(log, [b"v"])
    log.advance_high_watermark(log.end_offset)
    looked = 0
    batches = Segment.batches

    def counted(segment: Segment, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        nonlocal looked
        for found in batches(segment, position):
            looked += 1
            yield found

    monkeypatch.setattr(Segment, "batches", counted)
    tally = VisibleTally(log)

    def look() -> int:
        nonlocal looked
        looked = 0
        for _ in tally.counting(0, log.last_stable_offset):
            pass
        for offset in range(0, 1000, 20):
            assert finished(tally.between(offset, log.last_stable_offset)) == log.last_stable_offset - offset
        return looked

    assert look() < 1000 + 50 * 2 * visible.MARKED_BATCHES  # and not for each of 50 all that is behind it
    log.segments.layout_version += 1  # as retention and compaction leave it: what they did not touch is known
    append(log, [b"v"])
    log.advance_high_watermark(log.end_offset)
    assert look() < 100 + 50 * 2 * visible.MARKED_BATCHES


def test_what_compaction_removed_is_not_counted() -> None:
    log = new_log(config=SMALLEST)
    records = [Record(offset, 0, b"k", b"v", ()) for offset in (0, 3, 4, 9)]
    log.append_replicated(memoryview(build_from_records(records, leader_epoch=0)), 0)
    log.advance_high_watermark(log.end_offset)
    assert visible_count(log, 0, 10) == 4
    assert visible_count(log, 1, 9) == 2
    assert visible_count(log, 4, 10) == 2


def test_nothing_is_between_an_offset_and_one_before_it() -> None:
    assert visible_count(new_log(), 5, 3) == 0
