"""A log: appending, rolling, reading within bounds, flushing, truncating, transactions."""

import errno
from random import Random
from typing import Any

import pytest

from ottla.log.errors import (
    InvalidTransactionState,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StaleLeaderEpoch,
    StorageFailed,
)
from ottla.log.flush import run_together
from ottla.log.log import Log
from ottla.log.owner import LogOwner
from ottla.log.producers import KEPT_BATCHES, Origin
from ottla.log.segment import LOG
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.records.read import read_batches
from ottla.testing.files import Effect, SimulatedFiles
from tests.log.expected import check_segments
from tests.log.writing import (
    EVERYTHING,
    SMALL,
    append,
    append_batch,
    append_marker,
    new_log,
    served_offsets,
    served_values,
)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def config(**settings: Any) -> TopicConfig:
    return TopicConfig(**settings)


# Appending


def test_offsets_and_epochs_are_stamped_in_place() -> None:
    log = new_log()
    append(log, [b"a", b"b"], epoch=3)
    batch = build_batch([b"c"], timestamp=5)
    appended = append_batch(log, batch, epoch=4)
    assert appended == (2, 2, 5, False)
    assert (read_header(batch).base_offset, read_header(batch).leader_epoch) == (2, 4)
    assert log.end_offset == 3
    assert log.epochs.entries == [(3, 0), (4, 2)]
    assert served_values(log) == [b"a", b"b", b"c"]


def test_a_repeated_batch_is_told_where_it_went() -> None:
    log = new_log()
    batch = build_batch([b"a", b"b"], timestamp=9, producer_id=1, producer_epoch=0, base_sequence=0)
    append(log)
    first = append_batch(log, batch.copy())
    append(log)
    assert append_batch(log, batch.copy()) == (first.base_offset, first.last_offset, 9, True)
    assert log.end_offset == 4


def test_a_coordinator_may_repeat_a_sequence() -> None:
    log = new_log()
    batch = build_batch([b"offsets"], timestamp=9, producer_id=1, producer_epoch=0, base_sequence=0)
    append_batch(log, batch.copy(), origin=Origin.COORDINATOR)
    assert not append_batch(log, batch.copy(), origin=Origin.COORDINATOR).duplicate
    assert log.end_offset == 2


@pytest.mark.parametrize("is_known", [True, False])
def test_what_was_in_flight_behind_a_batch_without_room_is_refused_like_it(is_known: bool) -> None:
    files = SimulatedFiles()
    log = new_log(files)
    append(log, [b"before"])
    first = 0

    def send(sequence: int, epoch: int = 0) -> int:
        value = b"%d" % sequence
        batch = build_batch([value], timestamp=1, producer_id=1, producer_epoch=epoch, base_sequence=sequence)
        return append_batch(log, batch).base_offset

    if is_known:
        send(0)
        first = 1
    for _ in range(2):
        files.arm(files.operation_count + 1, Effect.TEAR, errno.ENOSPC)
        for sequence in range(first, first + 5):
            with pytest.raises(StorageFailed):  # there is room again for those behind the first
                send(sequence)
    assert [send(sequence) for sequence in range(first, 6)] == list(range(1 + first, 7))

    files.arm(files.operation_count + 1, Effect.TEAR, errno.ENOSPC)
    with pytest.raises(StorageFailed):
        send(6)
    for sequence in range(7, 7 + KEPT_BATCHES):
        with pytest.raises(StorageFailed):
            send(sequence)
    with pytest.raises(OutOfOrderSequence):  # the one before will not come again
        send(7)
    send(0, epoch=1)


def test_a_batch_without_room_that_is_given_up_does_not_hold_up_the_next() -> None:
    files = SimulatedFiles()
    log = new_log(files)
    append(log, [b"before"])
    files.arm(files.operation_count + 1, Effect.TEAR, errno.ENOSPC)
    given_up, following = (
        build_batch([b"x"], timestamp=1, producer_id=1, producer_epoch=0, base_sequence=sequence) for sequence in (0, 1)
    )
    with pytest.raises(StorageFailed):
        append_batch(log, given_up)
    with pytest.raises(StorageFailed):  # it may have been in flight
        append_batch(log, following)
    assert append_batch(log, following).base_offset == 1


