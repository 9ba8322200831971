"""A follower's log: batches as the leader gave them, several at once, cut, with gaps, or not fit to be taken."""

import errno
from contextlib import suppress
from typing import Any

import pytest

from ottla.log.errors import CorruptLog, StorageFailed, UnexpectedOffset
from ottla.log.replicated import CHECKED_AT_ONCE, ROLLED_AT_ONCE, has_batch
from ottla.log.retention import apply_retention
from ottla.log.topic_config import TopicConfig
from ottla.records.build import build_batch, build_from_records
from ottla.records.codec import Record, stamp_batches
from ottla.testing.files import Effect, SimulatedFiles
from tests.log.expected import check_segments
from tests.log.writing import EVERYTHING, append, append_marker, new_log, served_offsets, served_values


def copies(*offsets: int, epoch: int = 0, **options: Any) -> bytearray:
    """A row of batches of one record each."""
    records = bytearray()
    for offset in offsets:
        records += build_batch([b"%d" % offset], timestamp=1, base_offset=offset, leader_epoch=epoch, **options)
    return records


def test_batches_are_taken_as_they_are() -> None:
    log = new_log()
    records = copies(0, 1, epoch=2) + copies(2, epoch=4)
    assert log.append_replicated(memoryview(records), 0) == len(records)
    assert log.epochs.entries == [(2, 0), (4, 2)]
    assert served_values(log) == [b"0", b"1", b"2"]


def test_a_cut_tail_is_left_out() -> None:
    whole = len(copies(0))
    records = copies(0, 1)
    for left in range(whole, len(records)):
        log = new_log()
        assert log.append_replicated(memoryview(records)[:left], 0) == whole
        assert log.end_offset == 1


def test_gaps_that_compaction_left_are_taken() -> None:
    log = new_log()
    log.append_replicated(memoryview(copies(0, 5, 90)), 0)
    assert served_offsets(log) == [0, 5, 90]
    assert served_offsets(log, 6) == [90]
    assert log.end_offset == 91


FAR = 3_000_000_000


COMPACTED = TopicConfig(index_interval_bytes=50, cleanup_policy=("compact", "delete"))


@pytest.mark.parametrize("options", [{"clean": True}, {}, {"recovery_point": 1}], ids=["clean", "killed", "later"])
@pytest.mark.parametrize("before", [(), (0,), (0, 1, 2)])
def test_gaps_of_billions_are_taken(before: tuple[int, ...], options: dict[str, Any]) -> None:
    """Offsets in an index are 32 bits from the start of the segment."""
    files, config = SimulatedFiles(), COMPACTED
    log = new_log(files, config)
    offsets = [*before, *range(FAR, FAR + 5), *range(2 * FAR, 2 * FAR + 5)]
    records = copies(*offsets)
    assert log.append_replicated(memoryview(records), 0) == len(records)
    assert served_offsets(log) == offsets
    apply_retention(log, 10**15)  # which asks for the age of the file
    if options.get("clean"):
        log.close(0)
    for each in (log, new_log(files, config, **options)):
        assert served_offsets(each) == offsets
        assert served_offsets(each, FAR + 3) == offsets[-7:]
        assert served_offsets(each, FAR + 7) == offsets[-5:]


@pytest.mark.parametrize("number", range(1, 12))
@pytest.mark.parametrize("before", [(), (0,)])
def test_a_full_disk_at_a_gap_of_billions_is_tried_again(before: tuple[int, ...], number: int) -> None:
    files = SimulatedFiles()
    log = new_log(files, COMPACTED)
    log.append_replicated(memoryview(copies(*before)), 0)
    files.arm(files.operation_count + number, Effect.TEAR, errno.ENOSPC)
    records = memoryview(copies(FAR, FAR + 1))
    with suppress(StorageFailed):
        log.append_replicated(records, 0)
    files.disarm()
    if log.end_offset <= FAR:
        log.append_replicated(records, 0)
    assert served_offsets(log) == [*before, FAR, FAR + 1]
    assert served_offsets(new_log(files, COMPACTED)) == [*before, FAR, FAR + 1]


