"""Finds in a history what must not happen. A pure function: the same history, the same findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from tests.checker.evidence import Evidence, Stretch, Transaction
from tests.checker.history import Event, Isolation, Place, Polled, SendInvoked

DELETE_RETENTION_MS = 2_000
"""Of the compacted topics."""


class Kind(StrEnum):
    LOST_WRITE = "an acknowledged write is gone"
    DUPLICATE = "one write is there twice"
    ABORTED_READ = "a reader of committed records was given one that was never committed"
    INCONSISTENT_OFFSET = "one offset has two values"
    SKIPPED_POLL = "a reader was not given what others were"
    BACKWARD_POLL = "a reader was given again what it had passed"
    TORN_TRANSACTION = "a part of a committed transaction is missing"
    READ_BEFORE_COMMIT = "a reader of committed records was given one before its commit"
    OUT_OF_ORDER = "the writes of one producer are not in its order"
    LOST_COMMIT = "a group's committed offset went back"
    UNSENT_READ = "a reader was given what nobody sent"
    RESURRECTED_KEY = "a key that was deleted is there again"
    REPLICAS_DIFFER = "two replicas of a partition are not the same"


class Anomaly(NamedTuple):
    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


def find_anomalies(history: Sequence[Event]) -> list[Anomaly]:
    """Events must be in the order in which each process wrote them."""
    evidence = Evidence(history)
    finders = (
        _values_at_two_offsets,
        _offsets_with_two_values,
        _missing_in_polls,
        _behind_the_end,
        _nowhere,
        _backward_polls,
        _unsent_reads,
        _uncommitted_reads,
        _out_of_order,
        _sources_used_twice,
        _sources_lost,
        _lost_commits,
        _resurrected_keys,
    )
    return list(dict.fromkeys(anomaly for find in finders for anomaly in find(evidence)))


def _values_at_two_offsets(evidence: Evidence) -> Iterator[Anomaly]:
    found: defaultdict[str, set[tuple[Place, int]]] = defaultdict(set)
    for sighting in evidence.sightings():
        found[sighting.value].add((sighting.place, sighting.offset))
    for value, places in found.items():
        if len(places) > 1:
            yield Anomaly(Kind.DUPLICATE, f"{value} at {_listed(places)}")


def _offsets_with_two_values(evidence: Evidence) -> Iterator[Anomaly]:
    found: defaultdict[tuple[Place, int], set[str]] = defaultdict(set)
    for sighting in evidence.sightings():
        found[sighting.place, sighting.offset].add(sighting.value)
    for (place, offset), values in found.items():
        if len(values) > 1:
            yield Anomaly(Kind.INCONSISTENT_OFFSET, f"{_named(place)} offset {offset} has {_listed(values)}")


def _missing_in_polls(evidence: Evidence) -> Iterator[Anomaly]:
    """What is known to be in the log, and was not given to a reader that went over it."""
    for stretch in evidence.stretches:
        log, given = evidence.logs[stretch.poll.place], dict(stretch.poll.records)
        for offset in stretch.offsets:
            value = log.get(offset)
            if value is None or offset in given or evidence.may_be_compacted_away(value):
                continue
            if evidence.is_visible(value, stretch.poll.isolation):
                where = f"{value} at {_named(stretch.poll.place)} offset {offset}"
                yield Anomaly(*_named_by_what_others_saw(evidence, stretch, value, where))


def _named_by_what_others_saw(evidence: Evidence, stretch: Stretch, value: str, where: str) -> tuple[Kind, str]:
    skipped = Kind.SKIPPED_POLL, f"{where} by {stretch.poll.process}"
    transaction = evidence.transaction_of(value)
    if stretch.poll.isolation is Isolation.UNCOMMITTED or transaction is None:
        return skipped if value in evidence.seen else (Kind.LOST_WRITE, where)
    if value in evidence.seen_committed:
        return skipped
    if any(sent.value in evidence.seen_committed for sent in transaction.sends):
        return Kind.TORN_TRANSACTION, f"{where} of {_name_of(transaction)}"
    return Kind.LOST_WRITE, where


def _behind_the_end(evidence: Evidence) -> Iterator[Anomaly]:
    """A log that was cut has an end before what it acknowledged."""
    for end in evidence.ends:
        for value, ended in evidence.acknowledged.items():
            sent = evidence.sends.get(value)
            if sent and sent.place == end.place and ended.at_ns < end.at_ns and ended.offset >= end.offset:
                where = f"{value} at {_named(end.place)} offset {ended.offset}"
                yield Anomaly(Kind.LOST_WRITE, f"{where}, where the log ends at {end.offset}")


def _nowhere(evidence: Evidence) -> Iterator[Anomaly]:
    """What was acknowledged without an offset, and was not given to readers that went over the whole log since."""
    for value, ended in evidence.acknowledged.items():
        if ended.offset >= 0 or value in evidence.seen or evidence.may_be_compacted_away(value):
            continue
        place = evidence.sends[value].place
        ends = [end.offset for end in evidence.ends if end.place == place and end.at_ns > ended.at_ns]
        if ends and _is_read_whole(evidence, value, place, min(ends)):
            yield Anomaly(Kind.LOST_WRITE, f"{value} in {_named(place)}, which was read from 0 to {min(ends)}")


def _is_read_whole(evidence: Evidence, value: str, place: Place, end: int) -> bool:
    since_ns = evidence.acknowledged[value].at_ns
    reached = 0
    for stretch in sorted(evidence.stretches, key=lambda each: each.start):
        poll = stretch.poll
        is_later = poll.place == place and stretch.since_ns > since_ns
        if is_later and stretch.start <= reached and evidence.is_visible(value, poll.isolation):
            reached = max(reached, poll.next_offset)
    return reached >= end


def _backward_polls(evidence: Evidence) -> Iterator[Anomaly]:
    for poll, position in evidence.backward:
        offsets = [offset for offset, _value in poll.records]
        what = f"{poll.process} at {position} in {_named(poll.place)} was given {offsets}"
        yield Anomaly(Kind.BACKWARD_POLL, what)


def _unsent_reads(evidence: Evidence) -> Iterator[Anomaly]:
    for value in sorted(evidence.seen - evidence.sends.keys()):
        yield Anomaly(Kind.UNSENT_READ, value)


def _uncommitted_reads(evidence: Evidence) -> Iterator[Anomaly]:
    for poll in (stretch.poll for stretch in evidence.stretches):
        if poll.isolation is Isolation.COMMITTED:
            yield from _uncommitted_in(evidence, poll)


def _uncommitted_in(evidence: Evidence, poll: Polled) -> Iterator[Anomaly]:
    for offset, value in poll.records:
        transaction = evidence.transaction_of(value)
        if transaction is None:
            continue
        where = f"{value} of {_name_of(transaction)} at {_named(poll.place)} offset {offset} by {poll.process}"
        if not evidence.may_be_committed(transaction):
            yield Anomaly(Kind.ABORTED_READ, where)
        elif transaction.commit_invoked_ns is not None and poll.at_ns < transaction.commit_invoked_ns:
            yield Anomaly(Kind.READ_BEFORE_COMMIT, where)


def _out_of_order(evidence: Evidence) -> Iterator[Anomaly]:
    offsets = {sighting.value: sighting.offset for sighting in evidence.sightings()}
    last: dict[tuple[str, Place], tuple[int, str]] = {}
    for value, sent in evidence.sends.items():
        if value not in offsets:
            continue
        writer = sent.process, sent.place
        before_offset, before = last.get(writer, (-1, ""))
        if offsets[value] < before_offset:
            what = f"{value} at {offsets[value]} in {_named(sent.place)} was sent after {before} at {before_offset}"
            yield Anomaly(Kind.OUT_OF_ORDER, what)
        last[writer] = max((before_offset, before), (offsets[value], value))


def _sources_used_twice(evidence: Evidence) -> Iterator[Anomaly]:
    uses: Counter[str] = Counter()
    for transaction in evidence.transactions.values():
        if evidence.is_committed(transaction):
            uses.update({sent.source for sent in transaction.sends if sent.source is not None})
    for source, count in uses.items():
        if count > 1:
            yield Anomaly(Kind.DUPLICATE, f"what was made from {source} was committed {count} times")


def _sources_lost(evidence: Evidence) -> Iterator[Anomaly]:
    """A group that has committed an offset has committed something for each value before it."""
    used = {
        sent.source
        for transaction in evidence.transactions.values()
        if evidence.may_be_committed(transaction)
        for sent in transaction.sends
    }
    passed: dict[Place, int] = {}
    for transaction in evidence.transactions.values():
        if evidence.is_committed(transaction):
            for committed in transaction.offsets:
                passed[committed.place] = max(committed.offset, passed.get(committed.place, 0))
    for place, end in passed.items():
        for offset, value in evidence.logs[place].items():
            if offset < end and value not in used and evidence.is_visible(value, Isolation.COMMITTED):
                what = f"{value} at {_named(place)} offset {offset}: the group is at {end}, nothing was made from it"
                yield Anomaly(Kind.LOST_WRITE, what)


def _lost_commits(evidence: Evidence) -> Iterator[Anomaly]:
    committed = [(event.group, event.place, event.offset, event.at_ns) for event in evidence.commits]
    for transaction in evidence.transactions.values():
        if transaction.commit_ok_ns is not None:
            at_ns = transaction.commit_ok_ns
            committed += [(event.group, event.place, event.offset, at_ns) for event in transaction.offsets]
    for assigned in evidence.assigned:
        before = [
            offset
            for group, place, offset, at_ns in committed
            if (group, place) == (assigned.group, assigned.place) and at_ns < assigned.at_ns
        ]
        if before and assigned.offset < max(before):
            what = f"{assigned.group} at {_named(assigned.place)} from {max(before)} to {assigned.offset}"
            yield Anomaly(Kind.LOST_COMMIT, what)


def _resurrected_keys(evidence: Evidence) -> Iterator[Anomaly]:
    """Who reads from the start and is given a value of a key must be given the deletion that came later.

    Kafka promises no more than this: not if the key was written again, for compaction may come by between two fetches,
    and not if reading takes longer than deletions are kept, as with a quota.
    """
    for stretch in evidence.stretches:
        if stretch.start == 0 and stretch.duration_ns < DELETE_RETENTION_MS * 1_000_000:
            given = {value for _offset, value in stretch.poll.records}
            for key, values in evidence.by_key.items():
                yield from _resurrected(evidence, stretch, key, values, given)


def _resurrected(
    evidence: Evidence, stretch: Stretch, key: str, values: list[str], given: set[str]
) -> Iterator[Anomaly]:
    older: str | None = None
    for value in values:
        sent, ended = evidence.sends[value], evidence.acknowledged.get(value)
        if sent.place != stretch.poll.place:
            return
        if value in given:
            older = value
        transaction = evidence.transaction_of(value)
        is_deleted = sent.is_tombstone and (transaction is None or transaction.commit_ok_ns is not None)
        is_passed = ended is not None and ended.offset in stretch.offsets
        if is_deleted and is_passed and older not in (None, value) and not evidence.may_be_superseded(sent):
            what = f"{key} in {_named(sent.place)}: {older} is there, its deletion is not"
            yield Anomaly(Kind.RESURRECTED_KEY, f"{what} (read in {stretch.duration_ns / 1e9:.3f} s)")


def _name_of(transaction: Transaction) -> str:
    sent: SendInvoked = transaction.sends[0]
    return str(sent.transaction)


def _named(place: Place) -> str:
    return f"{place.topic}-{place.partition}"


def _listed(things: set[str] | set[tuple[Place, int]]) -> str:
    return ", ".join(sorted(thing if isinstance(thing, str) else f"{_named(thing[0])} {thing[1]}" for thing in things))
