"""Batches of one partition reach the log once and in order, whatever is refused, lost or answered late."""

import threading
from collections import deque

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.client.errors import ConnectionLost, DeliveryTimedOut, ServerError
from ottla.client.producer.batch import ANONYMOUS, Batch, Identity
from ottla.client.producer.chunk import Chunk
from ottla.client.producer.delivery import Outcome
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.wire.errors import ErrorCode

IDENTITY = Identity(7, 0)
MOST_IN_FLIGHT = 5
FAR = 1e9


class Log:
    """A partition as a broker keeps it: it knows the last five batches of a producer again."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.epoch = -1
        self.recent: deque[tuple[int, int, int]] = deque(maxlen=MOST_IN_FLIGHT)
        self.next_sequence: int | None = None

    def append(self, batch: Batch) -> Outcome:
        if batch.identity.epoch < self.epoch:
            return refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        for epoch, sequence, offset in self.recent:
            if (epoch, sequence) == (batch.identity.epoch, batch.sequence):
                return Outcome(offset)
        if batch.identity.epoch > self.epoch:
            if self.epoch >= 0 and batch.sequence != 0:
                return refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        elif batch.sequence != self.next_sequence:
            return refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        outcome = Outcome(len(self.values))
        self.epoch = batch.identity.epoch
        self.recent.append((batch.identity.epoch, batch.sequence, outcome.base_offset))
        self.next_sequence = batch.sequence + batch.count
        self.values += batch.values
        return outcome


def refused(code: int) -> Outcome:
    return Outcome(error=ServerError(code, topic="t", partition=0))


def chunk_of(values: list[bytes | None]) -> Chunk:
    chunk = Chunk("t", threading.Lock(), 0)
    chunk.values = values
    chunk.close()
    return chunk


def fill(queue: PartitionQueue, batch_count: int, records: int = 3) -> list[bytes | None]:
    written: list[bytes | None] = []
    for number in range(batch_count):
        values: list[bytes | None] = [b"%d-%d" % (number, index) for index in range(records)]
        queue.add(chunk_of(values), range(records), 10, limit_bytes=10, deadline=FAR)
        written += values
    return written


ANSWERS = ["ok", "refused", "lost before", "lost after", "moved before", "moved after", "too large", "limit lowered"]
answers = st.lists(st.sampled_from(ANSWERS), max_size=40)


@settings(max_examples=300)
@given(answers=answers, batch_count=st.integers(1, 12), in_transaction=st.booleans())
@example(answers=["ok", "too large", *["ok"] * 4, "too large"], batch_count=7, in_transaction=False)
@example(answers=["ok", "refused"], batch_count=4, in_transaction=True)
def test_in_order_and_once_through_all_troubles(answers: list[str], batch_count: int, in_transaction: bool) -> None:
    """Requests reach the broker in the order they are sent, on one connection; a lost connection takes all with it."""
    queue, log = PartitionQueue("t", 0, IDENTITY, renumbers=not in_transaction), Log()
    if in_transaction:  # where a record that is not written fails all
        answers = [answer for answer in answers if answer not in ("too large", "limit lowered")]
    written = fill(queue, batch_count)
    unknown: set[bytes | None] = set()
    left = iter(answers)
    while not queue.is_idle:
        flight: list[tuple[Batch, Outcome]] = []
        is_cut = False
        while queue.may_send(0) and len(queue.in_flight) < MOST_IN_FLIGHT:
            batch = queue.take()
            answer = next(left, "ok")
            if is_cut or answer == "lost before":
                is_cut = True
                flight.append((batch, Outcome(error=ConnectionLost("cut"))))
            elif answer == "lost after":
                is_cut = True
                log.append(batch)
                flight.append((batch, Outcome(error=ConnectionLost("cut"))))
            elif answer == "refused":
                flight.append((batch, refused(ErrorCode.NOT_ENOUGH_REPLICAS)))
            elif answer in ("moved before", "moved after"):  # the leader changed, and what it has the next one has, too
                if answer == "moved after":
                    log.append(batch)
                flight.append((batch, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
            elif answer == "limit lowered":  # size is looked at first: also what is there already is too large then
                flight.append((batch, refused(ErrorCode.MESSAGE_TOO_LARGE)))
            elif answer == "too large":
                is_known = any(batch.sequence == sequence for _, sequence, _ in log.recent)
                flight.append((batch, log.append(batch) if is_known else refused(ErrorCode.MESSAGE_TOO_LARGE)))
            else:
                flight.append((batch, log.append(batch)))
        assert flight, "something can always be sent"
        for batch, outcome in flight:
            for decided, result in queue.answered(batch, outcome, 0):
                if result.error is None:
                    decided.settle(result)
                else:
                    assert isinstance(result.error, ServerError)
                    if decided.may_be_written:  # nobody knows, and nobody writes it twice
                        unknown |= {*decided.values} & {*log.values}
                    else:
                        assert decided.count == 1  # the one record of it is too large
                    written = [value for value in written if value in unknown or value not in decided.values]
    assert log.values == written


def test_until_the_broker_knows_the_producer_one_batch_is_in_flight() -> None:
    queue = PartitionQueue("t", 0, IDENTITY)
    fill(queue, 3)
    first = queue.take()
    assert not queue.may_send(0)
    queue.answered(first, Outcome(0), 0)
    queue.take()
    assert queue.may_send(0)


def test_no_more_are_in_flight_than_a_broker_knows_again() -> None:
    queue = PartitionQueue("t", 0, IDENTITY)
    fill(queue, 8)
    queue.answered(queue.take(), Outcome(0), 0)
    while queue.may_send(0):
        queue.take()
    assert (len(queue.in_flight), len(queue.waiting)) == (5, 2)
    queue.answered(queue.in_flight[0], Outcome(1), 0)
    assert queue.may_send(0)


def test_without_an_identity_nothing_is_numbered() -> None:
    queue = PartitionQueue("t", 0, ANONYMOUS)
    fill(queue, 2)
    assert [queue.take().sequence, queue.take().sequence] == [-1, -1]


def test_what_was_refused_for_good_gives_its_numbers_to_the_next() -> None:
    """A record that is refused each time it is tried costs no epoch."""
    queue, log = PartitionQueue("t", 0, IDENTITY), Log()
    for _ in range(3):
        fill(queue, 1)
        queue.answered(written := queue.take(), log.append(written), 0)
        fill(queue, 1)
        bad = queue.take()
        assert [one for one, _ in queue.answered(bad, refused(ErrorCode.INVALID_RECORD), 0)] == [bad]
    assert queue.identity == IDENTITY
    assert len(log.values) == 9


def test_those_behind_a_refused_one_follow_what_is_written() -> None:
    queue, log = PartitionQueue("t", 0, IDENTITY), Log()
    fill(queue, 1)
    queue.answered(first := queue.take(), log.append(first), 0)
    values = fill(queue, 3)
    bad, *behind = queue.take(), queue.take(), queue.take()
    answers = [refused(ErrorCode.INVALID_RECORD), *map(log.append, behind)]
    for batch, answer in zip((bad, *behind), answers, strict=True):
        queue.answered(batch, answer, 0)
    again = [queue.take(), queue.take()]
    assert [batch.identity for batch in again] == [IDENTITY, IDENTITY]
    assert [queue.answered(batch, log.append(batch), 0)[0][1].error for batch in again] == [None, None]
    assert log.values[3:] == values[3:]


def test_what_may_be_written_keeps_its_numbers_until_the_broker_says_that_it_is_not() -> None:
    """The one before was refused; only the broker can say that this one is not in the log."""
    queue, log = PartitionQueue("t", 0, IDENTITY), Log()
    fill(queue, 1)
    queue.answered(first := queue.take(), log.append(first), 0)
    fill(queue, 2)
    bad, lost = queue.take(), queue.take()
    queue.answered(bad, refused(ErrorCode.INVALID_RECORD), 0)
    numbers = lost.identity, lost.sequence
    queue.answered(lost, Outcome(error=ConnectionLost("cut")), 0)
    assert queue.take() is lost
    assert (lost.identity, lost.sequence) == numbers
    assert queue.answered(lost, log.append(lost), 0) == []
    again = queue.take()
    assert (again.identity.epoch, again.sequence) == (1, 0)  # nothing late of the old epoch is taken any more
    assert queue.answered(again, log.append(again), 0)[0][1].error is None


def test_one_that_may_be_written_is_sent_again_alone_and_is_written_if_one_behind_it_is() -> None:
    """However many are written behind it: a broker that has forgotten it must not get it under other numbers."""
    queue = PartitionQueue("t", 0, Identity(7, 0))
    log = Log()
    written = fill(queue, 8, records=1)
    first = queue.take()
    queue.answered(first, log.append(first), 0.0)
    uncertain, *others = (queue.take() for _ in range(3))
    log.append(uncertain)
    queue.answered(uncertain, refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), 0.0)
    for other in others:
        queue.answered(other, log.append(other), 0.0)
    assert queue.take() is uncertain
    assert not queue.may_send(0.0)
    log.recent.clear()
    [(decided, outcome)] = queue.answered(uncertain, log.append(uncertain), 0.0)
    assert (decided, outcome.error) == (uncertain, None)
    while queue.may_send(0.0):
        batch = queue.take()
        queue.answered(batch, log.append(batch), 0.0)
    assert log.values == written


def test_after_one_that_was_given_up_unknown_numbers_are_not_used_again() -> None:
    queue, log = PartitionQueue("t", 0, IDENTITY), Log()
    fill(queue, 1)
    queue.answered(first := queue.take(), log.append(first), 0)
    queue.add(chunk_of([b"lost"]), range(1), 10, limit_bytes=10, deadline=5)
    lost = queue.take()
    [(decided, outcome)] = queue.answered(lost, Outcome(error=ConnectionLost("cut")), 6)
    assert decided is lost
    assert isinstance(outcome.error, ConnectionLost)
    fill(queue, 1)
    following = queue.take()
    assert following.sequence == 4  # if the lost one is there after all, this is the next
    assert queue.answered(following, log.append(following), 6) == []
    again = queue.take()
    assert (again.identity.epoch, again.sequence) == (1, 0)


def test_the_time_of_a_batch_ends_while_it_is_in_flight() -> None:
    queue, log = PartitionQueue("t", 0, IDENTITY), Log()
    queue.add(chunk_of([b"slow"]), range(1), 10, limit_bytes=10, deadline=5)
    slow = queue.take()
    [(decided, outcome)] = queue.expire(6)
    assert decided is slow
    assert isinstance(outcome.error, DeliveryTimedOut)
    slow.settle(outcome)
    assert queue.expire(7) == []
    assert not queue.is_idle
    assert queue.answered(slow, Outcome(0), 7) == []
    assert queue.is_idle
    assert log.values == []


def test_without_epochs_it_waits_for_another_identity() -> None:
    queue = PartitionQueue("t", 0, Identity(7, 32767))
    fill(queue, 2)
    queue.answered(queue.take(), Outcome(0), 0)
    second = queue.take()
    queue.answered(second, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0)
    assert queue.needs_identity
    assert not queue.may_send(0)
    queue.take_identity(Identity(8, 0))
    assert queue.take() is second
    assert (second.identity, second.sequence) == (Identity(8, 0), 0)


def test_the_good_records_of_a_refused_batch_go_on_without_the_bad() -> None:
    queue, log = PartitionQueue("t", 0, IDENTITY), Log()
    fill(queue, 1, records=4)
    error = ServerError(ErrorCode.INVALID_RECORD, topic="t", partition=0)
    answer = Outcome(error=error, record_errors={1: error, 3: error})
    [(refused_batch, outcome)] = queue.answered(queue.take(), answer, 0)
    assert refused_batch.values == [b"0-1", b"0-3"]
    assert set(outcome.record_errors) == {0, 1}
    others = queue.take()
    assert others.values == [b"0-0", b"0-2"]
    assert (others.identity, others.sequence) == (IDENTITY, 0)
    queue.answered(others, log.append(others), 0)
    assert queue.is_idle
    fill(queue, 1)
    assert queue.take().sequence == 2


def test_in_a_transaction_a_gap_is_an_error() -> None:
    queue = PartitionQueue("t", 0, IDENTITY, renumbers=False)
    fill(queue, 1)
    batch = queue.take()
    [(decided, outcome)] = queue.answered(batch, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0)
    assert decided is batch
    assert isinstance(outcome.error, ServerError)


def test_in_a_transaction_what_came_before_an_older_one_is_sent_again() -> None:
    """The older one was on a connection that was cut, the younger ones on the next."""
    queue, log = PartitionQueue("t", 0, IDENTITY, renumbers=False), Log()
    written = fill(queue, 4)
    first = queue.take()
    queue.answered(first, log.append(first), 0)
    older, younger, youngest = (queue.take() for _ in range(3))
    assert queue.answered(youngest, log.append(youngest), 0) == []
    assert queue.answered(older, Outcome(error=ConnectionLost("cut")), 0) == []
    assert queue.answered(younger, log.append(younger), 0) == []
    for again in (older, younger, youngest):
        assert queue.take() is again
        [(decided, outcome)] = queue.answered(again, log.append(again), 0)
        assert (decided, outcome.error) == (again, None)
    assert log.values == written


@pytest.mark.parametrize("was_tried", [False, True])
def test_what_takes_too_long_is_given_up_with_the_last_reason(was_tried: bool) -> None:
    queue = PartitionQueue("t", 0, IDENTITY)
    queue.add(chunk_of([b""]), range(1), 1, limit_bytes=10, deadline=5.0)
    if was_tried:
        assert queue.answered(queue.take(), refused(ErrorCode.NOT_ENOUGH_REPLICAS), 1.0) == []
    assert queue.expire(4.9) == []
    [(_, outcome)] = queue.expire(5.0)
    assert isinstance(outcome.error, ServerError if was_tried else DeliveryTimedOut)
    assert (outcome.error.topic, outcome.error.partition) == ("t", 0)


def test_small_additions_fill_one_batch() -> None:
    queue = PartitionQueue("t", 0, IDENTITY)
    for _ in range(3):
        queue.add(chunk_of([b"x", b"y"]), range(2), 20, limit_bytes=100, deadline=FAR)
    assert [batch.count for batch in queue.waiting] == [6]
    batch = queue.take()
    queue.add(chunk_of([b"z"]), range(1), 20, limit_bytes=100, deadline=FAR)
    assert [one.count for one in queue.waiting] == [1]
    assert batch.count == 6


def test_a_record_that_comes_late_is_not_given_up_with_those_that_came_long_before() -> None:
    """Nobody leads the partition, and what waits takes more."""
    queue = PartitionQueue("t", 0, IDENTITY)
    for opened_at in (0.0, 0.5, 8.0):
        chunk = chunk_of([b"%d" % opened_at])
        chunk.opened_at = opened_at
        queue.add(chunk, range(1), 10, limit_bytes=1000, deadline=opened_at + 10)
    assert [batch.count for batch in queue.waiting] == [2, 1]
    assert [batch.count for batch, _ in queue.expire(10.0)] == [2]
    assert not queue.expire(17.0)
    assert len(queue.expire(18.0)) == 1
