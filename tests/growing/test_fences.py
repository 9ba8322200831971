"""What becomes of fences: they outlast restarts, retention lifts them, and groups begin where they should."""

from __future__ import annotations

import time

import confluent_kafka
import pytest

import ottla.testing
from ottla.broker import growing
from ottla.broker.handlers import report_growth
from ottla.client import LATEST, Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.records.growth import Phase
from ottla.records.key_hash import partitions_of_keys
from tests.growing.clients import OPTIONS
from tests.growing.ledger import wait_until
from tests.growing.test_plain_readers import KEYS, TOPIC, grow, write


def test_a_fence_outlasts_a_kill_and_is_lifted_by_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "REST_SECONDS", 0.05)
    with ottla.testing.broker() as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 1)])
            write(broker, 0, 3)
            grow(admin, 2)
            fence = admin.describe_growths([TOPIC])[TOPIC][0].fences[0]
            assert fence == 3 * len(KEYS)
        broker.restart(kill=True)
        with Admin(broker.bootstrap) as admin:
            assert admin.describe_growths([TOPIC])[TOPIC][0].fences == {0: fence}
            admin.delete_records({TopicPartition(TOPIC, 0): fence - 1})
            assert admin.describe_growths([TOPIC])[TOPIC][0].fences == {0: fence}
            admin.delete_records({TopicPartition(TOPIC, 0): fence})
            wait_until(lambda: not admin.describe_growths([TOPIC])[TOPIC][0].fences, "the fence is lifted")


def test_a_group_that_begins_at_the_end_loses_nothing_of_a_new_partition() -> None:
    """It has read the parent, so the new partition is the rest of it, wherever a topic would be begun."""
    with ottla.testing.broker() as broker, Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1)])
        write(broker, 0, 3)
        end = admin.find_offsets(TOPIC, LATEST)[0]
        admin.alter_group_offsets("g", {TopicPartition(TOPIC, 0): end})
        grow(admin, 2)
        write(broker, 3, 6)
        read: list[bytes | None] = []
        with Consumer(broker.bootstrap, TOPIC, group="g", start=LATEST, options=OPTIONS) as consumer:

            def is_all_read() -> bool:
                for each in consumer.poll(50):
                    read.extend(record.value for record in each.records)
                return len(read) >= 3 * len(KEYS)

            wait_until(is_all_read, "all is read")
    assert sorted(read, key=str) == sorted([b"3", b"4", b"5"] * len(KEYS))


def test_a_group_that_comes_after_the_growth_begins_at_the_end_everywhere() -> None:
    """As with any topic. It is given a new partition when it has committed the parent, and skips what lies before."""
    with ottla.testing.broker() as broker, Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1)])
        write(broker, 0, 3)
        grow(admin, 2)
        write(broker, 3, 6)
        read: dict[int, list[bytes | None]] = {0: [], 1: []}
        number = 6
        with Consumer(broker.bootstrap, TOPIC, group="g", start=LATEST, options=OPTIONS, auto_commit_ms=50) as consumer:

            def has_both() -> bool:
                nonlocal number
                write(broker, number, number + 1)
                number += 1
                for each in consumer.poll(50):
                    read[each.partition].extend(record.value for record in each.records)
                return all(read.values())

            wait_until(has_both, "both partitions are read")
    first = min(int(value or b"") for values in read.values() for value in values)
    assert first >= 6, read


def test_librdkafkas_own_partitioner() -> None:
    with ottla.testing.broker() as broker, Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 2)])
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 30_000})
        errors: list[object] = []

        def send() -> None:
            for key in KEYS:
                producer.produce(TOPIC, b"v", key, on_delivery=lambda error, _message: errors.append(error))
            producer.flush(30)

        send()
        admin.expand_in_order({TOPIC: 4}, partitioner="crc32")
        wait_until(lambda: admin.describe_growths([TOPIC])[TOPIC][-1].phase is Phase.OPEN, "the topic has grown")
        send()
        assert errors == [None] * (2 * len(KEYS))
        ends = admin.find_offsets(TOPIC, LATEST)
        assert sum(ends.values()) == 2 * len(KEYS)
        assert ends[2] or ends[3]


def test_what_is_left_of_a_fence_is_told_while_the_topic_grows_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction lies before the first fence, and is aborted when the topic grows for the second time."""
    monkeypatch.setattr(growing, "REST_SECONDS", 0.05)
    with ottla.testing.broker() as broker, Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1)])
        write(broker, 0, 1)
        settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "x"}
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(TOPIC, b"v", b"k")
        producer.flush(30)
        grow(admin, 2)
        assert admin.describe_growths([TOPIC])[TOPIC][0].fences == {0: len(KEYS) + 1}
        admin.expand_in_order({TOPIC: 4}, quiet_ms=1000)
        producer.abort_transaction(30)
        wait_until(lambda: admin.describe_growths([TOPIC])[TOPIC][-1].phase is Phase.OPEN, "the topic has grown")
        wait_until(lambda: admin.describe_growths([TOPIC])[TOPIC][0].fences == {0: len(KEYS)}, "it is lower", 10)


def test_a_fence_that_is_lifted_does_not_keep_the_topic_from_growing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_growth, "MOST_DRAINING_SECONDS", 1000.0)
    with ottla.testing.broker() as broker, Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1)])
        write(broker, 0, 1)
        grow(admin, 2)
        [growth] = admin.describe_growths([TOPIC])[TOPIC]
        admin.delete_records({TopicPartition(TOPIC, 0): growth.fences[0]})
        grow(admin, 4)
        wait_until(lambda: not admin.describe_growths([TOPIC])[TOPIC][0].fences, "the fence is lifted")


def test_compaction_takes_the_last_record_before_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can come further than to the record before, so that is far enough."""
    monkeypatch.setattr(growing, "REST_SECONDS", 0.05)
    with ottla.testing.broker(settings={"log.cleaner.backoff.ms": "20"}) as broker, Admin(broker.bootstrap) as admin:
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
        admin.create_topics([NewTopic(TOPIC, 1, configs={**configs, "segment.ms": "200"})])
        write(broker, 0, 1)
        with Producer(broker.bootstrap) as producer:
            producer.send(TOPIC, None, key=KEYS[-1])
        grow(admin, 2)
        assert admin.describe_growths([TOPIC])[TOPIC][0].fences == {0: len(KEYS) + 1}
        producer_settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "x"}
        rolling = confluent_kafka.Producer(producer_settings)
        rolling.init_transactions(30)
        stays = KEYS[partitions_of_keys(KEYS, 2).index(0)]

        def is_lower() -> bool:
            time.sleep(0.2)
            rolling.begin_transaction()  # nothing of it can be seen, and it has the segment end
            rolling.produce(TOPIC, b"v", stays, 0)
            rolling.flush(30)
            rolling.abort_transaction(30)
            return admin.describe_growths([TOPIC])[TOPIC][0].fences == {0: len(KEYS) - 1}

        wait_until(is_lower, "the fence is lower", 20)
