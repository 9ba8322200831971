"""Ways to spoil a clean history. Each takes one that has room for its anomaly, or says that it has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from tests.checker.check import Kind
from tests.checker.evidence import Evidence
from tests.checker.history import Event, Isolation, Outcome, Polled, SendEnded, SendInvoked, Step, TransactionStep


class NoRoom(Exception):
    """The history has nothing that could be spoiled so."""


Injection = Callable[[Sequence[Event], st.DrawFn], list[Event]]


def _one_of(draw: st.DrawFn, choices: Sequence[str]) -> str:
    if not choices:
        raise NoRoom
    return draw(st.sampled_from(choices))


def _without(event: Event, value: str, isolation: Isolation | None = None) -> Event:
    if not isinstance(event, Polled) or isolation not in (None, event.isolation):
        return event
    return replace(event, records=tuple(record for record in event.records if record[1] != value))


def lose_a_write(history: Sequence[Event], draw: st.DrawFn) -> list[Event]:
    """Nobody is given it any more."""
    evidence = Evidence(history)
    value = _one_of(draw, sorted(evidence.acknowledged.keys() & evidence.seen))
    return [_without(event, value) for event in history]


def double_a_write(history: Sequence[Event], draw: st.DrawFn) -> list[Event]:
    """It is read once more behind the end."""
    evidence = Evidence(history)
    value = _one_of(draw, sorted(evidence.seen))
    last = max((event for event in history if isinstance(event, Polled)), key=lambda poll: poll.next_offset)
    again = replace(last, records=((last.next_offset, value),), next_offset=last.next_offset + 1)
    return [*history, again]


def show_what_was_aborted(history: Sequence[Event], draw: st.DrawFn) -> list[Event]:
    evidence = Evidence(history)
    aborted = [
        sent.value
        for transaction in evidence.transactions.values()
        if transaction.is_aborted
        for sent in transaction.sends
    ]
    value = _one_of(draw, aborted)
    return [*history, _read_of(evidence, value, Isolation.COMMITTED)]


def give_an_offset_two_values(history: Sequence[Event], draw: st.DrawFn) -> list[Event]:
    evidence = Evidence(history)
    value = _one_of(draw, sorted(evidence.seen))
    other = "v0"
    sent = replace(evidence.sends[value], value=other, process="another", transaction=None)
    read = _read_of(evidence, value, Isolation.UNCOMMITTED)
    return [sent, *history, replace(read, records=((read.records[0][0], other),))]


def skip_in_one_reader(history: Sequence[Event], draw: st.DrawFn) -> list[Event]:
    """One poll lacks a value that others of its isolation have."""
    given = [
        (index, event.isolation, value)
        for index, event in enumerate(history)
        if isinstance(event, Polled)
        for _offset, value in event.records
    ]
    times = Counter((isolation, value) for _index, isolation, value in given)
    common = [(index, value) for index, isolation, value in given if times[isolation, value] > 1]
    if not common:
        raise NoRoom
    index, value = draw(st.sampled_from(common))
    return [*history[:index], _without(history[index], value), *history[index + 1 :]]


def repeat_a_poll(history: Sequence[Event], draw: st.DrawFn) -> list[Event]:
    polls = [index for index, event in enumerate(history) if isinstance(event, Polled) and event.records]
    if not polls:
        raise NoRoom
    index = draw(st.sampled_from(polls))
    return [*history[: index + 1], history[index], *history[index + 1 :]]


def tear_a_transaction(history: Sequence[Event], draw: st.DrawFn) -> list[Event]:
    """One of its values is no longer given to readers of what is committed."""
    evidence = Evidence(history)
    whole = [
        sent.value
        for transaction in evidence.transactions.values()
        if len({sent.value for sent in transaction.sends} & evidence.seen_committed) > 1
        for sent in transaction.sends
    ]
    value = _one_of(draw, whole)
    return [_without(event, value, Isolation.COMMITTED) for event in history]


def read_before_the_commit(history: Sequence[Event], draw: st.DrawFn) -> list[Event]:
    evidence = Evidence(history)
    value = _one_of(draw, sorted(value for value in evidence.seen_committed if evidence.transaction_of(value)))
    name = evidence.sends[value].transaction
    commit = next(
        index
        for index, event in enumerate(history)
        if isinstance(event, TransactionStep)
        and (event.transaction, event.step, event.outcome) == (name, Step.COMMIT, Outcome.INVOKED)
    )
    return [*history[:commit], _read_of(evidence, value, Isolation.COMMITTED), *history[commit:]]


def change_the_order(history: Sequence[Event], draw: st.DrawFn) -> list[Event]:
    """Two writes of one producer change places in the log."""
    evidence = Evidence(history)
    sent = [event for event in history if isinstance(event, SendInvoked) and event.value in evidence.acknowledged]
    pairs = [
        (one.value, other.value)
        for number, one in enumerate(sent)
        for other in sent[number + 1 :]
        if (one.process, one.place) == (other.process, other.place)
    ]
    if not pairs:
        raise NoRoom
    one, other = draw(st.sampled_from(pairs))
    swapped = {one: other, other: one}

    def swap(event: Event) -> Event:
        if isinstance(event, SendEnded) and event.value in swapped:
            return replace(event, offset=evidence.acknowledged[swapped[event.value]].offset)
        if isinstance(event, Polled):
            return replace(event, records=tuple((offset, swapped.get(value, value)) for offset, value in event.records))
        return event

    return list(map(swap, history))


def _read_of(evidence: Evidence, value: str, isolation: Isolation) -> Polled:
    """A reader who was not there before is given one value."""
    sighting = next(sighting for sighting in evidence.sightings() if sighting.value == value)
    return Polled(
        process="another",
        at_ns=0,
        place=sighting.place,
        isolation=isolation,
        records=((sighting.offset, value),),
        next_offset=sighting.offset + 1,
    )


INJECTIONS: dict[Kind, Injection] = {
    Kind.LOST_WRITE: lose_a_write,
    Kind.DUPLICATE: double_a_write,
    Kind.ABORTED_READ: show_what_was_aborted,
    Kind.INCONSISTENT_OFFSET: give_an_offset_two_values,
    Kind.SKIPPED_POLL: skip_in_one_reader,
    Kind.BACKWARD_POLL: repeat_a_poll,
    Kind.TORN_TRANSACTION: tear_a_transaction,
    Kind.READ_BEFORE_COMMIT: read_before_the_commit,
    Kind.OUT_OF_ORDER: change_the_order,
}


def in_time(history: Sequence[Event]) -> list[Event]:
    """Each event at the time of its place in the list."""
    return [replace(event, at_ns=at_ns) for at_ns, event in enumerate(history)]
