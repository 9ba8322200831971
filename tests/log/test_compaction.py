"""Compaction: what is kept, what goes, and when."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.compaction import ENTRY_BYTES, MOST_TOGETHER, Compaction, cleanable
from ottla.log.errors import CorruptLog
from ottla.log.files import DiskFiles
from ottla.log.log import Log
from ottla.log.recovery import open_log
from ottla.log.replay import rebuild_producers
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header, whole_batches
from ottla.records.build import ControlMarker, build_batch, build_marker
from ottla.records.codec import Record
from ottla.records.read import read_records
from ottla.testing.files import SimulatedFiles
from ottla.testing.slices import run_here

DAY_MS = 86_400_000
COMPACTED = TopicConfig(cleanup_policy=("compact",), internal_segment_bytes=1 << 20)
Pair = tuple[bytes | None, bytes | None]


def make_log(files: DiskFiles | SimulatedFiles, folder: str, config: TopicConfig = COMPACTED) -> Log:
    return open_log(files, folder, config, now_ms=0)


@pytest.fixture
def log() -> Log:
    return make_log(SimulatedFiles(), "/data/t-0")


def put(log: Log, *pairs: Pair, timestamp: int = 1000, codec: int = 0, **producer: int | bool) -> int:
    """Append one batch of keys and values; its base offset."""
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    batch = build_batch(values, keys=keys, timestamp=timestamp, codec=codec, **producer)  # type: ignore[arg-type]
    return log.append(batch, read_header(batch), 0, timestamp).base_offset


def mark(log: Log, producer_id: int, *, commit: bool, timestamp: int = 1000) -> int:
    batch = build_marker(ControlMarker(commit, 0), producer_id=producer_id, producer_epoch=0, timestamp=timestamp)
    return log.append(batch, read_header(batch), 0, timestamp).base_offset


def seal(log: Log, now_ms: int = 1000) -> None:
    """Make all that was appended ready for compaction."""
    log.roll(now_ms)
    log.advance_high_watermark(log.end_offset)
    log.flush(now_ms)


def compact(log: Log, first_dirty_offset: int = 0, now_ms: int = 2000, slice_bytes: int = 1 << 20) -> int:
    work = cleanable(log, first_dirty_offset, now_ms)
    compaction = Compaction(log, work, now_ms)
    run_here(compaction.run(slice_bytes))
    return compaction.cleaned_up_to


def contents(log: Log, *, with_control: bool = False) -> list[Record]:
    found: list[Record] = []
    for segment in log.segments:
        found += read_records(segment.file.read(0, segment.size_bytes), with_control=with_control)
    return found


def pairs(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in contents(log)]


def test_the_last_value_of_each_key_is_kept_with_its_offset(log: Log) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(log, (b"c", b"1"), (b"b", b"2"))
    seal(log)
    assert compact(log) == 5
    assert pairs(log) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert log.end_offset == 5


def test_the_active_segment_is_left_alone(log: Log) -> None:
    put(log, (b"a", b"1"))
    seal(log)
    put(log, (b"a", b"2"))
    put(log, (b"a", b"3"))
    compact(log)
    assert [offset for offset, _, _ in pairs(log)] == [0, 1, 2]


def test_what_is_not_replicated_or_not_on_disk_is_left_alone(log: Log) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll(0)
    assert cleanable(log, 0, 0).dirty_bytes == 0
    log.advance_high_watermark(2)
    assert cleanable(log, 0, 0).dirty_bytes == 0
    log.flush(0)
    assert cleanable(log, 0, 0).end_offset == 2


def test_records_without_a_key_go(log: Log) -> None:
    put(log, (None, b"1"), (b"a", b"1"))
    seal(log)
    compact(log)
    assert pairs(log) == [(1, b"a", b"1")]


def test_a_second_round_starts_where_the_first_ended_and_still_removes_older_values(log: Log) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"))
    seal(log)
    first = compact(log)
    put(log, (b"a", b"2"))
    seal(log)
    work = cleanable(log, first, 2000)
    assert work.first_dirty_offset == first
    assert work.clean_bytes > 0
    compact(log, first)
    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_a_tombstone_lives_for_delete_retention_after_the_first_round_that_saw_it(log: Log) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"1"))
    seal(log)
    compact(log, now_ms=10_000)
    assert pairs(log) == [(1, b"a", None), (2, b"b", b"1")]
    (header,) = [header for _, header in log.segments[0].batches()]
    assert header.delete_horizon_ms == 10_000 + DAY_MS
    assert [record.timestamp for record in contents(log)] == [1000, 1000]
    compact(log, now_ms=9_999 + DAY_MS)
    assert pairs(log) == [(1, b"a", None), (2, b"b", b"1")]
    compact(log, now_ms=10_000 + DAY_MS)
    assert pairs(log) == [(2, b"b", b"1")]


def test_small_segments_are_written_into_one(log: Log) -> None:
    for number in range(5):
        put(log, (b"k%d" % number, b"v"))
        seal(log)
    assert len(log.segments) == 6
    compact(log)
    assert [segment.base_offset for segment in log.segments] == [0, 5]
    assert len(pairs(log)) == 5


def test_segments_are_not_joined_beyond_the_segment_size() -> None:
    config = TopicConfig(cleanup_policy=("compact",), internal_segment_bytes=250)
    log = make_log(SimulatedFiles(), "/data/t-0", config)
    for number in range(6):
        put(log, (b"k%d" % number, b"v" * 40))
        seal(log)
    compact(log)
    assert all(segment.size_bytes <= 250 for segment in log.segments)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6]


@pytest.mark.parametrize("codec", range(5))
def test_compressed_batches_keep_their_codec(log: Log, codec: int) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=codec)
    seal(log)
    compact(log)
    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert [header.codec for _, header in log.segments[0].batches()] == [codec]


def test_aborted_records_go_and_do_not_hide_earlier_values(log: Log) -> None:
    put(log, (b"a", b"kept"))
    put(log, (b"a", b"aborted"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    mark(log, 7, commit=False)
    put(log, (b"b", b"1"))
    seal(log)
    compact(log)
    assert pairs(log) == [(0, b"a", b"kept"), (3, b"b", b"1")]


def test_committed_records_count_like_any_other(log: Log) -> None:
    put(log, (b"a", b"old"))
    put(log, (b"a", b"new"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    mark(log, 7, commit=True)
    seal(log)
    compact(log)
    assert pairs(log) == [(1, b"a", b"new")]


def test_an_open_transaction_stops_compaction_before_it(log: Log) -> None:
    put(log, (b"a", b"1"))
    log.roll(0)
    put(log, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    put(log, (b"a", b"3"))
    seal(log)
    assert cleanable(log, 0, 2000).end_offset == 1
    compact(log)
    assert [offset for offset, _, _ in pairs(log)] == [0, 1, 2]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_goes_a_day_after_the_last_batch_of_its_transaction(log: Log, commit: bool) -> None:
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = mark(log, 7, commit=commit)
    put(log, (b"a", b"2"))
    log.producers.by_id.clear()  # the producer has long been forgotten
    seal(log)
    compact(log, now_ms=10_000)  # removes the data
    assert [record.offset for record in contents(log, with_control=True)] == [marker, 2]
    compact(log, now_ms=20_000)  # finds no data, sets the horizon
    assert [record.offset for record in contents(log, with_control=True)] == [marker, 2]
    compact(log, now_ms=20_000 + DAY_MS)
    assert [record.offset for record in contents(log, with_control=True)] == [2]


def test_the_aborted_index_follows_the_markers(log: Log) -> None:
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    mark(log, 7, commit=False)
    put(log, (b"a", b"2"))
    log.producers.by_id.clear()
    seal(log)
    compact(log)
    assert [entry.producer_id for entry in log.aborted_transactions(0, 3)] == [7]
    compact(log)
    assert log.aborted_transactions(0, 3) == []


def test_the_last_batch_of_a_producer_keeps_its_header_so_that_duplicates_are_known() -> None:
    files = SimulatedFiles()
    log = make_log(files, "/data/t-0")
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, (b"a", b"2"))
    seal(log)
    compact(log)
    headers = [header for _, header in log.segments[0].batches()]
    assert [(header.base_offset, header.count) for header in headers] == [(0, 0), (1, 1)]
    log.snapshots.remove(lambda _: True)
    rebuild_producers(log)
    assert log.producers.by_id[7].last_sequence == 0


def test_the_end_of_a_rewritten_segment_keeps_its_header_so_that_offsets_have_no_hole(log: Log) -> None:
    put(log, (b"a", b"1"))
    seal(log)
    put(log, (b"a", b"2"))
    seal(log)
    compact(log)
    put(log, (b"a", b"3"))
    seal(log)
    compact(log, 2)
    assert pairs(log) == [(2, b"a", b"3")]
    put(log, (None, b"no key"))
    seal(log)
    compact(log, 3)
    last = [header for _, header in log.segments[0].batches()][-1]
    assert (last.base_offset, last.count) == (3, 0)
    assert log.segments[0].next_offset() == log.segments[1].base_offset


def test_a_crash_before_a_gap_brings_no_segment_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the end of a segment has rotted: what is there last ends before the next one begins."""
    files = SimulatedFiles()
    config = dataclasses.replace(COMPACTED, internal_segment_bytes=150)  # two of them are written into one
    log = make_log(files, "/data/t-0", config)
    for base_offset, key in ((0, b"a"), (1, b"b"), (50, b"b"), (51, b"c")):
        log.roll(1000, base_offset)
        log.end_offset = base_offset
        put(log, (key, b"%d" % base_offset))
    seal(log)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 50, 51, 52]

    def crash(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log, "replace_segments", crash)
    with pytest.raises(KeyboardInterrupt):
        compact(log)
    opened = open_log(files, "/data/t-0", config, now_ms=0, recovery_point=log.recovery_point)
    assert pairs(opened) == [(0, b"a", b"0"), (50, b"b", b"50"), (51, b"c", b"51")]


