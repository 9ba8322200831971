"""The batches of one partition on their way: in order, numbered, and through retries.

Several may be in flight at once. When one of them fails and is to be sent again, nothing more goes out until all of
them are answered; then those that were not written go first. So the broker sees them in order, and knows those again
that it has.

A batch keeps its numbers as long as it may have been written. Numbers change in two cases only, both when nothing is
in flight:

- The batches before it were refused for good, and every attempt of it was answered with a refusal, too. Then the
  numbers of the refused are used again, under the same epoch.
- The broker says that the numbers of the first batch are not those that it expects. That batch is not in the log then,
  and neither is any behind it. All get a new epoch, under which nothing late of the old one is accepted.

No I/O, no clock: the sender says what happened when.
"""

from __future__ import annotations

from collections import deque

from ottla.client.errors import ClientError, DeliveryTimedOut, ServerError, describe_place
from ottla.client.producer.batch import ANONYMOUS, Batch, Identity
from ottla.client.producer.chunk import Chunk, Indexes
from ottla.client.producer.delivery import Outcome
from ottla.client.producer.verdict import Verdict, verdict_on
from ottla.records.batch import NO_SEQUENCE, add_to_sequence
from ottla.wire.errors import ErrorCode

HIGHEST_EPOCH = 32767
MOST_NUMBERED_IN_FLIGHT = 5
"""Brokers know again the last five batches of a producer."""
MOST_TIME_SHARED = 0.1
"""Of the time that a record has: so much older the first of its batch may be."""
Decided = list[tuple[Batch, Outcome]]


