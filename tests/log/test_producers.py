"""What may be appended for a producer, and up to where every transaction is decided."""

from typing import Any

import pytest

from ottla.log.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTransactionState,
    LogError,
    OutOfOrderSequence,
    StorageFailed,
)
from ottla.log.producers import KEPT_BATCHES, MOST_PRODUCERS, SILENT_MS, Origin, Producer, Producers
from ottla.records.batch import BatchHeader, read_header
from ottla.records.build import ControlMarker, build_batch

LAST_SEQUENCE = 2**31 - 1
COMMIT, ABORT = ControlMarker(True, 3), ControlMarker(False, 3)


def header(sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = 7, **options: Any) -> BatchHeader:
    batch = build_batch(
        [b"v"] * count, timestamp=1000, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options
    )
    return read_header(batch)


def transactional(sequence: int = 0, **options: Any) -> BatchHeader:
    return header(sequence, is_transactional=True, **options)


def producers_after(*headers: BatchHeader) -> Producers:
    """Each written behind the one before, from offset 0 on."""
    producers, offset = Producers(), 0
    for each in headers:
        producers.appended(each, offset)
        offset += each.last_offset_delta + 1
    return producers


# Sequences

ACCEPTED = None


@pytest.mark.parametrize(
    ("known", "incoming", "refusal"),
    [
        ([], header(0), ACCEPTED),
        ([], header(500), ACCEPTED),  # nothing is known of the producer: any sequence
        ([header(0, count=3)], header(3), ACCEPTED),
        ([header(0, count=3)], header(4), OutOfOrderSequence),
        ([header(0, count=3)], header(2), OutOfOrderSequence),
        ([header(5)], header(0), OutOfOrderSequence),
        ([header(LAST_SEQUENCE)], header(0), ACCEPTED),  # it wraps
        ([header(LAST_SEQUENCE)], header(1), OutOfOrderSequence),
        ([header(LAST_SEQUENCE - 1, count=4)], header(2), ACCEPTED),  # wrapped within a batch
        ([header(LAST_SEQUENCE - 1, count=4)], header(3), OutOfOrderSequence),
        ([header(4, epoch=2)], header(5, epoch=1), InvalidProducerEpoch),
        ([header(4, epoch=2)], header(0, epoch=1), InvalidProducerEpoch),
        ([header(4, epoch=2)], header(0, epoch=3), ACCEPTED),
        ([header(4, epoch=2)], header(5, epoch=3), OutOfOrderSequence),
        ([header(4, producer_id=8)], header(9), ACCEPTED),  # producers do not know each other
        ([transactional()], transactional(1), ACCEPTED),
        ([transactional()], header(1), InvalidTransactionState),
    ],
)
def test_what_a_client_may_append(
    known: list[BatchHeader], incoming: BatchHeader, refusal: type[LogError] | None
) -> None:
    producers = producers_after(*known)
    if refusal is None:
        producers.check(incoming, Origin.CLIENT)
    else:
        with pytest.raises(refusal):
            producers.check(incoming, Origin.CLIENT)


@pytest.mark.parametrize(
    ("error", "code"),
    [(OutOfOrderSequence, 45), (InvalidProducerEpoch, 47), (InvalidTransactionState, 48), (CoordinatorFenced, 52)],
)
def test_refusals_have_kafkas_numbers(error: type[LogError], code: int) -> None:
    assert error.code == code


def test_a_new_epoch_starts_at_zero_where_transactions_version_2_asks() -> None:
    producers = Producers()
    producers.check(header(5), Origin.CLIENT)
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(5), Origin.CLIENT, new_epoch_starts_at_zero=True)
    producers.check(header(0), Origin.CLIENT, new_epoch_starts_at_zero=True)


def test_a_coordinator_is_held_to_the_epoch_only() -> None:
    producers = producers_after(header(4, epoch=2))
    producers.check(header(99, epoch=2), Origin.COORDINATOR)
    with pytest.raises(InvalidProducerEpoch):
        producers.check(header(5, epoch=1), Origin.COORDINATOR)


def test_what_the_leader_checked_is_not_checked_again() -> None:
    producers = producers_after(transactional(4, epoch=2))
    producers.check(header(99, epoch=1), Origin.REPLICATION)