def test_a_map_that_is_full_leaves_the_rest_for_the_next_round(log: Log) -> None:
    for number in range(10):
        put(log, (b"k%d" % (number % 5), b"%d" % number))
    seal(log)
    work = cleanable(log, 0, 2000)
    compaction = Compaction(log, work, 2000, map_bytes=2 * ENTRY_BYTES)
    run_here(compaction.run())
    assert 0 < compaction.cleaned_up_to < 10
    first = compaction.cleaned_up_to
    while first < 10:
        step = Compaction(log, cleanable(log, first, 2000), 2000, map_bytes=2 * ENTRY_BYTES)
        run_here(step.run())
        assert step.cleaned_up_to > first
        first = step.cleaned_up_to
    assert pairs(log) == [(5 + number, b"k%d" % number, b"%d" % (5 + number)) for number in range(5)]


def test_long_keys_fill_the_map_sooner(log: Log) -> None:
    for number in range(10):
        put(log, (b"%d" % number + b"." * 10_000, b"value"))
    seal(log)
    compaction = Compaction(log, cleanable(log, 0, 2000), 2000, map_bytes=30_000)
    run_here(compaction.run())
    assert compaction.cleaned_up_to == 3


def test_appends_and_rolls_go_on_between_slices(log: Log) -> None:
    for number in range(50):
        put(log, (b"a", b"%d" % number))
    seal(log)
    compaction = Compaction(log, cleanable(log, 0, 2000), 2000)
    for steps, job in enumerate(compaction.run(slice_bytes=200)):
        if job is not None:
            job()
        put(log, (b"new", b"%d" % steps))
        if steps % 7 == 0:
            log.roll(2000)
    assert steps > 20
    kept = pairs(log)
    assert (49, b"a", b"49") in kept
    assert len([key for _, key, _ in kept if key == b"new"]) == steps + 1
    assert log.end_offset == 50 + steps + 1


