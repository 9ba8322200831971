"""Names of topics that something else had, or has: a deleted topic, also where the broker was killed; and the files
that the broker keeps beside the folders of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.faults.broker_process import BrokerProcess

TOPIC = "again"
WAIT_S = 20.0


def test_records_of_the_new_topic_are_there_though_the_old_one_began_behind_them(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        done(admin.create_topics([NewTopic(TOPIC, 1, 1)]))
        produce(broker, 20)
        done(admin.delete_records([TopicPartition(TOPIC, 0, 15)]))
        done(admin.delete_topics([TOPIC]))
        done(admin.create_topics([NewTopic(TOPIC, 1, 1)]))
        produce(broker, 10)
    with BrokerProcess(tmp_path) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
        assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=WAIT_S) == (0, 10)
        consumer.close()


def test_no_topic_takes_the_place_of_a_file_of_the_broker(tmp_path: Path) -> None:
    name = "cluster.sqlite-session"
    for start in range(3):
        with BrokerProcess(tmp_path) as broker:
            files = [path.name for path in tmp_path.iterdir() if path.is_file()]
            assert not [file for file in files if file.rpartition("-")[2].isdigit()]
            if not start:
                admin = AdminClient({"bootstrap.servers": broker.bootstrap})
                done(admin.create_topics([NewTopic(name, 5, 1)]))
                for partition in range(5):
                    produce(broker, 1, name, partition)
            broker.errors()
    with BrokerProcess(tmp_path) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
        for partition in range(5):
            assert consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=WAIT_S) == (0, 1)
        consumer.close()


def test_a_broker_that_was_killed_under_earlier_names_of_its_files_starts(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        done(admin.create_topics([NewTopic(TOPIC, 1, 1)]))
        produce(broker, 3)
        broker.errors_until_killed()
    [lock] = tmp_path.glob("cluster.sqlite-session-*.lock")
    left = lock.rename(lock.with_suffix(""))
    with BrokerProcess(tmp_path) as broker:
        assert not left.exists()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
        assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=WAIT_S) == (0, 3)
        consumer.close()


def produce(broker: BrokerProcess, count: int, topic: str = TOPIC, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(WAIT_S) == 0


def done(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(WAIT_S)
