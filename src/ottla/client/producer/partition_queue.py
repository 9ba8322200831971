"""The batches of one partition on their way: in order, numbered, and through retries.

Several may be in flight at once. When one of them fails and is to be sent again, nothing more goes out until
all of them are answered; then those that were not written go first, under the numbers they had. So the broker
sees them in order, and knows those again that it has. No I/O, no clock: the sender says what happened when.
"""

from __future__ import annotations

from collections import deque

from ottla.client.errors import ClientError, DeliveryTimedOut, ServerError, describe_place
from ottla.client.producer.batch import ANONYMOUS, Batch, Identity
from ottla.client.producer.chunk import Chunk, Indexes
from ottla.client.producer.delivery import Outcome
from ottla.records.batch import NO_SEQUENCE, add_to_sequence
from ottla.wire.errors import ErrorCode

HIGHEST_EPOCH = 32767
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_OUT_OF_STEP = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


def error_code(error: ClientError | None) -> int:
    return error.code if isinstance(error, ServerError) else 0


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
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.returned: list[Batch] = []
        """Answered, and to be sent again once nothing is in flight any more."""
        self.resting_until = 0.0
        self.failures = 0
        """In a row."""
        self._renumbers = renumbers

    def add(self, chunk: Chunk, indexes: Indexes, size_bytes: int, limit_bytes: int, deadline: float) -> None:
        """Behind all others: into the last batch where there is room, else into one of their own."""
        last = self.waiting[-1] if self.waiting else None
        if last is None or last.is_sealed or last.size_bytes + size_bytes > limit_bytes:
            last = Batch(self, deadline)
            self.waiting.append(last)
        last.add(chunk, indexes, size_bytes)

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.in_flight and not self.returned

    def may_send(self, now: float) -> bool:
        if not self.waiting or self.returned or self.resting_until > now:
            return False
        return self.is_known or not self.in_flight or self.identity == ANONYMOUS

    def take(self) -> Batch:
        """The next batch, numbered, which is in flight from now on."""
        batch = self.waiting.popleft()
        if batch.sequence == NO_SEQUENCE and self.identity != ANONYMOUS:
            batch.number(self.identity, self.next_sequence)
            self.next_sequence = add_to_sequence(self.next_sequence, batch.count)
        self.in_flight.append(batch)
        return batch

    def answered(self, batch: Batch, outcome: Outcome, now: float) -> list[tuple[Batch, Outcome]]:
        """The batches that are decided by an answer."""
        self.in_flight.remove(batch)
        error = outcome.error
        decided: list[tuple[Batch, Outcome]] = []
        code = error_code(error)
        if error is None or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self.failures = 0
            self.is_known = self.is_known or batch.identity == self.identity
            decided.append((batch, outcome._replace(error=None)))
        elif code in _TOO_LARGE and batch.count > 1:
            self.returned += self._split(batch)
        elif error.is_retriable or self._can_get_into_step(batch, code):
            batch.trouble = error
            self.returned.append(batch)
        else:
            decided.append((batch, outcome))
        if self.returned and not self.in_flight:
            decided += self._line_up(now)
        return decided

    def _can_get_into_step(self, batch: Batch, code: int) -> bool:
        """Under another number; or under its own, if it only came before an older one that is still to be written."""
        if code not in _OUT_OF_STEP or self.identity == ANONYMOUS:
            return False
        return self._renumbers or any(_is_before(other, batch) for other in (*self.in_flight, *self.returned))

    def _split(self, batch: Batch) -> tuple[Batch, Batch]:
        """The halves have together the numbers that the batch had."""
        first, second = batch.halves()
        if batch.sequence != NO_SEQUENCE:
            first.number(batch.identity, batch.sequence)
            second.number(batch.identity, add_to_sequence(batch.sequence, first.count))
        return first, second

    def _line_up(self, now: float) -> list[tuple[Batch, Outcome]]:
        """What came back goes to the front, the oldest first; what came back too late is given up."""
        start = self._oldest_sequence()
        # By how far each is from the oldest, for sequences start again at 0; those without one as they came back.
        back = sorted(self.returned, key=lambda batch: (batch.sequence - start) & 0x7FFFFFFF if start >= 0 else 0)
        self.returned = []
        if self._renumbers and error_code(back[0].trouble) in _OUT_OF_STEP:
            # The broker has not what comes before it, and will not get it: the numbers start anew.
            self._renumber([*back, *self.waiting])
        self.waiting.extendleft(reversed(back))
        return self.expire(now)

    def _oldest_sequence(self) -> int:
        """Those in flight span far less than half of all numbers."""
        sequences = [batch.sequence for batch in self.returned]
        if NO_SEQUENCE in sequences:
            return NO_SEQUENCE
        least, most = min(sequences), max(sequences)
        return least if most - least < 1 << 30 else min(one for one in sequences if one >= 1 << 30)

    def _renumber(self, batches: list[Batch]) -> None:
        if self.identity.epoch == HIGHEST_EPOCH:
            raise OverflowError("the epochs of the producer are used up")
        self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
        self.next_sequence = 0
        self.is_known = False
        for batch in batches:
            batch.number(ANONYMOUS, NO_SEQUENCE)

    def expire(self, now: float) -> list[tuple[Batch, Outcome]]:
        """Batches whose time is over, the oldest first, with the reason why they were not written."""
        decided = []
        while self.waiting and self.waiting[0].deadline <= now:
            batch = self.waiting.popleft()
            decided.append((batch, Outcome(error=batch.trouble or self._timed_out())))
        return decided

    def _timed_out(self) -> DeliveryTimedOut:
        where = describe_place(self.topic, self.index)
        return DeliveryTimedOut(
            f"{where}: not acknowledged within the delivery timeout", topic=self.topic, partition=self.index
        )

    def drop(self) -> list[Batch]:
        """All that waits. What is in flight will be answered."""
        dropped = [*self.waiting]
        self.waiting.clear()
        return dropped

    def restart(self, identity: Identity) -> None:
        """Another identity for all that is to come: nothing is on its way."""
        assert self.is_idle
        self.identity = identity
        self.next_sequence = 0
        self.is_known = False


def _is_before(one: Batch, other: Batch) -> bool:
    """By their numbers, which start again at 0."""
    return one.identity == other.identity and 0 < (other.sequence - one.sequence) & 0x7FFFFFFF < 1 << 30