def test_a_truncation_in_between_ends_the_round_and_loses_nothing(log: Log) -> None:
    for number in range(20):
        put(log, (b"k%d" % number, b"v"))
    seal(log)
    compaction = Compaction(log, cleanable(log, 0, 2000), 2000)
    slices = compaction.run(slice_bytes=200)
    for _ in range(12):
        next(slices)
    log.truncate_to(15, 2000)
    run_here(slices)
    assert compaction.cleaned_up_to == 0
    assert [offset for offset, _, _ in pairs(log)] == list(range(15))
    assert not [name for name in log.files.sizes(log.folder) if name.endswith((".cleaned", ".swap"))]


def test_a_rotten_batch_is_not_written_out_as_good(tmp_path: Path) -> None:
    log = make_log(DiskFiles(), str(tmp_path / "t-0"))
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"))
    seal(log)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="checksum"):
        compact(log)
    assert path.read_bytes() == data


def test_a_compacted_log_opens_as_it_was(tmp_path: Path) -> None:
    log = make_log(DiskFiles(), str(tmp_path / "t-0"))
    for number in range(100):
        put(log, (b"k%d" % (number % 10), b"%d" % number), timestamp=1000 + number)
        if number % 20 == 19:
            seal(log)
    compact(log)
    before = pairs(log)
    log.close(5000)
    for clean in (True, False):
        again = open_log(DiskFiles(), str(tmp_path / "t-0"), COMPACTED, now_ms=0, clean=clean)
        assert pairs(again) == before
        assert again.end_offset == 100


