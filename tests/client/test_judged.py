"""The client and its judge on Ottla's own broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import ottla.testing
from ottla.client import ClientError, ClientOptions, Consumer, Producer, TopicPartition
from ottla.testing import LocalBroker
from tests.client.contract import new_name
from tests.client.judged_contract import JudgedContract, committed_for_judge, judge, put, seen_by_judge

AWAY_SECONDS = 2.5
PARTITIONS = 50
LONG_SECONDS = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(broker: LocalBroker) -> str:
    return broker.bootstrap


@pytest.fixture(scope="module")
def folder(broker: LocalBroker) -> Path:
    return Path(broker.folder)


class TestOnOttla(JudgedContract):
    pass


def taken_by(consumers: dict[str, Consumer], wanted: int) -> dict[str, list[Any]]:
    """Of each so many values, in any order."""
    found: dict[str, list[Any]] = {name: [] for name in consumers}
    until = time.monotonic() + LONG_SECONDS
    while any(len(values) < wanted for values in found.values()):
        assert time.monotonic() < until, {name: len(values) for name, values in found.items()}
        for name, consumer in consumers.items():
            with suppress(ClientError):  # of the time when it was away
                found[name] += [record.value for batch in consumer.poll(50) for record in batch.records]
    return {name: sorted(values) for name, values in found.items()}


def taken_by_judge(consumer: confluent_kafka.Consumer, wanted: int) -> list[Any]:
    found: list[Any] = []
    until = time.monotonic() + LONG_SECONDS
    while len(found) < wanted:
        assert time.monotonic() < until
        message: Any = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value())
    return sorted(found)


def test_15_a_broker_that_is_away_costs_little_is_told_of_and_missed_by_nobody_afterwards() -> None:
    """With the judge beside it: when the broker is back, everybody goes on, members of either protocol too."""
    options = ClientOptions(retry_timeout_ms=1_000)
    ways: dict[str, dict[str, Any]] = {
        "classic": {"group": new_name(), "group_protocol": "classic"},
        "consumer": {"group": new_name(), "group_protocol": "consumer"},
        "alone": {},
    }
    with ottla.testing.broker() as broker, ExitStack() as stack:
        topic = broker.topic("t", partitions=PARTITIONS)
        consumers = {
            name: stack.enter_context(
                Consumer(broker.bootstrap, topic if "group" in way else None, options=options, heartbeat_ms=100, **way)
            )
            for name, way in ways.items()
        }
        consumers["alone"].assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        producer = stack.enter_context(Producer(broker.bootstrap))
        other = judge(broker.bootstrap, new_name())
        stack.callback(other.close)
        other.subscribe([topic])

        def write_and_read() -> None:
            values = [b"%d" % number for number in range(PARTITIONS)]
            for index, value in enumerate(values):
                producer.send(topic, value, partition=index)
            assert taken_by(consumers, PARTITIONS) == dict.fromkeys(ways, sorted(values))
            assert taken_by_judge(other, PARTITIONS) == sorted(values)

        write_and_read()
        told = dict.fromkeys(ways, 0)
        with broker.down():
            late = producer.send(topic, b"late", partition=0)
            started, started_cpu = time.monotonic(), time.process_time()
            while time.monotonic() < started + AWAY_SECONDS or not all(told.values()):
                assert time.monotonic() < started + LONG_SECONDS, told
                for name, consumer in consumers.items():
                    try:
                        assert consumer.poll(50) == []
                    except ClientError:
                        told[name] += 1
            # Three consumers, a producer and the judge, and nobody hurries.
            assert time.process_time() - started_cpu < 0.4 * (time.monotonic() - started)
        assert late.result(LONG_SECONDS).partition == 0
        assert taken_by(consumers, 1) == {name: [b"late"] for name in ways}
        assert taken_by_judge(other, 1) == [b"late"]
        write_and_read()


def test_18_the_test_kit_says_of_a_broker_what_the_judge_sees_of_it() -> None:
    group = new_name()
    with ottla.testing.broker(settings={"num.partitions": 3, "auto.create.topics.enable": True}) as broker:
        topic = broker.topic("t")
        put(broker.bootstrap, topic, 5)
        assert broker.values(topic) == [value for _, value in seen_by_judge(broker.bootstrap, topic)]
        broker.assert_records(topic, [b"%d" % number for number in range(5)], within=0)
        other = judge(broker.bootstrap, group, **{"enable.partition.eof": False, "allow.auto.create.topics": True})
        try:
            other.subscribe([topic])
            for _ in range(2):
                other.commit(message=_next_of(other), asynchronous=False)
            assert committed_for_judge(broker.bootstrap, group, topic) == [2]
            assert broker.lag(group) == 3
            with pytest.raises(ValueError, match="no group 'typo'"):
                broker.lag("typo")
            with broker.paused():
                for look in (
                    lambda: broker.values(topic),
                    lambda: broker.topic("another"),
                    lambda: broker.assert_records(topic, [], within=1),
                    lambda: broker.lag(group),
                ):
                    with pytest.raises(RuntimeError, match="paused"):
                        look()
            with broker.down(), pytest.raises(RuntimeError, match="down"):
                broker.values(topic)
            with pytest.raises(ValueError, match="no API 'Fecth'"):
                broker.faults.cut("Fecth")
            met = broker.faults.cut("Fetch", topic=topic, times=3)
            broker.put(topic, b"5")
            assert [_next_of(other).value() for _ in range(4)] == [b"2", b"3", b"4", b"5"]
            met.wait(count=1)
            created = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
            created.produce("made", b"x")
            assert created.flush(30) == 0
            assert len(created.list_topics("made", timeout=30).topics["made"].partitions) == 3
        finally:
            other.close()


def _next_of(consumer: confluent_kafka.Consumer) -> Any:
    until = time.monotonic() + LONG_SECONDS
    while time.monotonic() < until:
        message: Any = consumer.poll(1)
        if message is not None and message.error() is None:
            return message
    raise AssertionError("nothing came")
