"""A fetch goes through its states as its table says, and is answered once, whatever comes at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.dispatch import Context
from ottla.broker.handlers import fetch as handler
from ottla.broker.handlers.fetch import AT_ONCE, TRANSITIONS, Fetch, FetchState
from ottla.records.build import build_batch
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.opened_broker import OpenBroker, topic

MANY = AT_ONCE + 100


class Client:
    """What a request and its connection are to a fetch."""

    version = 12
    client_id = "test"
    listener = "PLAINTEXT"
    header = None

    def __init__(self) -> None:
        self.connection = self
        self.is_open = True
        self.holds = 0
        self.answers: list[FetchResponse] = []
        self._calls: dict[Callable[[], None], None] = {}

    def reply(self, response: FetchResponse) -> None:
        self.answers.append(response)

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1

    def call_when_closed(self, callback: Callable[[], None]) -> None:
        self._calls[callback] = None

    def forget_call(self, callback: Callable[[], None]) -> None:
        self._calls.pop(callback, None)

    def close(self, _reason: str = "") -> None:
        self.is_open = False
        for callback in list(self._calls):
            callback()


class Asked:
    """A fetch under way; where it is handled in steps, they are taken one by one."""

    def __init__(self, opened: OpenBroker, count: int, offset: int, made: list[Fetch]) -> None:
        self.client = Client()
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index in range(count)
        ]
        topics = [FetchTopic(topic=f"t{count}", partitions=wanted)]
        request = FetchRequest(max_wait_ms=1 << 30, min_bytes=1, topics=topics)
        answered = handler.handle(opened.broker, request, cast(Context, self.client))
        [self.fetch] = made
        self._steps = answered if isinstance(answered, GeneratorType) else None
        self._end(answered)

    def _end(self, answered: Any) -> None:
        if isinstance(answered, FetchResponse):
            self.client.reply(answered)

    def step(self) -> None:
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration as end:
                self._steps = None
                self._end(end.value)

    def close(self) -> None:
        self.client.close()
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    def finish_steps(self) -> None:
        while self._steps is not None:
            self.step()


class Table:
    """The transitions that were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: set[tuple[FetchState, FetchState]] = set()
        self.made: list[Fetch] = []
        become, begin = Fetch.become, Fetch.__init__

        def noted(fetch: Fetch, state: FetchState) -> None:
            self.seen.add((fetch.state, state))
            become(fetch, state)

        def begun(fetch: Fetch, *arguments: Any) -> None:
            begin(fetch, *arguments)
            self.made.append(fetch)

        monkeypatch.setattr(Fetch, "become", noted)
        monkeypatch.setattr(Fetch, "__init__", begun)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBroker]:
    opened = OpenBroker(tmp_path_factory.mktemp("data"))
    opened.create(topic("t1"), topic(f"t{MANY}", MANY))
    yield opened
    opened.stop()


def end_offset(opened: OpenBroker, count: int) -> int:
    partition = opened.broker.topics.partition(f"t{count}", 0)
    assert partition is not None
    return partition.log.end_offset


def write(opened: OpenBroker, count: int) -> None:
    """A record, and the end of the partition's part of the round: who waits for it is told."""
    partition = opened.broker.topics.partition(f"t{count}", 0)
    assert partition is not None
    partition.writer.produce(build_batch([b"news"], timestamp=1), 9, opened.broker.clock_ms(), 1)
    partition.end_round()


def is_waited_for(opened: OpenBroker, fetch: Fetch) -> bool:
    return any(fetch in each.readers.waiting for known in opened.broker.topics for each in known.partitions)


EVENTS = st.lists(st.sampled_from(["write", "time over", "close", "round", "step", "steps"]), max_size=8)


@given(st.sampled_from([1, MANY]), st.booleans(), EVENTS)
def test_it_is_answered_once_whatever_happens_at_the_same_time(
    opened: OpenBroker, count: int, has_records: bool, happens: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        table = Table(patched)
        if has_records:
            write(opened, count)
        asked = Asked(opened, count, end_offset(opened, count) - has_records, table.made)
        for event in happens:
            if event == "write":
                write(opened, count)
            elif event == "time over":
                asked.fetch.finish()  # also late: the timer may be due in the round in which it is answered
            elif event == "close":
                asked.close()
            elif event == "round":
                opened.loop.call_soon(lambda: None)
                opened.loop.run_once()
            elif event == "step":
                asked.step()
            else:
                asked.finish_steps()
        was_open = asked.client.is_open
        asked.finish_steps()
        if asked.fetch.state is FetchState.WAITING:
            write(opened, count)
        opened.loop.run_until(lambda: bool(asked.client.answers) or not was_open)
        assert len(asked.client.answers) == 1 or not was_open
        assert len(asked.client.answers) <= 1
        assert asked.client.holds == 0
        assert not is_waited_for(opened, asked.fetch)
        assert all(after in TRANSITIONS[before] for before, after in table.seen)


def test_every_transition_of_the_table_is_made(opened: OpenBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch)

    def asked(count: int) -> Asked:
        table.made.clear()
        return Asked(opened, count, end_offset(opened, count), table.made)

    woken = asked(1)
    write(opened, 1)
    opened.loop.run_until(lambda: bool(woken.client.answers))
    asked(1).close()
    asked(MANY).close()
    moved = asked(MANY)
    moved.step()
    write(opened, MANY)
    moved.step()
    moved.fetch.finish()
    moved.finish_steps()
    late = asked(MANY)
    late.step()
    late.step()
    late.fetch.finish()
    late.close()
    assert table.seen == {(before, after) for before, possible in TRANSITIONS.items() for after in possible}


def test_what_the_table_lacks_is_a_mistake(opened: OpenBroker) -> None:
    with pytest.MonkeyPatch.context() as patched:
        table = Table(patched)
        asked = Asked(opened, 1, end_offset(opened, 1), table.made)
        asked.close()
        with pytest.raises(AssertionError, match="ended cannot be waiting next"):
            asked.fetch.become(FetchState.WAITING)
