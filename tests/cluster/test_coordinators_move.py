"""Groups and transactions outlive the broker that coordinates them, killed with -9, and nothing committed is lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.cluster.processes import Cluster
from tests.conformance.group_requests import find_coordinators
from tests.conformance.script import Script

SECONDS = 60.0
PARTITIONS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings={"transaction.state.log.min.isr": "1"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic("t", PARTITIONS, replication_factor=3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(SECONDS)
        yield cluster


def coordinator(cluster: Cluster, key: str, key_type: int) -> int:
    with Script(cluster.addresses[1], "t", cluster.addresses) as script:
        request = find_coordinators(key, key_type=key_type)
        answer = script.ask_until(request, until=lambda answer: answer.coordinators[0].error_code == 0)
        return int(answer.coordinators[0].node_id)


def produce(cluster: Cluster, values: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    failures: list[object] = []
    for value in values:
        producer.produce(
            "t", b"%d" % value, partition=value % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
        )  # fmt: skip
    assert producer.flush(SECONDS) == 0
    assert not failures


def group_consumer(cluster: Cluster, protocol: str) -> Consumer:
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "group.protocol": protocol,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    return consumer


def take(consumer: Consumer, seen: Counter[int], count: int) -> None:
    """Until so many values are seen, each committed when it was; what is committed is tried until it is."""
    until = time.monotonic() + SECONDS
    while len(seen) < count:
        assert time.monotonic() < until, f"only {len(seen)} of {count} came"
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen[int(message.value() or b"")] += 1
    commit(consumer, until)


def commit(consumer: Consumer, until: float) -> None:
    while True:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            assert time.monotonic() < until
            consumer.poll(0.2)
        else:
            return


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_outlives_its_coordinator(cluster: Cluster, protocol: str) -> None:
    produce(cluster, range(60))
    consumer = group_consumer(cluster, protocol)
    seen: Counter[int] = Counter()
    take(consumer, seen, 60)
    killed = cluster.brokers[coordinator(cluster, "g", 0)]
    killed.kill()
    alive = next(broker for broker in cluster.brokers.values() if broker is not killed)
    until = time.monotonic() + SECONDS
    while coordinator_at(alive.address, "g") in (-1, killed.node_id):
        assert time.monotonic() < until
        time.sleep(0.02)
    produce(cluster, range(60, 120))
    take(consumer, seen, 120)
    offsets = consumer.committed([TopicPartition("t", index) for index in range(PARTITIONS)], SECONDS)
    consumer.close()
    assert set(seen) == set(range(120))
    assert sum(each.offset for each in offsets) == 120
    killed.start()
    again = group_consumer(cluster, protocol)
    produce(cluster, range(120, 123))
    late: Counter[int] = Counter()
    take(again, late, 3)
    again.close()
    assert set(late) == {120, 121, 122}  # and nothing of what was committed before


def coordinator_at(address: tuple[str, int], key: str, key_type: int = 0) -> int:
    with Script(address, "t") as script:
        return int(script.ask(find_coordinators(key, key_type=key_type)).coordinators[0].node_id)


def test_a_transactional_producer_outlives_its_coordinator(cluster: Cluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "x", "transaction.timeout.ms": 30_000}
    producer = Producer(settings)
    producer.init_transactions(SECONDS)
    committed: set[int] = set()
    killed = None
    for number in range(8):
        values = range(number * 10, number * 10 + 10)
        while not transaction(producer, values, commits=number % 3 != 2):
            pass
        if number % 3 != 2:
            committed |= set(values)
        if number == 3:
            producer.begin_transaction()
            write(producer, range(1000, 1010))
            producer.flush(SECONDS)
            killed = cluster.brokers[coordinator(cluster, "x", 1)]
            killed.kill()
            if end(producer, commits=True):
                committed |= set(range(1000, 1010))
            else:
                end(producer, commits=False)
    assert killed is not None
    assert read_committed(cluster, len(committed)) == committed


def write(producer: Producer, values: range) -> None:
    for value in values:
        producer.produce("t", b"%d" % value, partition=value % PARTITIONS)


def transaction(producer: Producer, values: range, *, commits: bool) -> bool:
    """Whether it ended as it should."""
    producer.begin_transaction()
    write(producer, values)
    if end(producer, commits=commits):
        return True
    assert end(producer, commits=False)
    return False


def end(producer: Producer, *, commits: bool) -> bool:
    """False: it can only be aborted."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            producer.commit_transaction(SECONDS) if commits else producer.abort_transaction(SECONDS)
        except KafkaException as error:
            if error.args[0].fatal() or not (error.args[0].retriable() or error.args[0].txn_requires_abort()):
                raise
            if commits and error.args[0].txn_requires_abort():
                return False
            assert time.monotonic() < until
        else:
            return True


def read_committed(cluster: Cluster, count: int) -> set[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", index, 0) for index in range(PARTITIONS)])
    found: list[int] = []
    ended: set[int] = set()
    until = time.monotonic() + SECONDS
    while len(ended) < PARTITIONS or len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count}, {ended}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            found.append(int(message.value() or b""))
            ended.discard(message.partition() or 0)
        else:
            ended.add(message.partition() or 0)
    consumer.close()
    assert len(found) == len(set(found)), "a record came twice"
    return set(found)
