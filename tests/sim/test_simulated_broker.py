"""A whole broker on a simulated network and clock: what depends on time and on the order of events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.loop.loop import Loop
from ottla.broker.network.admission import Admission
from ottla.broker.network.server import Server
from ottla.broker.quotas.quotas import (
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    client_entity,
)
from ottla.records.build import build_batch
from ottla.testing.simulated_client import SimulatedClient
from ottla.testing.simulated_system import SimulatedSystem
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.uuids import ZERO_UUID
from tests.sim.simulated_broker import FETCH_VERSION, PRODUCE_VERSION, SimulatedBroker, fetch_request, fetched_values

Start = Callable[..., SimulatedBroker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[SimulatedBroker] = []

    def start(seed: int = 0, **settings: Any) -> SimulatedBroker:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(SimulatedBroker(folder, seed, **settings))
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


def partition_of(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize("seed", range(5))
def test_a_fetch_without_data_is_answered_when_its_time_is_over(start: Start, seed: int) -> None:
    broker = start(seed)
    broker.create("t")
    client = broker.client()
    asked_at = broker.system.now()
    answer = client.ask(fetch_request("t", 0, wait_ms=30_000), FETCH_VERSION)
    assert broker.system.now() - asked_at == pytest.approx(30)
    assert fetched_values(partition_of(answer)) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_fetch_that_waits_is_answered_with_what_comes(start: Start, seed: int) -> None:
    broker = start(seed)
    broker.create("t")
    consumer, producer = broker.client(), broker.client()
    number = consumer.send(fetch_request("t", 0, wait_ms=30_000), FETCH_VERSION)
    broker.advance(7)
    assert number not in consumer.answers
    broker.produce(producer, "t", b"news")
    answer = consumer.answer(number)
    assert broker.system.now() == pytest.approx(7)
    assert fetched_values(partition_of(answer)) == [b"news"]


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(start: Start) -> None:
    broker = start()
    broker.create("t")
    consumer, producer = broker.client(), broker.client()
    number = consumer.send(fetch_request("t", 0, wait_ms=10_000, min_bytes=1000), FETCH_VERSION)
    broker.produce(producer, "t", b"x" * 300)
    broker.advance(1)
    consumer.step()
    assert number not in consumer.answers
    broker.produce(producer, "t", b"y" * 900)
    assert len(fetched_values(partition_of(consumer.answer(number)))) == 2
    assert broker.system.now() == pytest.approx(1)


def test_a_fetch_of_a_client_that_is_gone_ends_with_it(start: Start) -> None:
    broker = start()
    broker.create("t")
    consumer = broker.client()
    consumer.send(fetch_request("t", 0, wait_ms=30_000), FETCH_VERSION)
    broker.advance(1)
    consumer.close()
    broker.advance(1)
    assert not broker.broker.topics.by_name["t"].partitions[0].readers.waiting


def test_an_idle_connection_is_closed_after_its_time_and_a_used_one_is_not(start: Start) -> None:
    broker = start(connections_max_idle_ms="60000")
    broker.create("t")
    idle, used, waiting = broker.client(), broker.client(), broker.client()
    for client in (idle, used):
        broker.produce(client, "t", b"first")
    waiting.send(fetch_request("t", 2, wait_ms=600_000), FETCH_VERSION)
    for _ in range(4):
        idle.step()
        assert not idle.is_closed
        broker.advance(15)
        used.ask(fetch_request("t", 0), FETCH_VERSION)
    broker.advance(16)
    for client in (idle, used, waiting):
        client.step()
    assert (idle.is_closed, used.is_closed, waiting.is_closed) == (True, False, False)


def test_who_is_over_its_quota_is_told_so_and_not_heard_meanwhile(start: Start) -> None:
    broker = start()
    broker.create("t")
    broker.broker.quotas.set_limits(client_entity("greedy"), {PRODUCER_BYTE_RATE: 1000.0})
    greedy, other = broker.client("greedy"), broker.client("other")
    asked_at = broker.system.now()
    answer = greedy.ask(broker.produce_request("t", [b"x" * 15_000]), PRODUCE_VERSION)
    assert broker.system.now() == asked_at
    wait_seconds = answer.throttle_time_ms / 1000
    assert 5 < wait_seconds < 5.2  # half as much again as ten seconds allow
    number = greedy.send(broker.produce_request("t", [b"y"]), PRODUCE_VERSION)
    assert broker.produce(other, "t", b"z").error_code == 0
    assert broker.system.now() == asked_at
    greedy.answer(number)
    assert broker.system.now() - asked_at == pytest.approx(wait_seconds)


def test_producers_that_write_no_more_are_forgotten_as_often_as_asked_for(start: Start) -> None:
    expiry = {"producer_id_expiration_ms": "2000", "producer_id_expiration_check_interval_ms": "500"}
    broker = start(**expiry)
    broker.create("t")
    batch = build_batch([b"x"], timestamp=broker.system.clock_ms(), producer_id=7, producer_epoch=0, base_sequence=0)
    data = [PartitionProduceData(index=0, records=batch)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    assert broker.client().ask(request, PRODUCE_VERSION).responses[0].partition_responses[0].error_code == 0
    producers = broker.broker.logs.logs["t", 0].producers.by_id
    broker.advance(1.9)
    assert set(producers) == {7}
    broker.advance(1)
    assert set(producers) == set()


def test_a_mistake_in_housekeeping_is_told_and_the_work_goes_on(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start(log_retention_check_interval_ms="1000")
    broker.create("t")
    failed_at: list[float] = []

    def fail(_log: object, _now_ms: int) -> int:
        failed_at.append(broker.system.now())
        raise KeyError("a mistake of ours")

    monkeypatch.setattr("ottla.log.housekeeping.apply_retention", fail)
    broker.advance(5.5)
    assert len(failed_at) == 5
    told = [record for record in caplog.records if record.getMessage().startswith("background work failed")]
    assert len(told) == 5
    assert all(record.exc_info for record in told)
    caplog.clear()


def create_answer(client: SimulatedClient, name: str, partitions: int, version: int) -> tuple[int, int]:
    asked = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    answer = client.ask(CreateTopicsRequest(topics=[asked]), version)
    return answer.topics[0].error_code, answer.throttle_time_ms


def test_who_creates_too_much_is_refused_or_held_back_as_its_version_knows(start: Start) -> None:
    broker = start()
    broker.broker.quotas.set_limits((("user", "ANONYMOUS"),), {CONTROLLER_MUTATION_RATE: 1.0})
    client = broker.client()
    assert create_answer(client, "a", 11, 7) == (0, 0)  # a burst of as many windows as there are
    assert create_answer(client, "b", 10, 7) == (0, 0)  # nothing left, but no debt
    assert create_answer(client, "c", 1, 7) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 10_000)
    asked_at = broker.system.now()
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="a", topic_id=ZERO_UUID)], timeout_ms=1000)
    assert client.ask(delete, 6).responses[0].error_code == 0
    assert broker.system.now() - asked_at == pytest.approx(10)  # it was held back, and then had paid
    older = broker.client()
    asked_at = broker.system.now()
    assert create_answer(older, "c", 1, 5) == (0, 12_000)  # eleven for what was deleted
    assert create_answer(older, "d", 1, 5)[0] == 0
    assert broker.system.now() - asked_at == pytest.approx(12)


def test_an_address_that_connects_too_often_is_kept_waiting_and_turned_away(start: Start) -> None:
    broker = start()
    broker.broker.quotas.set_limits((("ip", "10.0.0.1"),), {CONNECTION_CREATION_RATE: 1.0})
    clients = [broker.client() for _ in range(12)]
    broker.advance(0.5)
    for client in clients:
        client.step()
    assert [client.is_closed for client in clients] == [False] * 12
    broker.advance(0.6)
    for client in clients:
        client.step()
    assert [client.is_closed for client in clients] == [False] * 10 + [True] * 2


def test_connections_wait_when_too_many_come_in_a_second() -> None:
    system = SimulatedSystem(1)
    loop = Loop(system)
    admission = Admission()
    admission.max_creation_rate = 10
    server = Server(loop, "", 0, lambda _connection, _frame: None, admission=admission)
    sockets = [system.connect_client(server.port) for _ in range(150)]
    system.advance(loop, 0.05)
    assert len(server.connections) == 101  # ten seconds' worth, and the one that showed it
    system.advance(loop, 5)
    assert 106 <= len(server.connections) <= 160
    system.advance(loop, 60)
    assert len(server.connections) == len(sockets)


def workload(broker: SimulatedBroker) -> tuple[dict[int, list[bytes | None]], list[object]]:
    """Clients that send without waiting; what each partition holds in the end, and what happened."""
    broker.create("t", 2)
    clients = [broker.client(f"client-{number}") for number in range(4)]
    sent: list[tuple[SimulatedClient, list[int]]] = [(client, []) for client in clients]
    story: list[object] = []
    for step in range(60):
        client, numbers = broker.system.random.choice(sent)
        partition = broker.system.random.randrange(2)
        if broker.system.random.random() < 0.7:
            value = f"{clients.index(client)}:{step}".encode()
            numbers.append(client.send(broker.produce_request("t", [value], partition=partition), PRODUCE_VERSION))
        else:
            numbers.append(client.send(fetch_request("t", 0, partition=partition, wait_ms=100), FETCH_VERSION))
        if broker.system.random.random() < 0.3:
            broker.advance(broker.system.random.random() / 10)
    for client, numbers in sent:
        for number in numbers:
            client.answer(number)
        assert client.order == numbers  # in the order of the requests, whoever had to wait
        story.append((broker.system.now(), client.order))
    reader = broker.client()
    held = {
        partition: fetched_values(partition_of(reader.ask(fetch_request("t", 0, partition=partition), FETCH_VERSION)))
        for partition in range(2)
    }
    return held, story


@pytest.mark.parametrize("syncs", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_whatever_comes_first_all_is_written_once_and_in_order(start: Start, seed: int, syncs: bool) -> None:
    held, _ = workload(start(seed, syncs=syncs))
    values = [value for partition in held.values() for value in partition]
    assert len(set(values)) == len(values)
    for partition in held.values():
        by_client: dict[bytes, list[int]] = {}
        for value in partition:
            assert value is not None
            client, step = value.split(b":")
            by_client.setdefault(client, []).append(int(step))
        assert all(steps == sorted(steps) for steps in by_client.values())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_tells_the_same_story_again(start: Start, seed: int) -> None:
    assert workload(start(seed)) == workload(start(seed))


def test_other_seeds_tell_other_stories(start: Start) -> None:
    assert len({repr(workload(start(seed))) for seed in range(3)}) == 3
