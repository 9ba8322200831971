"""Retention: by time, by size, and below the log's start."""

from __future__ import annotations

import pytest

from ottla.log.log import Log
from ottla.log.recovery import open_log
from ottla.log.retention import apply_retention, expired_segments
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.testing.files import SimulatedFiles

UNLIMITED = -1


def log_with(segments: int, *, timestamps: list[int] | None = None, **settings: object) -> Log:
    """A log of so many sealed segments of one record each, all replicated, and an empty active one."""
    config = TopicConfig(**{"retention_ms": UNLIMITED, "file_delete_delay_ms": 100, **settings})  # type: ignore[arg-type]
    log = open_log(SimulatedFiles(), "/data/t-0", config, now_ms=0)
    for number in range(segments):
        batch = build_batch([b"v" * 100], timestamp=timestamps[number] if timestamps else 1000 * number)
        log.append(batch, read_header(batch), 0, 0)
        log.roll(0)
    log.advance_high_watermark(log.end_offset)
    return log


def test_segments_older_than_retention_ms_go_oldest_first() -> None:
    log = log_with(4, timestamps=[1000, 2000, 3000, 4000], retention_ms=1000)
    assert expired_segments(log, 3000) == 1  # 2000 is exactly as old as allowed
    assert apply_retention(log, 3001) == 2
    assert log.log_start_offset == 2
    assert [segment.base_offset for segment in log.segments] == [2, 3, 4]


def test_a_young_segment_shields_older_ones_behind_it() -> None:
    log = log_with(3, timestamps=[1000, 9000, 1000], retention_ms=1000)
    assert expired_segments(log, 5000) == 1


def test_all_segments_may_go_and_the_log_goes_on_at_its_end() -> None:
    log = log_with(2, retention_ms=10)
    batch = build_batch([b"active"], timestamp=5000)
    log.append(batch, read_header(batch), 0, 5000)
    log.advance_high_watermark(3)
    assert apply_retention(log, 1_000_000) == 3
    assert (log.log_start_offset, log.end_offset) == (3, 3)
    batch = build_batch([b"next"], timestamp=5000)
    assert log.append(batch, read_header(batch), 0, 5000).base_offset == 3


def test_an_empty_active_segment_stays() -> None:
    log = log_with(0, retention_ms=10)
    assert expired_segments(log, 1_000_000) == 0


def test_what_is_not_replicated_stays() -> None:
    log = log_with(3, retention_ms=10)
    log.high_watermark = 1
    assert expired_segments(log, 1_000_000) == 1


def test_the_oldest_segments_go_while_the_rest_is_as_large_as_retention_bytes() -> None:
    size = log_with(1).segments[0].size_bytes
    log = log_with(5, retention_bytes=2 * size + 1)
    assert expired_segments(log, 0) == 2
    log = log_with(5, retention_bytes=2 * size)
    assert expired_segments(log, 0) == 3


@pytest.mark.parametrize(("policy", "expected"), [(("delete",), 3), (("compact",), 0), (("compact", "delete"), 3)])
def test_time_and_size_count_only_where_the_policy_says_delete(policy: tuple[str, ...], expected: int) -> None:
    log = log_with(3, retention_ms=10, cleanup_policy=policy)
    assert expired_segments(log, 1_000_000) == expected


@pytest.mark.parametrize("policy", [("delete",), ("compact",)])
def test_segments_before_the_log_start_go_under_any_policy(policy: tuple[str, ...]) -> None:
    log = log_with(4, cleanup_policy=policy)
    log.advance_log_start(2)
    assert apply_retention(log, 0) == 2
    assert log.log_start_offset == 2


def test_the_last_segment_with_the_log_start_in_it_stays() -> None:
    log = log_with(3)
    log.advance_log_start(3)
    assert expired_segments(log, 0) == 3
    log.remove_first(3, 0)
    assert [segment.base_offset for segment in log.segments] == [3]


def test_files_are_renamed_at_once_and_handed_out_for_removal_after_the_delay() -> None:
    log = log_with(2, retention_ms=10)
    apply_retention(log, 1_000_000)
    assert f"{0:020d}.log.deleted" in log.files.sizes(log.folder)
    assert log.segments.due_removals(1_000_099) == []
    due = log.segments.due_removals(1_000_100)
    assert f"{log.folder}/{0:020d}.log.deleted" in due
    assert log.segments.due_removals(1_000_100) == []


def test_a_reader_keeps_what_it_was_given() -> None:
    log = log_with(2, retention_ms=10)
    given = log.read(0, 1000, 1)
    assert given is not None
    before = given.read()
    apply_retention(log, 1_000_000)
    assert given.read() == before


def test_leader_epochs_and_snapshots_before_the_start_are_forgotten() -> None:
    log = log_with(0, retention_ms=10)
    for epoch in range(3):
        batch = build_batch([b"v"], timestamp=0)
        log.append(batch, read_header(batch), epoch, 0)
        log.roll(0)
    log.advance_high_watermark(3)
    log.remove_first(2, 0)
    assert log.epochs.entries == [(2, 2)]
    assert log.snapshots.offsets == [2, 3]


@pytest.mark.parametrize("no_limit", [-1, -2, -(1 << 63)])
def test_any_number_below_zero_is_no_limit(no_limit: int) -> None:
    log = log_with(4, retention_bytes=no_limit, retention_ms=max(no_limit, -1))
    assert expired_segments(log, 1 << 62) == 0
