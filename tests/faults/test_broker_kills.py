"""A broker killed in the middle of load has every record that it acknowledged: in order, once.

One that syncs before it acknowledges also survives a loss of power, of which kill -9 alone is no proof: the kernel
keeps what was written. So it runs on a disk that forgets what was not synced.

OTTLA_KILLS is how often each durability is put to the test.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.faults.broker_process import BrokerProcess
from tests.faults.forgetting_disk import lose_power

KILLS = int(os.environ.get("OTTLA_KILLS", "4"))
LONGEST_LOAD_S = 0.5
WAIT_S = 20.0
TOPIC, FORGOTTEN = "loaded", "forgotten"
SEGMENTS = "log.segment.bytes=1048576"
PARTITIONS = 3
PADDING = b"." * 100
MOST_MESSAGES = 100_000  # that the client takes at once


class Load:
    """Numbered records to all partitions, as fast as they go, and what was acknowledged of them."""

    def __init__(self) -> None:
        self.next_number = 0
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]  # number by offset

    def run(self, broker: BrokerProcess, kill_after_s: float) -> None:
        """Write until the broker is killed."""
        is_killed = threading.Event()

        def kill() -> None:
            broker.kill()
            is_killed.set()

        producer = self._producer(broker)
        timer = threading.Timer(kill_after_s, kill)
        timer.start()
        while not is_killed.is_set():
            try:
                self._write_one(producer)
            except BufferError:
                producer.poll(0.001)
            producer.poll(0)
        timer.join()
        producer.purge()
        assert producer.flush(WAIT_S) == 0

    @staticmethod
    def _producer(broker: BrokerProcess) -> Producer:
        # Without retries nothing is sent twice, so what is there twice was made so by the broker.
        return Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "acks": -1,
                "retries": 0,
                "enable.idempotence": False,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "queue.buffering.max.messages": 2_000,
                "log_level": 0,
            }
        )

    def _write_one(self, producer: Producer) -> None:
        number = self.next_number
        producer.produce(TOPIC, b"%d " % number + PADDING, partition=number % PARTITIONS, on_delivery=self._delivered)
        self.next_number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            partition, offset, number = placed(message)
            assert offset not in self.acknowledged[partition]
            self.acknowledged[partition][offset] = number


def placed(message: Message) -> tuple[int, int, int]:
    """The partition, the offset and the number of a record."""
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    return partition, offset, int(value.split()[0])


def read_from(broker: BrokerProcess, starts: list[int]) -> list[dict[int, int]]:
    """The numbers in each partition from an offset on, by offset, in the order in which they come."""
    options = {"group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 20, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **options})
    places = [TopicPartition(TOPIC, partition, start) for partition, start in enumerate(starts)]
    bounds = [consumer.get_watermark_offsets(place, WAIT_S) for place in places]
    assert [first for first, _end in bounds] == [0] * PARTITIONS
    count = sum(end for _first, end in bounds) - sum(starts)
    consumer.assign(places)
    found: list[dict[int, int]] = [{} for _ in places]
    while (missing := count - sum(map(len, found))) > 0:
        messages = consumer.consume(min(missing, MOST_MESSAGES), WAIT_S)
        assert messages, f"{missing} of {count} records do not come"
        for message in messages:
            assert message.error() is None
            partition, offset, number = placed(message)
            assert offset == starts[partition] + len(found[partition])
            found[partition][offset] = number
    consumer.close()
    return found


def check(broker: BrokerProcess, load: Load, starts: list[int]) -> list[int]:
    """All that was acknowledged from these offsets on is there, in order, once; where the partitions end."""
    found = read_from(broker, starts)
    for start, numbers, acknowledged in zip(starts, found, load.acknowledged, strict=True):
        expected = {offset: number for offset, number in acknowledged.items() if offset >= start}
        assert {offset: numbers.get(offset) for offset in expected} == expected
        assert list(numbers.values()) == sorted(set(numbers.values()))
    return [start + len(numbers) for start, numbers in zip(starts, found, strict=True)]


def test_acknowledged_records_survive_kills(tmp_path: Path) -> None:
    check_kills(lambda: BrokerProcess(tmp_path, "--set", SEGMENTS), lambda: None)


@pytest.mark.parametrize("how", [("--durability", "fsync"), ("--set", "log.flush.interval.messages=1")])
def test_acknowledged_records_survive_losses_of_power(tmp_path: Path, how: tuple[str, str]) -> None:
    folder, synced = tmp_path / "data", tmp_path / "synced"
    check_kills(
        lambda: BrokerProcess(folder, *how, "--set", SEGMENTS, synced=synced), lambda: lose_power(folder, synced)
    )


def check_kills(start: Callable[[], BrokerProcess], lose: Callable[[], None]) -> None:
    """Rounds of load that each end with a kill and what else goes wrong then."""
    load = Load()
    with start() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(WAIT_S)
        broker.kill()
    ends = [0] * PARTITIONS
    rounds = 0
    while rounds < KILLS or not any(load.acknowledged):  # on a busy machine more rounds, each longer
        lose()
        with start() as broker:
            ends = check(broker, load, ends)
            load.run(broker, random.uniform(0.02, LONGEST_LOAD_S) * max(1, rounds - KILLS))
        rounds += 1
    lose()
    with start() as broker:
        check(broker, load, [0] * PARTITIONS)
    acknowledged = sum(map(len, load.acknowledged))
    print(f"{acknowledged} of {load.next_number} records were acknowledged in {rounds} rounds")


def test_fewer_records_than_flush_messages_are_lost_with_the_power(tmp_path: Path) -> None:
    folder, synced = tmp_path / "data", tmp_path / "synced"
    with BrokerProcess(folder, synced=synced) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config={"flush.messages": "10"})])[TOPIC].result(WAIT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for _ in range(29):
            producer.produce(TOPIC, PADDING, partition=0)
            assert producer.flush(WAIT_S) == 0
        broker.kill()
    lose_power(folder, synced)
    with BrokerProcess(folder) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 0})
        assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), WAIT_S)[1] >= 20
        consumer.close()


def has_contents(path: Path, synced: Path) -> bool:
    """Whether all that is in a file is on the disk."""
    kept = synced / str(path.stat().st_ino)
    return kept.exists() and kept.stat().st_size == path.stat().st_size


def has_name(path: Path, synced: Path) -> bool:
    """Whether a file or a folder would be found on the disk."""
    names = synced / str(path.parent.stat().st_ino)
    return names.exists() and path.name in json.loads(names.read_bytes())


def test_what_flush_ms_has_had_its_time_for_survives_a_loss_of_power(tmp_path: Path) -> None:
    """One record, and then nothing that would have others synced: the timer alone brings it to the disk."""
    folder, synced = tmp_path / "data", tmp_path / "synced"
    with BrokerProcess(folder, synced=synced) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        topics = [NewTopic(TOPIC, 1, 1, config={"flush.ms": "50"}), NewTopic(FORGOTTEN, 1, 1)]
        for creation in admin.create_topics(topics).values():
            creation.result(WAIT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for name in (TOPIC, FORGOTTEN):
            producer.produce(name, PADDING, partition=0)
            assert producer.flush(WAIT_S) == 0
        partition = folder / f"{TOPIC}-0"
        [segment] = partition.glob("*.log")
        deadline = time.monotonic() + WAIT_S
        while not (has_contents(segment, synced) and has_name(segment, synced) and has_name(partition, synced)):
            assert time.monotonic() < deadline, "it is not synced"
            time.sleep(0.01)
        broker.kill()
    lose_power(folder, synced)
    with BrokerProcess(folder) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 0})
        ends = [consumer.get_watermark_offsets(TopicPartition(name, 0), WAIT_S)[1] for name in (TOPIC, FORGOTTEN)]
        consumer.close()
    assert ends == [1, 0]