def test_very_many_batches_and_segments_are_taken_in_steps() -> None:
    """Each call takes some milliseconds, whatever came."""
    log = new_log(config=TopicConfig())
    records = memoryview(copies(*range(3 * CHECKED_AT_ONCE)))
    taken = log.append_replicated(records, 0)
    assert 0 < taken < len(records)
    assert log.end_offset == CHECKED_AT_ONCE
    log = new_log(config=TopicConfig(internal_segment_bytes=200))
    log.append_replicated(memoryview(copies(0)), 0)
    rest = memoryview(copies(*range(1, 100), epoch=1) + copies(*range(100, 200), epoch=2))
    while has_batch(rest):
        before = len(log.segments)
        rest = rest[log.append_replicated(rest, 0) :]
        assert before < len(log.segments) <= before + ROLLED_AT_ONCE + 1
        assert log.epochs.entries[-1][1] < log.end_offset, "an epoch without records"
    assert served_offsets(log) == list(range(200))
    assert log.epochs.entries == [(0, 0), (1, 1), (2, 100)]


def test_what_comes_at_once_fills_segments_of_the_right_size() -> None:
    log = new_log(config=TopicConfig(internal_segment_bytes=200))
    log.append_replicated(memoryview(copies(*range(10))), 0)
    assert max(segment.size_bytes for segment in log.segments) <= 200
    assert served_offsets(log) == list(range(10))


def test_a_leader_may_start_later_than_this_log() -> None:
    log = new_log()
    log.append_replicated(memoryview(copies(7)), 0)
    assert log.log_start_offset == 0
    assert served_offsets(log) == [7]


@pytest.mark.parametrize("offsets", [(0, 1, 1), (0, 1, 0), (3, 2)])
def test_what_does_not_continue_the_log_is_refused_whole(offsets: tuple[int, ...]) -> None:
    log = new_log()
    with pytest.raises(UnexpectedOffset):
        log.append_replicated(memoryview(copies(*offsets)), 0)
    assert log.end_offset == 0


def test_what_this_log_has_already_is_refused() -> None:
    log = new_log()
    log.append_replicated(memoryview(copies(0, 1)), 0)
    with pytest.raises(UnexpectedOffset):
        log.append_replicated(memoryview(copies(1)), 0)


def test_a_damaged_batch_is_refused_with_all_that_came_with_it() -> None:
    records = copies(0, 1, 2)
    size = len(copies(0))
    for position in (size + 20, size + 65, 17):
        damaged = records.copy()
        damaged[position] ^= 1
        log = new_log()
        with pytest.raises(CorruptLog):
            log.append_replicated(memoryview(damaged), 0)
        assert log.end_offset == 0


def test_not_even_one_whole_batch_is_refused() -> None:
    with pytest.raises(CorruptLog):
        new_log().append_replicated(memoryview(copies(0))[:-1], 0)


def test_a_copy_knows_producers_and_transactions_as_the_leader_does() -> None:
    leader, follower = new_log(), new_log()
    append(leader, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(leader, producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    append_marker(leader, 1, is_commit=False)
    reply = leader.read(0, 10_000, EVERYTHING)
    assert reply is not None
    follower.append_replicated(memoryview(bytearray(reply.read())), 0)
    for log in (leader, follower):
        log.advance_high_watermark(3)
        assert log.last_stable_offset == 1
        assert log.aborted_transactions(0, 3) == [(1, 0, 2, 1)]
    assert follower.producers.by_id.keys() == leader.producers.by_id.keys()


def test_offsets_stay_within_32_bits_of_the_base() -> None:
    """A copied log may have gaps as large as compaction left them."""
    log = new_log()
    for offset in (0, 2**31 - 1, 2**31, 2**32):
        batch = build_batch([b"v"], timestamp=1, base_offset=offset, leader_epoch=0)
        log.append_replicated(memoryview(batch), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31, 2**31 + 1]
    assert served_offsets(log) == [0, 2**31 - 1, 2**31, 2**32]
    check_segments(log)


def test_records_far_apart_in_one_batch_are_read_from_any_of_their_offsets() -> None:
    """Compaction leaves such batches; a reader asks for an offset that is not there."""
    log = new_log()
    records = [Record(0, 1, b"k", b"first", ()), Record(8, 1, b"k", b"last", ())]
    batch = build_from_records(records)
    stamp_batches(batch, 0, 0)
    log.append_replicated(memoryview(batch), 0)
    append(log)
    assert served_offsets(log, 4) == [0, 8, 9]
    assert log.end_offset == 10
