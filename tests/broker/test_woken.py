"""Thousands of fetches that one record wakes are answered some a round, in their order, and others in between."""

from __future__ import annotations

from pathlib import Path

from ottla.broker.loop.loop import Loop
from ottla.broker.loop.system import LinuxSystem
from ottla.broker.woken import Woken
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.sim.simulated_broker import FETCH_VERSION, SimulatedBroker, fetch_request, fetched_values


class Clock(LinuxSystem):
    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.now = lambda: self.seconds


class Fetch:
    """Takes two milliseconds."""

    def __init__(self, number: int, clock: Clock, answered: list[int]) -> None:
        self._number = number
        self._clock = clock
        self._answered = answered

    def finish(self) -> None:
        self._clock.seconds += 0.002
        self._answered.append(self._number)


def test_a_round_is_short_however_many_are_woken() -> None:
    clock, answered = Clock(), list[int]()
    loop = Loop(clock)
    woken = Woken(loop)
    for number in range(5):
        woken.add(Fetch(number, clock, answered))
    seen = []
    for number in range(5, 9):
        loop.run_once()
        seen.append(len(answered))
        woken.add(Fetch(number, clock, answered))
    while loop.is_busy():
        loop.run_once()
    assert seen[0] == 3
    assert answered == list(range(9))
    assert loop.longest_round.ever < 0.0125  # once at the end of a round, and once at the beginning
    loop.close()


def test_one_that_fails_does_not_keep_the_others() -> None:
    clock, answered = Clock(), list[int]()
    loop = Loop(clock)
    woken = Woken(loop)
    bad = Fetch(0, clock, answered)
    bad.finish = None  # type: ignore[assignment, method-assign]
    for fetch in (bad, Fetch(1, clock, answered)):
        woken.add(fetch)
    loop.run_once()
    loop.run_once()
    woken.add(Fetch(2, clock, answered))
    loop.run_once()
    assert answered == [1, 2]
    loop.close()


def test_all_who_wait_for_a_partition_are_answered(tmp_path: Path) -> None:
    broker = SimulatedBroker(tmp_path)
    broker.create("t")
    clients = [broker.client() for _ in range(30)]
    numbers = [client.send(fetch_request("t", 0, wait_ms=30_000), FETCH_VERSION) for client in clients]
    broker.advance(0.1)
    leaving = clients.pop()
    broker.produce(broker.client(), "t", b"news")
    leaving.close()
    for client, number in zip(clients, numbers, strict=False):
        assert fetched_values(client.answer(number).responses[0].partitions[0]) == [b"news"]
    assert broker.broker.metrics.failures == 0
    broker.stop()


def test_a_connection_waits_for_one_fetch_of_many_partitions_at_a_time(tmp_path: Path) -> None:
    """Each of them holds what it has asked for: a hundred of 5,000 partitions took 345 MB."""
    broker = SimulatedBroker(tmp_path)
    for count in (60, 600):
        topic = f"t{count}"
        broker.create(topic, count)
        client = broker.client()
        wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(count)]
        request = FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=wanted)])
        numbers = [client.send(request, FETCH_VERSION) for _ in range(3)]
        broker.advance(0.1)
        partition = broker.broker.topics.partition(topic, 0)
        assert partition is not None
        assert len(partition.readers.waiting) == 1
        broker.produce(broker.client(), topic, b"news")
        for number in numbers:
            assert fetched_values(client.answer(number).responses[0].partitions[0]) == [b"news"]
        numbers = [client.send(request, FETCH_VERSION) for _ in range(3)]
        client.close()
        broker.advance(0.1)
        assert not partition.readers.waiting
    assert broker.broker.metrics.failures == 0
    broker.stop()