def test_one_known_by_a_marker_starts_at_zero() -> None:
    producers = Producers()
    producers.marked(header(-1, epoch=3), 0, COMMIT)
    producers.check(header(0, epoch=3), Origin.CLIENT)
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(9, epoch=3), Origin.CLIENT)
    with pytest.raises(InvalidProducerEpoch):
        producers.check(header(0, epoch=2), Origin.CLIENT)


# Batches that the coordinator of a transaction is asked about


def test_what_follows_a_batch_that_was_refused_is_not_taken_in_its_place() -> None:
    producers = Producers()
    producers.note_asked(transactional(2), 1000)
    producers.note_asked(transactional(5), 1000)
    for late in (transactional(3), transactional(5)):
        with pytest.raises(OutOfOrderSequence):
            producers.check(late, Origin.CLIENT)
    producers.check(transactional(2), Origin.CLIENT)
    producers.check(transactional(3, epoch=1), Origin.CLIENT)  # another transaction
    producers.appended(transactional(2), 0)
    producers.check(transactional(3), Origin.CLIENT)


def test_a_producer_that_was_replaced_does_not_undo_what_its_successor_was_refused() -> None:
    producers = Producers()
    producers.note_asked(transactional(0, epoch=2), 1000)
    producers.note_asked(transactional(0, epoch=1), 1000)
    with pytest.raises(OutOfOrderSequence):
        producers.check(transactional(1, epoch=2), Origin.CLIENT)
    producers.check(transactional(0, epoch=2), Origin.CLIENT)
    producers.note_asked(transactional(4, epoch=3), 1000)
    producers.check(transactional(4, epoch=3), Origin.CLIENT)


@pytest.mark.parametrize("forget", ["a marker", "time"])
def test_a_refusal_is_not_remembered_for_ever(forget: str) -> None:
    producers = Producers()
    producers.note_asked(transactional(2), 1000)
    producers.expire(1099, 0, 100)
    with pytest.raises(OutOfOrderSequence):
        producers.check(transactional(3), Origin.CLIENT)
    if forget == "time":
        producers.expire(1100, 0, 100)
        producers.check(transactional(3), Origin.CLIENT)
    else:
        producers.marked(transactional(-1), 5, ABORT)
        producers.check(transactional(0), Origin.CLIENT)


def test_the_late_end_of_the_transaction_before_ends_nothing_that_is_asked_about() -> None:
    """In version 2 a marker has the epoch of the next transaction, which may have begun when it is written."""
    producers = Producers()
    producers.appended(transactional(0, epoch=1), 0)
    producers.note_asked(transactional(0, epoch=2), 1000, epoch_rises=True)
    producers.marked(transactional(-1, epoch=2), 1, COMMIT)
    assert producers.is_admitted(7, 2)
    producers.marked(transactional(-1, epoch=3), 2, ABORT)
    assert not producers.is_admitted(7, 2)
    assert producers.is_replaced(7, 2)


def test_a_partition_takes_part_from_the_first_batch_to_the_marker() -> None:
    producers = Producers()
    assert not producers.takes_part(7, 0)
    producers.appended(transactional(0, epoch=1), 0)
    assert producers.takes_part(7, 1)
    assert not producers.takes_part(7, 2)
    assert (producers.is_replaced(7, 0), producers.is_replaced(7, 1), producers.is_replaced(8, 0)) == (
        True,
        False,
        False,
    )
    producers.marked(transactional(-1, epoch=2), 5, COMMIT)
    assert not producers.takes_part(7, 2)


# Duplicates


def test_each_of_the_last_batches_is_known_again() -> None:
    headers = [header(number * 2, count=2) for number in range(KEPT_BATCHES + 1)]
    producers = producers_after(*headers)
    assert producers.find_duplicate(headers[0]) is None  # too long ago
    for number, each in enumerate(headers[1:], start=1):
        found = producers.find_duplicate(each)
        assert found is not None
        assert (found.base_offset, found.last_offset, found.timestamp) == (number * 2, number * 2 + 1, 1000)


@pytest.mark.parametrize(
    "other",
    [
        header(0, count=3),  # begins like one, ends elsewhere
        header(1, count=1),  # within one
        header(0, count=2, epoch=1),
        header(0, count=2, producer_id=8),
    ],
)
def test_what_is_like_a_batch_is_no_duplicate(other: BatchHeader) -> None:
    assert producers_after(header(0, count=2)).find_duplicate(other) is None


