"""Leaders are killed with -9 while an idempotent producer waits for all replicas: nothing acknowledged is lost.

OTTLA_KILLED_LEADERS: how many times, instead of a few.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.cluster.processes import Cluster

KILLS = int(os.environ.get("OTTLA_KILLED_LEADERS", "3"))
PARTITIONS = 3
SECONDS = 90.0
ROUND_RECORDS = 300
HOLD_SECONDS = 0.3


class Load:
    """Sends numbers, and remembers where each of them is said to be."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 1}
        )
        self.sent = 0
        self.acknowledged: dict[int, dict[int, bytes]] = defaultdict(dict)
        self.failures: list[str] = []

    def _told(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[message.partition()][message.offset()] = message.value()  # type: ignore[attr-defined]

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce("t", b"%d" % self.sent, partition=self.sent % PARTITIONS, on_delivery=self._told)
            self.sent += 1
        self._producer.poll(0)

    def count(self) -> int:
        self._producer.poll(0.05)
        return sum(map(len, self.acknowledged.values()))

    def poll(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._producer.poll(left)

    def flush(self) -> None:
        assert self._producer.flush(SECONDS) == 0


def leaders(admin: AdminClient) -> dict[int, int]:
    partitions = admin.list_topics("t", timeout=SECONDS).topics["t"].partitions
    return {index: partition.leader for index, partition in partitions.items()}


def in_sync(admin: AdminClient) -> int:
    """Of the partition that has the fewest."""
    partitions = admin.list_topics("t", timeout=SECONDS).topics["t"].partitions
    return min(len(partition.isrs) for partition in partitions.values())


def stored(bootstrap: str, index: int) -> dict[int, bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    place = TopicPartition("t", index, 0)
    consumer.assign([place])
    _, end_offset = consumer.get_watermark_offsets(place, timeout=SECONDS)
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + SECONDS
    while len(found) < end_offset and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.5):
            value = message.value()
            if message.error() is None and isinstance(value, bytes):
                found[message.offset() or 0] = value
    consumer.close()
    return found


def wait_for_replicas(admin: AdminClient) -> None:
    deadline = time.monotonic() + SECONDS
    while in_sync(admin) < 3:
        assert time.monotonic() < deadline, "a broker that was started again does not get in sync"
        time.sleep(0.1)


def test_nothing_acknowledged_is_lost_when_leaders_are_killed(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic("t", PARTITIONS, replication_factor=3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(SECONDS)
        load = Load(cluster.bootstrap)
        for number in range(KILLS):
            before = load.count()
            load.send(ROUND_RECORDS)
            while load.count() < before + ROUND_RECORDS // 3:
                pass  # some are acknowledged, and others are on their way
            killed = cluster.brokers[leaders(admin)[number % PARTITIONS]]
            others = [broker for broker in cluster.brokers.values() if broker is not killed]
            for broker in others:
                broker.hold()  # what the leader takes now has no other replica
            load.send(ROUND_RECORDS)
            load.poll(HOLD_SECONDS)
            killed.kill()
            for broker in others:
                broker.let_go()
            load.send(ROUND_RECORDS)
            load.flush()
            killed.start()
            wait_for_replicas(admin)
        assert load.failures == []
        found = {index: stored(cluster.bootstrap, index) for index in range(PARTITIONS)}
    for index, acknowledged in load.acknowledged.items():
        assert {offset: found[index].get(offset) for offset in acknowledged} == acknowledged
        assert sorted(found[index].values()) == sorted(acknowledged.values())  # each of them once