def test_min_compaction_lag_keeps_young_segments_out() -> None:
    config = TopicConfig(cleanup_policy=("compact",), internal_segment_bytes=1 << 20, min_compaction_lag_ms=5000)
    log = make_log(SimulatedFiles(), "/data/t-0", config)
    put(log, (b"a", b"1"), timestamp=1000)
    seal(log)
    put(log, (b"a", b"2"), timestamp=4000)
    seal(log)
    assert cleanable(log, 0, 7000).end_offset == 1
    assert cleanable(log, 0, 9001).end_offset == 2


def test_max_compaction_lag_makes_a_round_due() -> None:
    config = TopicConfig(cleanup_policy=("compact",), internal_segment_bytes=1 << 20, max_compaction_lag_ms=5000)
    log = make_log(SimulatedFiles(), "/data/t-0", config)
    put(log, (b"a", b"1"), timestamp=1000)
    seal(log)
    assert not cleanable(log, 0, 6000).is_overdue
    assert cleanable(log, 0, 6001).is_overdue


def test_the_dirty_ratio_is_of_bytes(log: Log) -> None:
    put(log, (b"a", b"1"))
    seal(log)
    put(log, (b"b", b"1"))
    put(log, (b"c", b"1"))
    put(log, (b"d", b"1"))
    seal(log)
    work = cleanable(log, 1, 2000)
    assert work.dirty_ratio == pytest.approx(0.75)


operations = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d", None]), st.sampled_from([b"1", b"22", None])),
    min_size=1,
    max_size=40,
)


def latest(records: Iterable[Pair]) -> dict[bytes, bytes | None]:
    return {key: value for key, value in records if key is not None}


@given(operations, st.lists(st.integers(0, 40), max_size=4), st.integers(1, 300))
def test_a_reader_from_the_start_ends_with_the_same_table(
    written: list[Pair], seals: list[int], slice_bytes: int
) -> None:
    log = make_log(SimulatedFiles(), "/data/t-0")
    first_dirty_offset = 0
    for number, pair in enumerate(written):
        put(log, pair)
        if number in seals:
            seal(log)
            first_dirty_offset = compact(log, first_dirty_offset, slice_bytes=slice_bytes)
    seal(log)
    compact(log, first_dirty_offset, slice_bytes=slice_bytes)
    kept = pairs(log)
    assert latest((key, value) for _, key, value in kept) == latest(written)
    assert all(written[offset] == (key, value) for offset, key, value in kept)
    assert [offset for offset, _, _ in kept] == sorted({offset for offset, _, _ in kept})
    assert len(kept) == len(latest(written))
    for segment in log.segments:
        data = segment.file.read(0, segment.size_bytes)
        assert sum(header.size for _, header in whole_batches(data)) == segment.size_bytes


@pytest.mark.parametrize("segments", [1, 100])
def test_small_batches_and_small_segments_make_small_slices(segments: int) -> None:
    log = make_log(SimulatedFiles(), "data/table-0")
    for number in range(4000):
        put(log, (b"%d" % (number % 10), b"v"))
        if number % (4000 // segments) == 4000 // segments - 1:
            log.roll(0)
    seal(log)
    compaction = Compaction(log, cleanable(log, 0, 2000), 2000)
    progress = [(0, len(log.segments))]
    for job in compaction.run():
        if job is not None:
            job()
        progress.append((compaction.read_bytes, len(log.segments)))
    steps = [(after[0] - before[0], before[1] - after[1]) for before, after in pairwise(progress)]
    assert max(read_bytes for read_bytes, _ in steps) < 100_000
    assert max(removed for _, removed in steps) < MOST_TOGETHER
    assert len(contents(log)) == 10