def test_a_duplicate_across_the_wrap() -> None:
    wrapped = header(LAST_SEQUENCE, count=3)
    found = producers_after(wrapped).find_duplicate(wrapped)
    assert found is not None
    assert (found.first_sequence, found.last_sequence) == (LAST_SEQUENCE, 1)


def test_a_new_epoch_forgets_the_batches_of_the_old() -> None:
    producers = producers_after(header(0), header(0, epoch=1))
    assert producers.find_duplicate(header(0)) is None
    assert len(producers.by_id[7].batches) == 1


# Transactions


def test_a_transaction_is_undecided_from_its_first_batch_to_its_marker() -> None:
    producers = Producers()
    assert producers.first_unstable_offset is None
    producers.appended(transactional(0), 10)
    producers.appended(transactional(1), 20)
    producers.appended(header(0, producer_id=8), 25)
    assert producers.first_unstable_offset == 10
    completed = producers.marked(transactional(-1), 30, ABORT)
    assert completed == (7, 10, 30, True)
    assert producers.first_undecided_offset is None


@pytest.mark.parametrize(("high_watermark", "unstable"), [(0, 10), (30, 10), (31, None)])
def test_a_decided_transaction_counts_when_its_marker_is_replicated(high_watermark: int, unstable: int | None) -> None:
    producers = Producers()
    producers.appended(transactional(0), 10)
    producers.marked(transactional(-1), 30, COMMIT)
    producers.replicated(high_watermark)
    assert producers.first_unstable_offset == unstable


def test_the_oldest_of_open_and_unreplicated_transactions_counts() -> None:
    producers = Producers()
    producers.appended(transactional(0, producer_id=1), 10)
    producers.appended(transactional(0, producer_id=2), 20)
    producers.appended(transactional(0, producer_id=3), 30)
    assert producers.first_unstable_offset == 10
    first = producers.marked(transactional(-1, producer_id=1), 40, ABORT)
    assert first is not None
    assert producers.first_unstable_offset == 10
    assert producers.stable_offset_after(first) == 20
    producers.replicated(41)
    assert producers.first_unstable_offset == 20
    third = producers.marked(transactional(-1, producer_id=3), 50, ABORT)
    second = producers.marked(transactional(-1, producer_id=2), 60, ABORT)
    assert second is not None
    assert third is not None
    assert producers.stable_offset_after(second) == 61
    producers.replicated(55)
    assert producers.first_unstable_offset == 20


def test_a_marker_without_a_transaction_ends_nothing() -> None:
    producers = Producers()
    assert producers.marked(transactional(-1, epoch=4), 5, ABORT) is None
    assert producers.by_id[7].epoch == 4
    assert producers.by_id[7].coordinator_epoch == 3


def test_markers_of_the_replaced_are_refused() -> None:
    producers = Producers()
    producers.check_marker(7, 0, COMMIT)
    producers.appended(transactional(0, epoch=2), 0)
    producers.marked(transactional(-1, epoch=2), 1, COMMIT)
    producers.check_marker(7, 2, COMMIT)
    producers.check_marker(7, 3, ControlMarker(True, 4))
    with pytest.raises(InvalidProducerEpoch):
        producers.check_marker(7, 1, COMMIT)
    with pytest.raises(CoordinatorFenced):
        producers.check_marker(7, 2, ControlMarker(True, 2))


@pytest.mark.parametrize(
    ("epoch", "version", "is_open", "is_taken"),
    [
        (2, 0, True, True),  # in version 1 a marker has the epoch of its records
        (2, 2, True, False),  # in version 2 it is above, so this one ended a transaction before
        (3, 2, True, True),
        (2, 2, False, True),  # it comes again, for its answer was lost
        (1, 2, False, False),
        (1, 0, False, False),
    ],
)
def test_a_marker_of_version_2_has_a_higher_epoch(epoch: int, version: int, is_open: bool, is_taken: bool) -> None:
    """What Apache Kafka 4.3.1 answers to WriteTxnMarkers (KIP-1228)."""
    producers = Producers()
    producers.appended(transactional(0, epoch=2), 0)
    if not is_open:
        producers.marked(transactional(-1, epoch=2), 1, COMMIT)
    if is_taken:
        producers.check_marker(7, epoch, COMMIT, transaction_version=version)
    else:
        with pytest.raises(InvalidProducerEpoch):
            producers.check_marker(7, epoch, COMMIT, transaction_version=version)