def test_a_refused_batch_changes_nothing() -> None:
    log = new_log()
    append(log, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    with pytest.raises(InvalidTransactionState):
        append(log, producer_id=1, producer_epoch=0, base_sequence=1, epoch=5)
    assert log.end_offset == 1
    assert log.epochs.latest == 0
    append(log, producer_id=1, producer_epoch=0, base_sequence=1, is_transactional=True)


# Rolling


def test_a_full_segment_is_followed_by_the_next() -> None:
    size = len(build_batch([b"value"], timestamp=1000))
    log = new_log(config=config(internal_segment_bytes=3 * size))
    for _ in range(7):
        append(log)
    assert bases(log) == [0, 3, 6]
    assert log.snapshots.offsets == [3, 6]
    check_segments(log)


def test_a_batch_larger_than_a_segment_has_one_for_itself() -> None:
    log = new_log(config=config(internal_segment_bytes=100))
    for size in (1, 500, 1):
        append(log, [b"." * size])
    assert bases(log) == [0, 1, 2]
    assert len(served_values(log)) == 3


@pytest.mark.parametrize(("later_ms", "expected"), [(50, [0]), (51, [0, 1])])
def test_a_segment_ages_by_the_time_of_its_records(later_ms: int, expected: list[int]) -> None:
    for is_reopened in (False, True):
        files = SimulatedFiles()
        log = new_log(files, config(segment_ms=50))
        append(log, timestamp=1000, now_ms=10_000)
        if is_reopened:
            files.kill()
            log = new_log(files, config(segment_ms=50))
        append(log, timestamp=1000 + later_ms, now_ms=99_000)
        assert bases(log) == expected


@pytest.mark.parametrize(("later_ms", "expected"), [(50, [0]), (51, [0, 1])])
def test_a_segment_of_records_without_time_ages_by_the_clock(later_ms: int, expected: list[int]) -> None:
    log = new_log(config=config(segment_ms=50))
    append(log, timestamp=-1, now_ms=0)
    append(log, timestamp=-1, now_ms=later_ms)
    assert bases(log) == expected


def test_an_empty_segment_does_not_age() -> None:
    log = new_log(config=config(segment_ms=50))
    append(log, timestamp=-1, now_ms=1000)
    assert bases(log) == [0]


def test_a_full_index_ends_a_segment() -> None:
    log = new_log(config=config(segment_index_bytes=36, index_interval_bytes=1))
    for number in range(9):
        append(log, timestamp=1000 + number)
    assert len(log.segments) > 2
    for segment in log.segments[:-1]:
        assert segment.offset_index.size_bytes <= 36
        assert segment.time_index.size_bytes <= 36
    check_segments(log)


def test_rolling_an_empty_segment_does_nothing() -> None:
    log = new_log()
    log.roll(0)
    append(log)
    log.roll(0)
    log.roll(0)
    assert bases(log) == [0, 1]


def test_other_settings_are_gone_by_from_then_on() -> None:
    log = new_log()
    append(log)
    log.reconfigure(config(internal_segment_bytes=100))
    append(log)
    append(log)
    assert bases(log) == [0, 1, 2]


# Reading


def filled() -> Log:
    """Ten batches of two records in several segments."""
    log = new_log(config=config(internal_segment_bytes=300, index_interval_bytes=100))
    for number in range(10):
        append(log, [b"%d" % (number * 2), b"%d" % (number * 2 + 1)])
    assert len(log.segments) > 2
    return log


@pytest.mark.parametrize("offset", range(21))
def test_from_every_offset_on(offset: int) -> None:
    assert served_offsets(filled(), offset) == list(range(offset - offset % 2, 20))


@pytest.mark.parametrize("bound", range(22))
def test_up_to_every_bound(bound: int) -> None:
    assert served_offsets(filled(), 0, bound) == list(range(min(bound - bound % 2, 20)))


@pytest.mark.parametrize("offset", [-1, 3, 21, 1000])
def test_outside_of_the_log(offset: int) -> None:
    log = filled()
    log.advance_high_watermark(20)
    log.advance_log_start(4)
    with pytest.raises(OffsetOutOfRange) as refused:
        log.read(offset, 100, EVERYTHING)
    assert refused.value.code == 1


def test_at_the_end_there_is_nothing_yet() -> None:
    log = filled()
    assert log.read(20, 100, EVERYTHING) is None
    assert log.read(10, 100, 10) is None
    assert log.read(10, 100, 3) is None


@pytest.mark.parametrize("max_bytes", [0, 70, 400])
def test_a_batch_that_is_too_large_for_a_reply_is_not_passed_over(max_bytes: int) -> None:
    log = new_log(config=config(internal_segment_bytes=100))
    for size in (500, 1):
        append(log, [b"." * size])
    assert bases(log) == [0, 1]
    assert log.read(0, max_bytes, EVERYTHING, whole_batch=False) is None
    following = log.read(1, 400, EVERYTHING, whole_batch=False)
    assert following is not None
    assert read_header(following.read()).base_offset == 1


def test_a_reply_outlives_its_segment() -> None:
    log = filled()
    reply = log.read(0, 1, EVERYTHING)
    log.advance_high_watermark(20)
    log.remove_first(1, 0)
    for path in log.segments.due_removals(EVERYTHING):
        log.files.remove(path)
    assert reply is not None
    assert read_header(reply.read()).base_offset == 0


# Transactions


def test_the_last_stable_offset_waits_for_markers_to_be_replicated() -> None:
    log = new_log()
    append(log)
    append(log, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(log)
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 1
    append_marker(log, 1, is_commit=True)
    assert log.last_stable_offset == 1
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4


def test_the_last_stable_offset_is_never_ahead_of_the_high_watermark() -> None:
    log = new_log()
    append(log)
    append(log, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert log.last_stable_offset == 0


def test_aborted_transactions_are_found_across_segments() -> None:
    log = new_log()
    for producer_id in (1, 2, 3):
        append(log, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.roll(0)
    for producer_id, is_commit in ((2, False), (1, False), (3, True)):
        append_marker(log, producer_id, is_commit=is_commit)
        log.roll(0)
    assert log.aborted_transactions(0, 6) == [(2, 1, 3, 0), (1, 0, 4, 2)]
    assert log.aborted_transactions(4, 6) == [(1, 0, 4, 2)]
    assert log.aborted_transactions(5, 6) == []
    assert log.aborted_transactions(0, 1) == [(1, 0, 4, 2)]


@pytest.mark.parametrize("rolls", [False, True])
def test_a_reader_is_told_of_the_aborted_transactions_that_it_may_meet(rolls: bool) -> None:
    log = new_log(config=config(index_interval_bytes=200))
    for producer_id in range(30):
        append(log, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        append_marker(log, producer_id, is_commit=False)
        if rolls and producer_id % 10 == 9:
            log.roll(0)
    log.advance_high_watermark(log.end_offset)
    for offset in range(log.end_offset):
        read = log.read(offset, 400, log.end_offset)
        assert read is not None
        headers = [batch.header for batch in read_batches(read.read(), with_control=True)]
        met = {header.producer_id for header in headers}
        told = {entry.producer_id for entry in log.aborted_within(read, offset, log.end_offset)}
        assert met <= told
        assert len(told) <= len(met) + 4


def test_search_for_aborted_transactions_ends_where_all_is_stable() -> None:
    log = new_log()
    for producer_id in (1, 2):
        append(log, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        append_marker(log, producer_id, is_commit=False)
        log.roll(0)
    assert log.aborted_transactions(0, 2) == [(1, 0, 1, 2)]
    assert log.aborted_transactions(0, 4) == [(1, 0, 1, 2), (2, 2, 3, 4)]


# Flushing


def test_a_flush_is_due_after_so_many_records_or_so_long() -> None:
    log = new_log(config=config(flush_messages=3))
    append(log, [b"1", b"2"])
    assert not log.flusher.is_due(10**15)
    append(log)
    assert log.flusher.is_due(0)
    log.flush(0)
    assert not log.flusher.is_due(0)
    log = new_log(config=config(flush_ms=100))
    assert not log.flusher.is_due(500)  # nothing to flush
    append(log)
    assert not log.flusher.is_due(99)
    assert log.flusher.is_due(100)
    log.flush(100)
    append(log)
    assert not log.flusher.is_due(199)


def test_one_flush_covers_what_came_before_it_began() -> None:
    log = new_log()
    append(log)
    flush = log.flusher.begin()
    assert flush is not None
    append(log)
    flush.run()
    log.flusher.end(flush, 0)
    assert log.recovery_point == 1
    log.flush(0)
    assert log.recovery_point == 2
    assert log.flusher.begin() is None


def test_a_flush_from_before_a_truncation_vouches_for_nothing() -> None:
    log = new_log()
    for _ in range(3):
        append(log)
    flush = log.flusher.begin()
    assert flush is not None
    log.truncate_to(1, 0)
    append(log)
    append(log)
    flush.run()
    log.flusher.end(flush, 0)
    assert log.recovery_point == 0


def test_a_disk_that_failed_is_told_rather_than_a_descriptor_that_was_missing() -> None:
    """Without one nothing was asked of the disk, and the next flush will do. Of a failed sync that is not so."""
    files = SimulatedFiles()
    log = new_log(files)
    for _ in range(3):
        append(log)
        log.roll(0)
    syncs = len(log.segments)
    flush = log.flusher.begin()
    assert flush is not None
    for number in range(1, syncs + 1):
        files.arm(files.operation_count + number, Effect.FAIL, errno.EIO if number == 2 else errno.EMFILE)
    assert [error.errno for error in run_together([flush]).values()] == [errno.EIO]


def test_full_segments_are_flushed_without_being_opened_all_at_once() -> None:
    files = SimulatedFiles()
    log = new_log(files)
    for _ in range(20):
        append(log)
        log.roll(0)
    log.segments.close()
    flush = log.flusher.begin()
    assert flush is not None
    assert len(flush.open_files) == 1
    flush.run()
    log.flusher.end(flush, 0)
    synced = {operation.path for operation in files.trace if operation.kind == "sync"}
    assert synced >= {segment.path(LOG) for segment in log.segments}
    assert log.recovery_point == 20


# Truncating


class TellsTruncations(LogOwner):
    def __init__(self, told: list[int]) -> None:
        self._told = told

    def before_truncation(self, offset: int) -> None:
        self._told.append(offset)


@pytest.mark.parametrize("offset", range(21))
def test_truncation_drops_the_batch_that_holds_the_offset(offset: int) -> None:
    log = filled()
    log.advance_high_watermark(20)
    log.flush(0)
    told: list[int] = []
    log.owner = TellsTruncations(told)
    log.truncate_to(offset, 0)
    end = offset - offset % 2
    assert log.end_offset == end
    assert log.high_watermark == end
    assert log.recovery_point <= end
    assert told == ([end] if offset < 20 else [])
    assert served_offsets(log) == list(range(end))
    check_segments(log)
    append(log, [b"new"], epoch=1)
    assert served_offsets(log) == list(range(end + 1))


def test_truncation_forgets_epochs_and_producers_from_there_on() -> None:
    log = new_log()
    for number in range(4):
        append(log, epoch=number, producer_id=7, producer_epoch=0, base_sequence=number)
    log.truncate_to(2, 0)
    assert log.epochs.entries == [(0, 0), (1, 1)]
    assert log.producers.by_id[7].last_sequence == 1
    append(log, epoch=5, producer_id=7, producer_epoch=0, base_sequence=2)


def test_truncation_opens_a_transaction_again_whose_marker_it_drops() -> None:
    log = new_log()
    append(log, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    append_marker(log, 7, is_commit=False)
    log.truncate_to(1, 0)
    assert log.producers.first_undecided_offset == 0
    assert log.aborted_transactions(0, 1) == []


def test_truncation_behind_the_end_does_nothing() -> None:
    log = filled()
    log.truncate_to(20, 0)
    log.truncate_to(99, 0)
    assert log.end_offset == 20


@pytest.mark.parametrize("offset", [0, 7, 20, 500])
def test_starting_anew_somewhere_else(offset: int) -> None:
    log = filled()
    log.truncate_fully(offset, 0)
    assert (log.log_start_offset, log.end_offset, log.high_watermark) == (offset, offset, offset)
    assert bases(log) == [offset]
    assert log.epochs.entries == []
    assert log.snapshots.offsets == []
    append(log, epoch=1)
    assert served_offsets(log) == [offset]


# The start


def test_the_start_moves_up_to_the_high_watermark() -> None:
    log = filled()
    log.advance_high_watermark(10)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(11)
    log.advance_log_start(5)
    log.advance_log_start(2)
    assert log.log_start_offset == 5
    assert served_offsets(log) == list(range(4, 20))  # the batch that holds it is given whole


def test_removed_segments_go_after_a_while() -> None:
    files = SimulatedFiles()
    log = new_log(files, config(internal_segment_bytes=100, file_delete_delay_ms=50))
    for epoch in range(4):
        append(log, epoch=epoch)
    log.advance_high_watermark(4)
    log.remove_first(2, now_ms=1000)
    assert (bases(log), log.log_start_offset) == ([2, 3], 2)
    assert log.epochs.entries == [(2, 2), (3, 3)]
    assert log.snapshots.offsets == [2, 3]
    assert log.segments.due_removals(1049) == []
    due = log.segments.due_removals(1050)
    assert all(path.endswith(".deleted") for path in due)
    assert log.segments.due_removals(1050) == []
    for path in due:
        files.remove(path)
    assert not any(name.endswith(".deleted") for name in files.sizes(log.folder))
    assert served_offsets(log) == [2, 3]


def test_all_segments_may_go_but_one_that_is_new() -> None:
    log = filled()
    log.advance_high_watermark(20)
    log.remove_first(len(log.segments), 0)
    assert (bases(log), log.log_start_offset, log.end_offset) == ([20], 20, 20)
    append(log)
    assert served_offsets(log) == [20]


def test_closing_twice_or_after_a_failure_writes_nothing() -> None:
    files = SimulatedFiles()
    log = new_log(files, SMALL)
    append(log)
    log.close(0)
    log = new_log(files, clean=True)
    log.failure = "the disk is gone"
    count = files.operation_count
    log.close(0)
    assert files.operation_count == count
    with pytest.raises(StorageFailed):
        append(log)


def test_a_replaced_leader_writes_no_more() -> None:
    log = new_log()
    append(log, [b"a"], epoch=3)
    append(log, [b"b"], epoch=5)
    with pytest.raises(StaleLeaderEpoch):
        append(log, [b"late"], epoch=4)
    replicated = build_batch([b"late"], timestamp=0, base_offset=2, leader_epoch=4)
    with pytest.raises(StaleLeaderEpoch):
        log.append_replicated(memoryview(replicated), 0)
    assert log.end_offset == 2


@pytest.mark.parametrize("seed", range(5))
def test_of_many_aborted_transactions_those_are_found_that_lie_between_two_offsets(seed: int) -> None:
    random = Random(seed)
    log = new_log()
    is_open: set[int] = set()
    sequences = [0] * 6
    for _ in range(200):
        producer = random.randrange(6)
        if producer in is_open and random.random() < 0.5:
            append_marker(log, producer, is_commit=random.random() < 0.2)
            is_open.discard(producer)
        else:
            sequence = sequences[producer]
            append(log, producer_id=producer, producer_epoch=0, base_sequence=sequence, is_transactional=True)
            sequences[producer] += 1
            is_open.add(producer)
    entries = [entry for segment in log.segments for entry in segment.aborted.entries]
    assert len(log.segments) > 2
    for _ in range(300):
        offset = random.randrange(200)
        bound = random.randrange(offset, 201)
        within = [each for each in entries if each.last_offset >= offset and each.first_offset < bound]
        found = log.aborted_transactions(offset, bound)
        assert [each for each in found if each in within] == within == found
