"""confluent-kafka as the judge: where the client lost, hid or doubled something once, both see the same of one broker.

The same tests run against Ottla and against Apache Kafka.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from ottla.client import (
    Admin,
    ClientError,
    CommitFailed,
    Consumer,
    DeliveryFailed,
    GroupOffsets,
    InvalidRecord,
    MalformedAnswer,
    Membership,
    Offset,
    Producer,
    Reader,
    TopicPartition,
    TransactionUnresolved,
    aio,
)
from ottla.records.batch import read_header
from tests.client.contract import make_topic, new_name

Place = tuple[int, bytes | None]
NO_OFFSET = confluent_kafka.OFFSET_INVALID


class Mistake(Exception):
    """Of the user."""


def judge(bootstrap: str, group: str, **options: Any) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
            **options,
        }
    )


def seen_by_judge(bootstrap: str, topic: str, partition_count: int = 1) -> list[Place]:
    """All that is committed, in the order of each partition."""
    consumer = judge(bootstrap, new_name())
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partition_count)])
        found: list[Place] = []
        ended: set[int] = set()
        while len(ended) < partition_count:
            message: Any = consumer.poll(30)
            assert message is not None
            if message.error() is None:
                found.append((message.partition(), message.value()))
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return sorted(found, key=lambda place: place[0])
    finally:
        consumer.close()


def committed_for_judge(bootstrap: str, group: str, topic: str, partition_count: int = 1) -> list[int]:
    consumer = judge(bootstrap, group)
    try:
        places = [confluent_kafka.TopicPartition(topic, index) for index in range(partition_count)]
        return [place.offset for place in consumer.committed(places, timeout=30)]
    finally:
        consumer.close()


def seen_up_to_damage(bootstrap: str, topic: str) -> list[Any]:
    consumer = judge(bootstrap, new_name(), **{"check.crcs": True})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        while True:
            message: Any = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._BAD_MSG
                return found
            found.append(message.value())
    finally:
        consumer.close()


def read_by_polling(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        for batch in consumer.poll():
            found += [record.value for record in batch.records]
    return found


def read_by_iterating(consumer: Consumer, count: int) -> list[Any]:
    return [message.value for message in islice(consumer, count)]


def put(bootstrap: str, topic: str, count: int, partition_count: int = 1) -> None:
    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partition_count)


def by_partition(found: Iterator[Place] | list[Place]) -> list[Place]:
    return sorted(found, key=lambda place: place[0])


def damage(segment: Path, number: int) -> None:
    """The last byte of a batch on the disk is another."""
    content = segment.read_bytes()
    position = 0
    for _ in range(number):
        position += read_header(content[position:]).size
    place = position + read_header(content[position:]).size - 1
    with segment.open("r+b") as file:
        file.seek(place)
        file.write(bytes([content[place] ^ 1]))


class JudgedContract:
    """A subclass has the fixtures `bootstrap`, the address of the broker, and `folder`, where its partitions are."""

    def test_1_nothing_committed_is_hidden(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap, 2)
        with Producer(bootstrap, transactional_id=topic, linger_ms=0) as producer:
            for number in range(12):
                with suppress(Mistake), producer.transaction():
                    for index in range(4):
                        producer.send(topic, b"%d-%d" % (number, index), partition=index % 2).result()
                    if number % 2:
                        raise Mistake
        expected = seen_by_judge(bootstrap, topic, 2)
        assert len(expected) == 24
        deliveries: tuple[Any, ...] = ("at-least-once", "at-most-once", "exactly-once")
        for delivery in deliveries:
            seen: list[Place] = []
            with Consumer(bootstrap, topic, group=new_name(), delivery=delivery) as consumer:
                while len(seen) < len(expected):
                    for message in consumer:
                        seen.append((message.partition, message.value))
                        place = TopicPartition(topic, message.partition)
                        consumer.pause(place)
                        consumer.resume(place)
                        break
            assert by_partition(seen) == expected, delivery

    def test_2_what_failed_after_poll_is_not_committed(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        put(bootstrap, topic, 10)
        with suppress(Mistake), Consumer(bootstrap, topic, group=group) as consumer:
            while not consumer.poll():
                pass
            raise Mistake
        assert committed_for_judge(bootstrap, group, topic) in ([NO_OFFSET], [0])  # at most where it began
        with Consumer(bootstrap, topic, group=group) as consumer:
            assert next(iter(consumer)).offset == 0
        assert committed_for_judge(bootstrap, group, topic) == [1]

    def test_3_a_transaction_that_is_cancelled_is_whole_or_not_there(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap, 2)
        told: dict[int, str] = {}

        async def one(producer: aio.Producer, number: int) -> None:
            async with producer.transaction():
                for index in range(4):
                    producer.send(topic, b"%d-%d" % (number, index), partition=index % 2)

        async def work() -> None:
            async with aio.Producer(bootstrap, transactional_id=topic) as producer:
                for number in range(40):
                    task = asyncio.ensure_future(one(producer, number))
                    await asyncio.sleep(number % 20 * 0.002)
                    task.cancel()
                    try:
                        await task
                        told[number] = "committed"
                    except (asyncio.CancelledError, TransactionUnresolved):
                        told[number] = "unknown"
                await one(producer, 40)
                told[40] = "committed"

        asyncio.run(work())
        seen = [value for _, value in seen_by_judge(bootstrap, topic, 2)]
        assert len(set(seen)) == len(seen)
        for number, what in told.items():
            parts = [b"%d-%d" % (number, index) for index in range(4)]
            there = [part in seen for part in parts]
            assert all(there) or (what == "unknown" and not any(there)), (number, what, there)

    def test_4_what_is_owned_is_read_however_short_each_poll_is(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap, 4)
        put(bootstrap, topic, 40, 4)
        expected = seen_by_judge(bootstrap, topic, 4)
        for protocol in ("classic", "consumer"):

            async def read(protocol: Any = protocol) -> list[Place]:
                seen: list[Place] = []
                async with aio.Consumer(bootstrap, topic, group=new_name(), group_protocol=protocol) as consumer:
                    while len(seen) < len(expected):
                        with suppress(TimeoutError):
                            async with asyncio.timeout(0.02):
                                for batch in await consumer.poll(10):
                                    seen += [(batch.partition, record.value) for record in batch.records]
                return seen

            assert by_partition(asyncio.run(read())) == expected

    @pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
    def test_5_run_again_after_an_error_skips_nothing(self, bootstrap: str, delivery: Any) -> None:
        topic, copies = make_topic(bootstrap), make_topic(bootstrap)
        put(bootstrap, topic, 10)
        options: dict[str, Any] = {"transactional_id": copies} if delivery == "exactly-once" else {}
        failures = iter([3, 7, 7])
        fails_at = next(failures)
        with (
            Producer(bootstrap, **options) as producer,
            Consumer(bootstrap, topic, group=new_name(), delivery=delivery) as consumer,
        ):

            def handle(message: Any) -> None:
                if message.offset == fails_at:
                    raise Mistake
                producer.send(copies, message.value)
                if message.offset == 9:
                    consumer.stop()

            while True:
                try:
                    consumer.run(handle, retries=0, producer=producer)
                    break
                except Mistake:
                    fails_at = next(failures, -1)
        assert seen_by_judge(bootstrap, copies) == seen_by_judge(bootstrap, topic)

    @pytest.mark.parametrize("bad", ["too large", "without key"])
    def test_6_and_8_a_record_that_is_refused_fails_alone_for_both(self, bootstrap: str, bad: str) -> None:
        """And in the end nobody's failure is hidden because somebody asked for a neighbour."""
        config: dict[str, Any] = {"max_message_bytes": "2000"} if bad == "too large" else {"cleanup_policy": "compact"}
        topics = make_topic(bootstrap, **config), make_topic(bootstrap, **config)
        records = [(b"%d" % number, b"x" * 100) for number in range(10)]
        spoilt: list[tuple[bytes | None, bytes]] = [*records]
        spoilt[5] = (b"5", b"x" * 5_000) if bad == "too large" else (None, b"x" * 100)
        with Producer(bootstrap, linger_ms=0) as producer:
            sent = []
            for key, value in spoilt:
                sent.append(producer.send(topics[0], value, key=key))
                with suppress(ClientError, TimeoutError):
                    sent[0].result(1)
            with pytest.raises(DeliveryFailed, match="1 records were not written"):
                producer.flush()
            refused = {number for number, one in enumerate(sent) if not _is_written(one)}
        refused_for_judge: set[int] = set()
        other = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        for number, (key, value) in enumerate(spoilt):

            def tell(error: Any, _: object, number: int = number) -> None:
                if error is not None:
                    refused_for_judge.add(number)

            other.produce(topics[1], value, key=key, on_delivery=tell)
            other.flush(30)
        assert refused == refused_for_judge == {5}
        assert len(seen_by_judge(bootstrap, topics[0])) == len(seen_by_judge(bootstrap, topics[1])) == 9

    def test_7_what_is_before_a_damaged_batch_is_seen_and_nothing_is_committed_past_it(
        self, bootstrap: str, folder: Path
    ) -> None:
        topic, group = make_topic(bootstrap), new_name()
        with Producer(bootstrap, linger_ms=0) as producer:
            for number in range(9):
                producer.send(topic, b"%d" % number).result()
        damage(folder / f"{topic}-0" / f"{0:020}.log", 5)
        place = TopicPartition(topic, 0)
        expected = seen_up_to_damage(bootstrap, topic)
        assert expected == [b"%d" % number for number in range(5)]
        for read in (read_by_polling, read_by_iterating):
            with Consumer(bootstrap, topic, group=group) as consumer:
                assert read(consumer, 5) == expected
                for _ in range(2):  # each time, whoever asks
                    with pytest.raises(MalformedAnswer, match="damaged batch at or behind offset 5"):
                        read(consumer, 1)
            assert committed_for_judge(bootstrap, group, topic) == [5]
            with Consumer(bootstrap, topic, group=group, auto_commit=False) as consumer:
                with pytest.raises(MalformedAnswer, match="offset 5"):
                    read(consumer, 1)
                consumer.seek(place, 6)
                assert read(consumer, 3) == [b"6", b"7", b"8"]
                consumer.commit({place: 0})
        found: list[bytes] = []

        def read_all() -> None:
            with Reader(bootstrap, topic) as reader:
                for fetched in reader:
                    found.extend(record.value for record in fetched.records)

        with pytest.raises(MalformedAnswer, match="offset 5"):
            read_all()
        assert found == expected

    def test_9_and_12_what_is_wrong_is_refused_where_it_is_sent_and_all_else_is_written(self, bootstrap: str) -> None:
        topics = make_topic(bootstrap), make_topic(bootstrap, cleanup_policy="compact")
        wrong: list[dict[str, Any]] = [
            {"partition": "0"},
            {"partition": -1},
            {"key": "text"},
            {"timestamp_ms": -1},
            {"headers": {"name": b"value"}},
            {"headers": [("name", "text")]},
        ]
        with Producer(bootstrap, spread="sticky") as producer:
            for number in range(20):
                with pytest.raises(InvalidRecord):
                    producer.send(topics[0], b"wrong", **wrong[number % len(wrong)])
                for topic in topics:
                    producer.send(topic, b"%d" % number, key=b"%d" % number)
            without_key = producer.send(topics[1], b"without key")
            assert not _is_written(without_key)
        for topic in topics:
            assert seen_by_judge(bootstrap, topic) == [(0, b"%d" % number) for number in range(20)]

    def test_10_what_threads_send_while_transactions_end_is_in_one_or_refused(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap)
        is_over = threading.Event()
        taken: list[bytes] = []

        def send(producer: Producer) -> None:
            number = 0
            while not is_over.is_set():
                with suppress(RuntimeError):
                    producer.send(topic, b"%d" % number)
                    taken.append(b"%d" % number)
                number += 1

        with Producer(bootstrap, transactional_id=topic) as producer:
            thread = threading.Thread(target=send, args=(producer,))
            thread.start()
            try:
                for _ in range(10):
                    with producer.transaction():
                        producer.send(topic, b"own").result(30)
            finally:
                is_over.set()
                thread.join()
        seen = [value for _, value in seen_by_judge(bootstrap, topic)]
        assert [value for value in seen if value != b"own"] == taken
        assert seen.count(b"own") == 10

    def test_11_calls_of_several_threads_are_in_their_order(self, bootstrap: str) -> None:
        topic, turn = make_topic(bootstrap), threading.Lock()
        numbers = count()
        with Producer(bootstrap) as producer:

            def send() -> None:
                for _ in range(500):
                    with turn:
                        producer.send(topic, b"%d" % next(numbers))

            threads = [threading.Thread(target=send) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert seen_by_judge(bootstrap, topic) == [(0, b"%d" % number) for number in range(2_000)]

    def test_13_a_commit_in_the_middle_of_a_rebalance_is_of_what_was_read(self, bootstrap: str) -> None:
        """Others come and go. Nobody's commit goes back, and at the end all of it is committed."""
        topic, group = make_topic(bootstrap, 4), new_name()
        put(bootstrap, topic, 400, 4)
        seen: set[tuple[int, int]] = set()

        def take(consumer: Consumer) -> None:
            for batch in consumer.poll(50):
                seen.update((batch.partition, record.offset) for record in batch.records)
            with suppress(ClientError):
                consumer.commit()

        options: dict[str, Any] = {"group": group, "auto_commit": False, "heartbeat_ms": 50, "partition_bytes": 500}
        with Consumer(bootstrap, topic, **options) as first:
            for _ in range(4):
                with Consumer(bootstrap, topic, **options) as second:
                    for _ in range(5):
                        take(first)
                        take(second)
            while len(seen) < 400 or committed_for_judge(bootstrap, group, topic, 4) != [100] * 4:
                take(first)
        assert len(seen) == 400

    def test_14_a_deleted_topic_keeps_no_commit_of_another_back(self, bootstrap: str) -> None:
        stays, goes, group = make_topic(bootstrap), make_topic(bootstrap), new_name()
        for topic in (stays, goes):
            put(bootstrap, topic, 5)
        with Consumer(bootstrap, [stays, goes], group=group, auto_commit_ms=100) as consumer:
            seen = 0
            while seen < 10:
                seen += sum(len(batch.records) for batch in consumer.poll())
            with Admin(bootstrap) as admin:
                admin.delete_topics([goes])
            put(bootstrap, stays, 5)
            while seen < 15:
                seen += sum(len(batch.records) for batch in consumer.poll())
        assert committed_for_judge(bootstrap, group, stays) == [10]

    def test_16_a_stuck_member_hands_out_nothing_of_what_is_anothers(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        put(bootstrap, topic, 100)
        with Consumer(
            bootstrap, topic, group=group, max_poll_interval_ms=300, heartbeat_ms=50, auto_commit=False
        ) as consumer:
            messages = iter(consumer)
            assert next(messages).offset == 0
            other = judge(bootstrap, group)
            other.subscribe([topic])
            message: Any = None
            while message is None or message.error() is not None or message.offset() < 9:
                message = other.poll(1)
            other.commit(message=message, asynchronous=False)
            other.close()
            # It has the partition again, and goes on where the other has committed.
            assert next(messages).offset == 10

    def test_17_what_fails_in_the_users_hands_is_not_half_done(self, bootstrap: str) -> None:
        topic, copies, group = make_topic(bootstrap), make_topic(bootstrap), new_name()
        put(bootstrap, topic, 3)

        def refuse(_: object) -> None:
            raise Mistake

        def read() -> None:
            with Consumer(bootstrap, topic, group=group, on_revoked=refuse) as consumer:
                while not consumer.poll():
                    pass

        with pytest.raises(Mistake):
            read()
        assert committed_for_judge(bootstrap, group, topic) == [3]
        not_a_member = GroupOffsets(Membership(group, 99, "nobody"), {TopicPartition(topic, 0): Offset(1)})
        with Producer(bootstrap, transactional_id=copies) as producer:

            def copy() -> None:
                with producer.transaction() as transaction:
                    producer.send(copies, b"half")
                    with suppress(CommitFailed):
                        transaction.send_offsets(not_a_member)

            with pytest.raises(CommitFailed):
                copy()
            with producer.transaction():
                producer.send(copies, b"whole")
        assert seen_by_judge(bootstrap, copies) == [(0, b"whole")]
        assert committed_for_judge(bootstrap, group, topic) == [3]


def _is_written(one: Any) -> bool:
    try:
        one.result(30)
    except ClientError:
        return False
    return True
