"""A follower's log: batches as the leader gave them, several at once, cut, with gaps, or not fit to be taken."""

from typing import Any

import pytest

from ottla.log.errors import CorruptLog, UnexpectedOffset
from ottla.records.build import build_batch, build_from_records
from ottla.records.codec import Record, stamp_batches
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
