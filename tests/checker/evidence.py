"""What a history proves: where each value is, what was read, and which transactions took place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.checker.history import (
    Assigned,
    EndSeen,
    Event,
    Isolation,
    OffsetCommitted,
    Outcome,
    Place,
    Polled,
    Positioned,
    Revoked,
    SendEnded,
    SendInvoked,
    Step,
    TransactionStep,
)


class Sighting(NamedTuple):
    """A value at an offset, as an acknowledgement or a reader told it."""

    place: Place
    offset: int
    value: str


class Stretch(NamedTuple):
    """Offsets that a reader went over in one poll, and what it was given of them."""

    poll: Polled
    start: int
    since_ns: int
    """When its reader came to `start`."""

    @property
    def duration_ns(self) -> int:
        return self.poll.at_ns - self.since_ns

    @property
    def offsets(self) -> range:
        return range(self.start, self.poll.next_offset)


@dataclass(slots=True)
class Transaction:
    sends: list[SendInvoked] = field(default_factory=list)
    commit_invoked_ns: int | None = None
    commit_ok_ns: int | None = None
    is_aborted: bool = False
    offsets: list[OffsetCommitted] = field(default_factory=list)


class Evidence:
    def __init__(self, history: Sequence[Event]) -> None:
        self.sends: dict[str, SendInvoked] = {}
        self.by_key: defaultdict[str, list[str]] = defaultdict(list)
        """The values of each key in the order in which its one writer sent them."""
        self.acknowledged: dict[str, SendEnded] = {}
        self.transactions: defaultdict[str, Transaction] = defaultdict(Transaction)
        self.stretches: list[Stretch] = []
        self.backward: list[tuple[Polled, int]] = []
        """Polls that went behind the position where their reader was."""
        self.seen_committed: set[str] = set()
        self.seen: set[str] = set()
        self.assigned: list[Assigned] = []
        self.commits: list[OffsetCommitted] = []
        """Those outside of transactions that were acknowledged."""
        self.ends: list[EndSeen] = []
        self._positions: dict[tuple[str, Place], tuple[int, int]] = {}
        """Where each reader is, and since when."""
        for event in history:
            self._add(event)
        self.logs: defaultdict[Place, dict[int, str]] = defaultdict(dict)
        for sighting in self.sightings():
            self.logs[sighting.place].setdefault(sighting.offset, sighting.value)

    def sightings(self) -> Iterator[Sighting]:
        for value, ended in self.acknowledged.items():
            if value in self.sends and ended.offset >= 0:
                yield Sighting(self.sends[value].place, ended.offset, value)
        for poll in (stretch.poll for stretch in self.stretches):
            for offset, value in poll.records:
                yield Sighting(poll.place, offset, value)

    def transaction_of(self, value: str) -> Transaction | None:
        sent = self.sends.get(value)
        return None if sent is None or sent.transaction is None else self.transactions[sent.transaction]

    def is_committed(self, transaction: Transaction) -> bool:
        """A commit without an answer took place if a reader of what is committed was given some of it."""
        if transaction.commit_ok_ns is not None:
            return True
        if transaction.is_aborted or transaction.commit_invoked_ns is None:
            return False
        return any(sent.value in self.seen_committed for sent in transaction.sends)

    def may_be_committed(self, transaction: Transaction) -> bool:
        return transaction.commit_invoked_ns is not None and not transaction.is_aborted

    def is_visible(self, value: str, isolation: Isolation) -> bool:
        """Whether a reader that goes over the value must be given it."""
        transaction = self.transaction_of(value)
        return isolation is Isolation.UNCOMMITTED or transaction is None or self.is_committed(transaction)

    def may_be_compacted_away(self, value: str) -> bool:
        """Whether compaction may have removed it: deletions, what may have been aborted, and what has a successor."""
        sent = self.sends.get(value)
        if sent is None or sent.key is None:
            return False
        transaction = self.transaction_of(value)
        if sent.is_tombstone or (transaction is not None and not self.is_committed(transaction)):
            return True
        return self.may_be_superseded(sent)

    def may_be_superseded(self, sent: SendInvoked) -> bool:
        """Whether its key may have a later value: then compaction needs it no longer, not even for a while."""
        values = self.by_key[str(sent.key)]
        return any(self._may_count(other) for other in values[values.index(sent.value) + 1 :])

    def _may_count(self, value: str) -> bool:
        transaction = self.transaction_of(value)
        return transaction is None or self.may_be_committed(transaction)

    def _add(self, event: Event) -> None:
        match event:
            case SendInvoked():
                self.sends[event.value] = event
                if event.key is not None:
                    self.by_key[event.key].append(event.value)
                if event.transaction is not None:
                    self.transactions[event.transaction].sends.append(event)
            case SendEnded(outcome=Outcome.OK):
                self.acknowledged[event.value] = event
            case Polled():
                self._add_poll(event)
            case Positioned():
                self._positions[event.process, event.place] = event.offset, event.at_ns
            case Assigned():
                self._positions[event.process, event.place] = event.offset, event.at_ns
                self.assigned.append(event)
            case Revoked():
                self._positions.pop((event.process, event.place), None)
            case TransactionStep():
                _add_step(self.transactions[event.transaction], event)
            case OffsetCommitted():
                self._add_commit(event)
            case EndSeen():
                self.ends.append(event)

    def _add_poll(self, poll: Polled) -> None:
        first = poll.records[0][0] if poll.records else poll.next_offset
        start, since_ns = self._positions.get((poll.process, poll.place), (first, poll.at_ns))
        offsets = [offset for offset, _value in poll.records]
        if first < start or offsets != sorted(set(offsets)):
            self.backward.append((poll, start))
        self.stretches.append(Stretch(poll, start, since_ns))
        self._positions[poll.process, poll.place] = poll.next_offset, poll.at_ns
        values = {value for _offset, value in poll.records}
        self.seen |= values
        if poll.isolation is Isolation.COMMITTED:
            self.seen_committed |= values

    def _add_commit(self, event: OffsetCommitted) -> None:
        if event.transaction is not None:
            if event.outcome is not Outcome.FAILED:
                self.transactions[event.transaction].offsets.append(event)
        elif event.outcome is Outcome.OK:
            self.commits.append(event)


def _add_step(transaction: Transaction, event: TransactionStep) -> None:
    match event.step, event.outcome:
        case Step.COMMIT, Outcome.INVOKED:
            transaction.commit_invoked_ns = event.at_ns
        case Step.COMMIT, Outcome.OK:
            transaction.commit_ok_ns = event.at_ns
        case (Step.COMMIT, Outcome.FAILED) | (Step.ABORT, Outcome.OK):
            transaction.is_aborted = True