def test_an_emptied_batch_tells_its_sequence_and_opens_no_transaction() -> None:
    producers = Producers()
    producers.appended(transactional(4)._replace(count=0), 10)
    assert producers.first_unstable_offset is None
    assert producers.by_id[7].last_sequence == 4


# Expiry


@pytest.mark.parametrize(("now_ms", "is_known"), [(1099, True), (1100, False), (5000, False)])
def test_a_silent_producer_is_forgotten(now_ms: int, is_known: bool) -> None:
    producers = Producers()
    producers.appended(header(0), 0)
    producers.expire(1000, 0, 100)
    producers.expire(now_ms, now_ms - 1000, 100)
    assert (7 in producers.by_id) == is_known


@pytest.mark.parametrize("timestamp", [-1, 0, 5_000_000_000_000])
def test_how_long_it_was_silent_is_not_told_by_the_dates_of_its_records(timestamp: int) -> None:
    producers = Producers()
    day_ms = 24 * SILENT_MS
    now_ms = 3_000_000_000_000
    producers.appended(header(0)._replace(max_timestamp=timestamp), 0)
    producers.expire(now_ms, 0, day_ms)
    producers.expire(now_ms + day_ms, SILENT_MS - 1, day_ms)  # the clock was set
    producers.appended(header(1)._replace(max_timestamp=timestamp), 1)
    producers.expire(now_ms, SILENT_MS, day_ms)
    assert producers.find_duplicate(header(0)) is not None
    producers.expire(now_ms, SILENT_MS + day_ms, day_ms)
    assert len(producers) == 0


def test_one_with_an_open_transaction_is_not() -> None:
    producers = Producers()
    producers.appended(transactional(0), 0)
    producers.expire(10_000, 0, 100)
    producers.expire(10_000, 100, 100)
    assert len(producers) == 1
    producers.marked(transactional(-1), 1, COMMIT)
    producers.expire(10_000, 200, 100)
    producers.expire(10_000, 300, 100)
    assert len(producers) == 0


def test_of_very_many_those_that_wrote_longest_ago_are_forgotten() -> None:
    producers = Producers()
    producers.appended(transactional(0)._replace(producer_id=1), 0)
    producers.appended(header(0), 1)
    for number in range(2, 2 * MOST_PRODUCERS):
        producers.appended(header(0)._replace(producer_id=1000 + number), number)
        if number % 100 == 0:
            producers.appended(header(number // 100), number)
    assert len(producers) <= MOST_PRODUCERS
    assert {1, 7, 1000 + number} <= producers.by_id.keys()
    assert producers.first_unstable_offset == 0


def test_open_transactions_are_never_forgotten_however_many() -> None:
    producers = Producers()
    for number in range(MOST_PRODUCERS + 2000):
        producers.appended(transactional(0)._replace(producer_id=number), number)
    assert len(producers) == MOST_PRODUCERS + 2000


def test_open_transactions_of_a_snapshot_are_put_in_order_once_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[object] = []

    def order(items: Any) -> list[Any]:
        orders.append(items)
        return sorted(items)

    monkeypatch.setattr("ottla.log.producers.sorted", order, raising=False)
    opened = []
    for number in range(100):
        producer = Producer(0)
        producer.transaction_start = 1000 - number
        opened.append((number, producer))
    producers = Producers()
    producers.restore(opened)
    assert list(producers.ongoing) == list(range(901, 1001))
    assert len(orders) == 1


def test_what_could_not_be_written_is_remembered_of_so_many() -> None:
    producers = Producers()
    for number in range(MOST_PRODUCERS + 1):
        producers.note_unwritten(header(0)._replace(producer_id=number))
    producers.check(header(1)._replace(producer_id=0), Origin.CLIENT)
    with pytest.raises(StorageFailed):
        producers.check(header(1)._replace(producer_id=MOST_PRODUCERS), Origin.CLIENT)


def test_what_could_not_be_written_a_moment_ago_is_not_forgotten() -> None:
    producers = Producers()
    producers.note_unwritten(header(0))
    producers.expire(10_000, 0, 100)
    with pytest.raises(StorageFailed):
        producers.check(header(1), Origin.CLIENT)
    for steady_ms in (100, 200):
        producers.expire(10_000, steady_ms, 100)
    producers.check(header(1), Origin.CLIENT)