class PartitionQueue:
    """`identity` is whose numbers the batches have; ANONYMOUS: they have none."""

    def __init__(self, topic: str, index: int, identity: Identity, *, renumbers: bool = True) -> None:
        self.topic = topic
        self.index = index
        self.identity = identity
        self.next_sequence = 0
        self.is_known = False
        """Whether the broker has something under this identity. Before that it takes any number for the first, so
        only one batch may be in flight: the second could be written although the first was refused."""
        self.needs_identity = False
        """The epochs of the producer id are used up. Nothing goes out until `take_identity`."""
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.returned: list[Batch] = []
        """Answered, and to be sent again once nothing is in flight any more."""
        self.resting_until = 0.0
        self.failures = 0
        """In a row."""
        self._expected_sequence = 0
        """What the broker expects next, as far as its answers say."""
        self._is_unresolved = False
        """Whether a batch under this identity was given up that may have been written."""
        self._renumbers = renumbers

    def add(self, chunk: Chunk, indexes: Indexes, size_bytes: int, limit_bytes: int, deadline: float) -> None:
        """Behind all others: into the last batch where there is room, else into one of their own."""
        last = self.waiting[-1] if self.waiting else None
        # Who comes late is not given up with those who came long before: each has most of its time.
        latest = deadline - (deadline - chunk.opened_at) * MOST_TIME_SHARED
        if last is None or last.is_sealed or last.size_bytes + size_bytes > limit_bytes or last.deadline < latest:
            last = Batch(self, deadline)
            self.waiting.append(last)
        last.add(chunk, indexes, size_bytes)

    def add_copied(self, chunk: Chunk, deadline: float) -> None:
        """A whole batch, behind all others."""
        batch = Batch(self, deadline)
        batch.copy(chunk)
        self.waiting.append(batch)

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.in_flight and not self.returned

    @property
    def next_to_expire(self) -> Batch | None:
        """Of those in flight. Whose time is over already stays there until it is answered."""
        return next((batch for batch in self.in_flight if batch.outcome is None), None)

    def may_send(self, now: float) -> bool:
        if not self.waiting or self.returned or self.resting_until > now or self.needs_identity:
            return False
        if not self.in_flight or self.identity == ANONYMOUS:
            return True
        if not self.is_known or len(self.in_flight) >= MOST_NUMBERED_IN_FLIGHT:
            return False
        # So that it is known again, one that may be written is sent again alone.
        return not any(batch.may_be_written for batch in self.in_flight)

    def take(self) -> Batch:
        """The next batch, numbered, which is in flight from now on."""
        batch = self.waiting.popleft()
        if batch.sequence == NO_SEQUENCE and self.identity != ANONYMOUS:
            batch.number(self.identity, self.next_sequence)
            self.next_sequence = add_to_sequence(self.next_sequence, batch.count)
        self.in_flight.append(batch)
        return batch

    # Answers

    def answered(self, batch: Batch, outcome: Outcome, now: float) -> Decided:
        """The batches that are decided by an answer."""
        self.in_flight.remove(batch)
        verdict = self._verdict(batch, outcome)
        if verdict is Verdict.WRITTEN:
            self._count_in(batch)
            outcome = outcome._replace(error=None)
        elif verdict in (Verdict.UNCERTAIN, Verdict.GIVEN_UP):
            batch.may_be_written = True
        decided: Decided = []
        if batch.outcome is not None:  # its time was over while it was in flight
            self._give_up(batch, verdict)
        elif verdict in (Verdict.WRITTEN, Verdict.REFUSED, Verdict.GIVEN_UP):
            self._give_up(batch, verdict)
            decided += self._refuse(batch, outcome) if verdict is Verdict.REFUSED else [(batch, outcome)]
        elif verdict is Verdict.TOO_LARGE:
            self.returned += self._halves(batch)
        else:
            batch.trouble = outcome.error
            self.returned.append(batch)
        if not self.in_flight:
            decided += self._line_up(now)
        return decided

    def _verdict(self, batch: Batch, outcome: Outcome) -> Verdict:
        verdict = verdict_on(outcome.error)
        if verdict is Verdict.TOO_LARGE and not _may_be_cut(batch):
            return Verdict.REFUSED
        if verdict is Verdict.REFUSED and not isinstance(outcome.error, ServerError) and _may_be_cut(batch):
            return Verdict.TOO_LARGE  # one of its records cannot be encoded: the others can without it
        if verdict is Verdict.OUT_OF_STEP:
            return self._out_of_step(batch, outcome.error)
        return verdict

    def _out_of_step(self, batch: Batch, error: ClientError | None) -> Verdict:
        """Under other numbers; or under its own, if it only came before an older one that is still to be written."""
        if self.identity == ANONYMOUS:
            return Verdict.REFUSED
        if batch.may_be_written and not batch.whole_may_be_written and self._is_followed(batch):
            return Verdict.WRITTEN
        if any(_is_before(other, batch) for other in (*self.in_flight, *self.returned)):
            return Verdict.OUT_OF_STEP
        if not self._renumbers:
            return Verdict.REFUSED
        is_forgotten = isinstance(error, ServerError) and error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if batch.whole_may_be_written or (batch.may_be_written and is_forgotten):
            # The broker has the whole under these numbers, or does not know the producer any more: that proves nothing.
            return Verdict.GIVEN_UP
        return Verdict.OUT_OF_STEP

    def _is_followed(self, batch: Batch) -> bool:
        """Whether one behind it was written: brokers take numbers in order, so it was written, too."""
        end = add_to_sequence(batch.sequence, batch.count)
        return batch.identity == self.identity and (self._expected_sequence - end) & 0x7FFFFFFF < 1 << 30

    def _count_in(self, batch: Batch) -> None:
        self.failures = 0
        if batch.identity == self.identity and batch.sequence != NO_SEQUENCE:
            self.is_known = True
            end = add_to_sequence(batch.sequence, batch.count)
            if (end - self._expected_sequence) & 0x7FFFFFFF < 1 << 30:
                self._expected_sequence = end

    def _give_up(self, batch: Batch, verdict: Verdict) -> None:
        """A batch that will not be sent again. If nobody knows whether it was written, no number is used twice."""
        if verdict is not Verdict.WRITTEN and batch.may_be_written and batch.identity == self.identity:
            self._is_unresolved = True

    def _refuse(self, batch: Batch, outcome: Outcome) -> Decided:
        """The records that were the reason are refused; the others go on without them."""
        bad = [position for position in outcome.record_errors if 0 <= position < batch.count]
        if not bad or len(bad) == batch.count or batch.may_be_written or not self._renumbers or not batch.is_readable:
            return [(batch, outcome)]
        refused, others = batch.without(bad)
        others.number(batch.identity, batch.sequence)
        self.returned.append(others)
        errors = {place: outcome.record_errors[position] for place, position in enumerate(sorted(bad))}
        return [(refused, outcome._replace(record_errors=errors))]

    def _halves(self, batch: Batch) -> tuple[Batch, Batch]:
        """The halves have together the numbers that the batch had. If an attempt of it was written, when the limit was
        another, they are out of step with it."""
        first, second = batch.halves()
        if batch.sequence != NO_SEQUENCE:
            first.number(batch.identity, batch.sequence)
            second.number(batch.identity, add_to_sequence(batch.sequence, first.count))
        for half in (first, second):
            half.may_be_written = half.whole_may_be_written = batch.may_be_written
        return first, second

    # Nothing is in flight

    def _line_up(self, now: float) -> Decided:
        """What came back goes to the front, the oldest first; what came back too late is given up."""
        back = self._oldest_first()
        self.returned = []
        self.waiting.extendleft(reversed(back))
        decided = self.expire(now)
        if self._renumbers and self.identity != ANONYMOUS:
            self._renumber()
        return decided

    def _oldest_first(self) -> list[Batch]:
        """By how far each is from the oldest, for sequences start again at 0; those without one as they came back."""
        sequences = [batch.sequence for batch in self.returned]
        if not sequences or NO_SEQUENCE in sequences:
            return self.returned
        least, most = min(sequences), max(sequences)
        # Those in flight span far less than half of all numbers.
        start = least if most - least < 1 << 30 else min(one for one in sequences if one >= 1 << 30)
        return sorted(self.returned, key=lambda batch: (batch.sequence - start) & 0x7FFFFFFF)

    def _renumber(self) -> None:
        numbered = [batch for batch in self.waiting if batch.sequence != NO_SEQUENCE]
        is_certain = not self._is_unresolved and not any(batch.may_be_written for batch in numbered)
        is_refused = bool(numbered) and _is_out_of_step(numbered[0])
        if is_certain and not (is_refused and numbered[0].sequence == self._expected_sequence):
            # What is not in the log has its numbers for nothing: they follow what is there.
            self.next_sequence = self._expected_sequence
            for batch in numbered:
                if batch.sequence != self.next_sequence:
                    batch.number(self.identity, self.next_sequence)
                batch.trouble = None if _is_out_of_step(batch) else batch.trouble
                self.next_sequence = add_to_sequence(self.next_sequence, batch.count)
        elif is_refused:
            self._start_anew(numbered)

    def _start_anew(self, numbered: list[Batch]) -> None:
        """The broker has not what comes before the first, and will not get it."""
        for batch in numbered:
            batch.number(ANONYMOUS, NO_SEQUENCE)
            batch.may_be_written = batch.whole_may_be_written = False
            batch.trouble = None
        if self.identity.epoch == HIGHEST_EPOCH:
            self.needs_identity = True
        else:
            self.take_identity(self.identity._replace(epoch=self.identity.epoch + 1))

    def take_identity(self, identity: Identity) -> None:
        """For all that is not numbered. Nothing is in flight."""
        self.identity = identity
        self.next_sequence = self._expected_sequence = 0
        self.is_known = self.needs_identity = self._is_unresolved = False

    # The end

    def expire(self, now: float) -> Decided:
        """Batches whose time is over, the oldest first, with the reason why they were not written.

        Those in flight are decided, too. Their answers still matter for the numbers of the others.
        """
        decided: Decided = []
        for batch in self.in_flight:
            if batch.deadline <= now and batch.outcome is None:
                decided.append((batch, Outcome(error=self._timed_out(batch))))
        while self.waiting and self.waiting[0].deadline <= now:
            batch = self.waiting.popleft()
            self._give_up(batch, Verdict.REFUSED)
            self.failures = 0  # they were its own: the next one has a time of its own, which may be short
            decided.append((batch, Outcome(error=self._timed_out(batch))))
        return decided

    def _timed_out(self, batch: Batch) -> ClientError:
        """What the last attempt ended with, if it has ended."""
        if batch.trouble is not None and batch not in self.in_flight:
            return batch.trouble
        where = describe_place(self.topic, self.index)
        return DeliveryTimedOut(
            f"{where}: not acknowledged within the delivery timeout", topic=self.topic, partition=self.index
        )

    def drop(self) -> list[Batch]:
        """All that waits. What is in flight will be answered, and not be sent again."""
        dropped = [*self.returned, *self.waiting]
        for batch in dropped:
            self._give_up(batch, Verdict.REFUSED)
        self.waiting.clear()
        self.returned.clear()
        return dropped

    def restart(self, identity: Identity) -> None:
        """Another identity for all that is to come: nothing is on its way."""
        assert self.is_idle
        self.take_identity(identity)


def _may_be_cut(batch: Batch) -> bool:
    return batch.count > 1 and batch.is_readable


def _is_before(one: Batch, other: Batch) -> bool:
    """By their numbers, which start again at 0."""
    return one.identity == other.identity and 0 < (other.sequence - one.sequence) & 0x7FFFFFFF < 1 << 30


def _is_out_of_step(batch: Batch) -> bool:
    return batch.trouble is not None and verdict_on(batch.trouble) is Verdict.OUT_OF_STEP
