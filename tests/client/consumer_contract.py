"""What consumers, groups and transactions do with a real broker: the same tests for Ottla and for Apache Kafka."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest

from ottla.client import (
    EARLIEST,
    LATEST,
    Admin,
    AtTime,
    ClientError,
    ClientOptions,
    CommitFailed,
    Consumer,
    Fetched,
    Isolation,
    Message,
    NewRecord,
    OffsetMissing,
    Producer,
    ProducerFenced,
    Reader,
    Sent,
    TopicPartition,
    TransactionAborted,
    aio,
)
from ottla.client.network.cluster import Cluster
from ottla.client.producer.transaction import FEATURE
from tests.client.contract import TIME, eventually, make_topic, new_name, read

QUICK: dict[str, Any] = {"heartbeat_ms": 100, "session_timeout_ms": 6_000}
QUICK_METADATA = ClientOptions(metadata_age_ms=200)


def write(bootstrap: str, topic: str, count: int, first: int = 0) -> list[bytes]:
    written = [b"%d" % number for number in range(first, first + count)]
    with Producer(bootstrap) as producer:
        producer.send_many(topic, [NewRecord(value, timestamp_ms=TIME + int(value)) for value in written])
    return written


def take(consumer: Consumer, count: int) -> list[bytes]:
    """So many values, then the loop ends."""
    taken: list[bytes] = []
    for message in consumer:
        taken.append(message.value or b"")
        if len(taken) == count:
            break
    return taken


def values_of(fetched: list[Fetched]) -> list[bytes]:
    return [record.value or b"" for one in fetched for record in one.records]


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    with Reader(bootstrap, topic, end=LATEST, isolation=Isolation.READ_COMMITTED) as reader:
        return [record.value or b"" for fetched in reader for record in fetched.records]


def use_transactions(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """As a client does that finds this version in force. The broker serves both."""

    async def features(_: Cluster) -> dict[str, int]:
        return {FEATURE: version}

    monkeypatch.setattr(Cluster, "features", features)


class Members:
    """Consumers that poll in threads of their own, and what each of them got."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._stops: list[threading.Event] = []
        self.values: list[list[bytes]] = []
        self.consumers: list[Consumer] = []

    def start(self, make: Callable[[], Consumer]) -> int:
        number = len(self.consumers)
        stop = threading.Event()
        self.values.append([])
        consumer = make()
        self.consumers.append(consumer)
        self._stops.append(stop)

        def poll() -> None:
            with consumer:
                while not stop.is_set():
                    self.values[number] += values_of(consumer.poll(50))

        thread = threading.Thread(target=poll)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(stop.set)
        return number

    def stop(self, number: int) -> None:
        self._stops[number].set()

    def sizes(self) -> list[int]:
        return [len(consumer.assignment) for consumer in self.consumers]

    def all_values(self) -> list[bytes]:
        return [value for values in self.values for value in values]

    def close(self) -> None:
        self._stack.close()


@contextmanager
def members() -> Iterator[Members]:
    running = Members()
    try:
        yield running
    finally:
        running.close()


class Stop(BaseException):
    """Ends a loop from inside, past all that would catch it."""


def stop_if(condition: bool) -> None:
    if condition:
        raise Stop


def stop_at(consumer: Consumer, is_last: Callable[[Message], bool]) -> None:
    for message in consumer:
        stop_if(is_last(message))


class ConsumerContract:
    """A subclass has a fixture `bootstrap`: the address of the broker."""

    protocols: tuple[dict[str, Any], ...] = (
        {"assignors": ["range"]},
        {"assignors": ["roundrobin"]},
        {"assignors": ["sticky"]},
        {"assignors": ["cooperative-sticky"]},
        {"group_protocol": "consumer"},
    )

    # Groups and offsets.

    def test_a_group_is_a_queue_and_groups_are_subscribers(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap, 3)
        written = write(bootstrap, topic, 300)
        for group in (new_name(), new_name()):
            with Consumer(bootstrap, topic, group=group) as consumer:
                assert sorted(take(consumer, len(written))) == sorted(written)
            written += write(bootstrap, topic, 1, first=len(written))
            with Consumer(bootstrap, topic, group=group) as consumer:
                assert take(consumer, 1) == written[-1:]

    def test_what_was_processed_is_not_read_again_and_what_failed_is(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        write(bootstrap, topic, 10)
        with pytest.raises(Stop), Consumer(bootstrap, topic, group=group) as consumer:
            stop_at(consumer, lambda message: message.offset == 4)
        with Consumer(bootstrap, topic, group=group) as consumer:
            assert take(consumer, 2) == [b"4", b"5"]
        with Consumer(bootstrap, topic, group=group, auto_commit=False) as consumer:
            assert take(consumer, 3) == [b"6", b"7", b"8"]
        with Consumer(bootstrap, topic, group=group, auto_commit=False) as consumer:
            for message in consumer:
                if message.offset == 7:
                    consumer.commit()
                    break
            place = TopicPartition(topic, 0)
            assert consumer.committed([place])[place].offset == 8
        with Consumer(bootstrap, topic, group=group) as consumer:
            assert take(consumer, 2) == [b"8", b"9"]

    def test_offsets_are_committed_now_and_then(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        write(bootstrap, topic, 10)
        place = TopicPartition(topic, 0)
        with Consumer(bootstrap, topic, group=group, auto_commit_ms=20) as consumer:
            for message in consumer:
                if message.offset == 3:
                    found = eventually(
                        lambda: consumer.committed([place]), lambda found: place in found and found[place].offset == 3
                    )
                    assert found[place].offset == 3  # the record in hand is not processed yet
                    break

    def test_at_most_once_commits_before_it_hands_out(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        write(bootstrap, topic, 1200)
        seen: list[bytes | None] = []

        def is_tenth(message: Message) -> bool:
            seen.append(message.value)
            if len(seen) % 10 == 0:
                committed.append(consumer.committed([place])[place].offset)
                return True
            return False

        place = TopicPartition(topic, 0)
        committed: list[int] = []
        for _ in range(3):
            with pytest.raises(Stop), Consumer(bootstrap, topic, group=group, delivery="at-most-once") as consumer:
                stop_at(consumer, is_tenth)
        assert committed == [500, 510, 520]  # who dies with them loses them, and who leaves in order gives them back
        assert seen == [b"%d" % number for number in range(30)]

    def test_a_group_without_an_offset_begins_where_it_is_told(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap)
        write(bootstrap, topic, 10)
        with Consumer(bootstrap, topic, group=new_name(), start=AtTime(TIME + 7)) as consumer:
            assert take(consumer, 3) == [b"7", b"8", b"9"]
        with (
            Consumer(bootstrap, topic, group=new_name(), start=None) as consumer,
            pytest.raises(OffsetMissing) as raised,
        ):
            consumer.poll(10_000)
        assert (raised.value.topic, raised.value.partition) == (topic, 0)

    def test_partitions_are_assigned_by_hand_and_positions_moved(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap, 2)
        with Producer(bootstrap) as producer:
            records = [NewRecord(b"%d" % number, partition=0, timestamp_ms=TIME + number) for number in range(10)]
            producer.send_many(topic, [*records, NewRecord(b"other", partition=1)])
        place, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
        with Consumer(bootstrap) as consumer:
            consumer.assign([place])
            assert consumer.assignment == {place}
            assert take(consumer, 3) == [b"0", b"1", b"2"]
            assert consumer.position(place) == 3
            assert take(consumer, 1) == [b"3"]  # what was left of the batch is not lost
            for position, expected in ((8, b"8"), (EARLIEST, b"0"), (AtTime(TIME + 5), b"5")):
                consumer.seek(place, position)
                assert take(consumer, 1) == [expected]
            consumer.assign([place, other])
            consumer.pause(place)
            assert take(consumer, 1) == [b"other"]
            assert consumer.poll(50) == []
            for _ in range(20):  # what is said last counts
                consumer.resume(place)
                consumer.pause(place)
                assert consumer.poll(1) == []
            consumer.resume(place)
            assert take(consumer, 10)[-1] == b"9"
            for say in (consumer.pause, consumer.resume):
                with pytest.raises(ValueError, match="not assigned"):
                    say(TopicPartition(topic, 7))
            with pytest.raises(ValueError, match="not assigned"):
                consumer.seek(TopicPartition(topic, 7), EARLIEST)

    def test_moving_inside_the_loop(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap)
        write(bootstrap, topic, 10)
        place = TopicPartition(topic, 0)
        seen = []
        with Consumer(bootstrap) as consumer:
            consumer.assign([place])
            for message in consumer:
                seen.append(message.offset)
                if seen == [0, 1, 2]:
                    consumer.seek(place, 8)
                if message.offset == 9:
                    break
        assert seen == [0, 1, 2, 8, 9]

    # Rebalances.

    @pytest.mark.parametrize("number", range(5))
    def test_members_come_and_go_and_nothing_is_left_out(self, bootstrap: str, number: int) -> None:
        options = QUICK | self.protocols[number]
        topic, group = make_topic(bootstrap, 6), new_name()
        written = write(bootstrap, topic, 200)
        with members() as running:
            running.start(lambda: Consumer(bootstrap, topic, group=group, **options))
            eventually(running.sizes, [6].__eq__)
            running.start(lambda: Consumer(bootstrap, topic, group=group, **options))
            eventually(running.sizes, [3, 3].__eq__)
            written += write(bootstrap, topic, 200, first=200)
            running.start(lambda: Consumer(bootstrap, topic, group=group, **options))
            eventually(running.sizes, [2, 2, 2].__eq__)
            running.stop(0)
            eventually(lambda: sorted(running.sizes()[1:]), [3, 3].__eq__)
            written += write(bootstrap, topic, 200, first=400)
            eventually(lambda: len(set(running.all_values())), (600).__eq__)
        assert Counter(running.all_values()) == Counter(written)

    @pytest.mark.parametrize("options", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])
    def test_who_is_told_of_what(self, bootstrap: str, options: dict[str, Any]) -> None:
        topic, group = make_topic(bootstrap, 2), new_name()
        told: list[tuple[str, int]] = []
        with members() as running:
            listeners = {
                "on_assigned": lambda partitions: told.append(("assigned", len(partitions))),
                "on_revoked": lambda partitions: told.append(("revoked", len(partitions))),
            }
            running.start(lambda: Consumer(bootstrap, topic, group=group, **(QUICK | options | listeners)))
            eventually(running.sizes, [2].__eq__)
            running.start(lambda: Consumer(bootstrap, topic, group=group, **(QUICK | options)))
            eventually(running.sizes, [1, 1].__eq__)
            assert told == [("assigned", 2), ("revoked", 1)]
            running.stop(0)
            eventually(lambda: told[2:], [("revoked", 1)].__eq__)

    @pytest.mark.parametrize("options", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])
    def test_topics_that_match_a_pattern_and_come_later(self, bootstrap: str, options: dict[str, Any]) -> None:
        prefix = new_name()
        first = make_topic(bootstrap, prefix=prefix)
        write(bootstrap, first, 1)
        with Consumer(
            bootstrap, pattern=f"{prefix}.*", group=new_name(), options=QUICK_METADATA, **(QUICK | options)
        ) as consumer:
            assert take(consumer, 1) == [b"0"]
            second = make_topic(bootstrap, prefix=prefix)
            write(bootstrap, second, 1, first=7)
            assert take(consumer, 1) == [b"7"]

    def test_added_partitions_are_read(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap)
        with Consumer(bootstrap, topic, group=new_name(), options=QUICK_METADATA, **QUICK) as consumer:
            write(bootstrap, topic, 1)
            assert take(consumer, 1) == [b"0"]
            with Admin(bootstrap) as admin:
                admin.expand_topics({topic: 2})
            with Producer(bootstrap, options=QUICK_METADATA) as producer:
                eventually(lambda: _written_to(producer, topic, 1), bool)
            assert take(consumer, 1) == [b"new"]

    @pytest.mark.parametrize("options", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])
    def test_a_static_member_returns_to_what_it_had(self, bootstrap: str, options: dict[str, Any]) -> None:
        topic, group = make_topic(bootstrap, 4), new_name()

        def static(name: str) -> Consumer:
            return Consumer(bootstrap, topic, group=group, instance_id=name, **(QUICK | options))

        with members() as running:
            running.start(lambda: static("one"))
            eventually(running.sizes, [4].__eq__)
            running.start(lambda: static("two"))
            eventually(running.sizes, [2, 2].__eq__)
            had = running.consumers[1].assignment
            running.stop(1)
            eventually(lambda: running.sizes()[1], (0).__eq__)
            again = running.start(lambda: static("two"))
            eventually(lambda: running.sizes()[again], (2).__eq__)
            assert running.consumers[again].assignment == had
            assert running.sizes()[0] == 2

    def test_a_member_that_is_stuck_gives_way(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        write(bootstrap, topic, 3)
        with Consumer(bootstrap, topic, group=group, max_poll_interval_ms=300, **QUICK) as stuck:
            assert take(stuck, 1) == [b"0"]
            with Consumer(bootstrap, topic, group=group, **QUICK) as other:
                assert take(other, 3) == [b"0", b"1", b"2"]  # what the other did not commit comes again
                with pytest.raises(CommitFailed, match=group) as raised:
                    stuck.commit()
                assert not raised.value.is_retriable

    # Handlers.

    def test_a_handler_that_fails_is_tried_again_and_then_the_message_goes_to_the_dead_letters(
        self, bootstrap: str
    ) -> None:
        topic, dead, group = make_topic(bootstrap), make_topic(bootstrap), new_name()
        write(bootstrap, topic, 4)
        calls: Counter[bytes | None] = Counter()

        def handle(message: Message) -> None:
            calls[message.value] += 1
            if message.value == b"1" or (message.value == b"2" and calls[b"2"] < 3):
                raise ValueError("not today")
            stop_if(message.value == b"3")

        with pytest.raises(Stop), Consumer(bootstrap, topic, group=group) as consumer:
            consumer.run(handle, retries=2, backoff_ms=1, dead_letter=dead)
        assert calls == {b"0": 1, b"1": 3, b"2": 3, b"3": 1}
        [letter] = read(bootstrap, dead)[0]
        assert letter.value == b"1"
        headers = dict(letter.headers)
        assert headers["dead-letter.topic"] == topic.encode()
        assert headers["dead-letter.offset"] == b"1"
        assert headers["dead-letter.reason"] == b"not today"
        assert headers["dead-letter.attempts"] == b"3"
        with Consumer(bootstrap, topic, group=group) as consumer:
            assert take(consumer, 1) == [b"3"]

    def test_a_slow_handler_stays_in_the_group(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        write(bootstrap, topic, 2)
        other_is_in = threading.Event()
        told: list[object] = []

        def handle(message: Message) -> None:
            stop_if(message.value == b"1")
            assert other_is_in.wait(30)

        def join() -> None:
            running.start(lambda: Consumer(bootstrap, topic, group=group, **QUICK))
            other_is_in.set()

        with members() as running:
            timer = threading.Timer(1.0, join)
            timer.start()
            slow: dict[str, Any] = QUICK | {"max_poll_interval_ms": 500, "on_lost": told.append}
            with pytest.raises(Stop), Consumer(bootstrap, topic, group=group, **slow) as consumer:
                consumer.run(handle)
            timer.join()
        assert told == []

    # Transactions.

    @pytest.mark.parametrize("version", [1, 2])
    def test_a_transaction_is_seen_whole_or_not_at_all(
        self, bootstrap: str, version: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_transactions(monkeypatch, version)
        topic = make_topic(bootstrap, 3)
        # What does not fill a batch stays with the producer until the end of its transaction.
        with Producer(bootstrap, transactional_id=new_name(), batch_bytes=500, linger_ms=60_000) as producer:
            for number in range(4):
                sent: list[Sent] = []
                with suppress(Stop), producer.transaction():
                    sent += [producer.send(topic, b"%d-%d" % (number, index)) for index in range(50)]
                    stop_if(bool(number % 2))
                if number % 2:
                    with pytest.raises(TransactionAborted):
                        sent[-1].result()
                else:
                    assert all(one.result().offset >= 0 for one in sent)
            with pytest.raises(RuntimeError, match="inside"):
                producer.send(topic, b"")
        found = Counter(value.split(b"-")[0] for value in committed_values(bootstrap, topic))
        assert found == {b"0": 50, b"2": 50}

    @pytest.mark.parametrize("version", [1, 2])
    def test_whoever_comes_later_fences_whoever_was_before(
        self, bootstrap: str, version: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_transactions(monkeypatch, version)
        topic, name = make_topic(bootstrap), new_name()
        with Producer(bootstrap, transactional_id=name) as old:
            with old.transaction():
                old.send(topic, b"old")
            with Producer(bootstrap, transactional_id=name) as new:
                with pytest.raises(ProducerFenced), old.transaction():
                    old.send(topic, b"zombie")
                with new.transaction():
                    new.send(topic, b"new")
                with pytest.raises(ProducerFenced), old.transaction():
                    pass
        assert committed_values(bootstrap, topic) == [b"old", b"new"]

    @pytest.mark.parametrize("version", [1, 2])
    @pytest.mark.parametrize("options", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])
    def test_consume_transform_produce(
        self, bootstrap: str, options: dict[str, Any], version: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_transactions(monkeypatch, version)
        source, sink, group, name = make_topic(bootstrap, 2), make_topic(bootstrap), new_name(), new_name()
        written = write(bootstrap, source, 100)
        for failing in (30, 60, None):
            count = len(committed_values(bootstrap, sink))
            with (
                Producer(bootstrap, transactional_id=name) as producer,
                Consumer(
                    bootstrap, source, group=group, delivery="exactly-once", partition_bytes=400, **(QUICK | options)
                ) as consumer,
            ):
                with suppress(Stop):
                    for batch in consumer.batches():
                        with producer.transaction() as transaction:
                            for record in batch.records:
                                producer.send(sink, record.value)
                                count += 1
                            transaction.send_offsets(consumer)
                            stop_if(failing is not None and count >= failing)
                        if count == 100:
                            break
                with pytest.raises(RuntimeError, match="send_offsets"):
                    consumer.commit()
        assert sorted(committed_values(bootstrap, sink)) == sorted(written)

    def test_a_handler_exactly_once(self, bootstrap: str) -> None:
        source, sink, dead = make_topic(bootstrap), make_topic(bootstrap), make_topic(bootstrap)
        group, name = new_name(), new_name()
        write(bootstrap, source, 20)
        for failing in (5, 10, None):
            with (
                Producer(bootstrap, transactional_id=name) as producer,
                Consumer(bootstrap, source, group=group, delivery="exactly-once", **QUICK) as consumer,
            ):

                def handle(message: Message, producer: Producer = producer, failing: int | None = failing) -> None:
                    if message.offset == 7:
                        raise ValueError("unlucky")
                    producer.send(sink, message.value)
                    stop_if(message.offset in (failing, 20))

                if failing is None:
                    assert committed_values(bootstrap, sink) == []
                    threading.Timer(0, lambda: write_when_done(bootstrap, sink, source)).start()
                with pytest.raises(Stop):
                    consumer.run(handle, retries=0, dead_letter=dead, producer=producer)
        assert [int(value) for value in committed_values(bootstrap, sink)] == [one for one in range(20) if one != 7]
        assert committed_values(bootstrap, dead) == [b"7"]

    def test_a_member_that_lost_its_partitions_cannot_commit_them(self, bootstrap: str) -> None:
        source, sink, group = make_topic(bootstrap), make_topic(bootstrap), new_name()
        write(bootstrap, source, 3)
        with (
            Producer(bootstrap, transactional_id=new_name()) as producer,
            Consumer(
                bootstrap, source, group=group, delivery="exactly-once", max_poll_interval_ms=300, **QUICK
            ) as stuck,
        ):
            assert take(stuck, 3) == [b"0", b"1", b"2"]
            with Consumer(bootstrap, source, group=group, **QUICK) as other:
                assert take(other, 3) == [b"0", b"1", b"2"]
                transaction = producer.transaction()
                with pytest.raises(CommitFailed, match=group), transaction:
                    transaction.send_offsets(stuck)
        assert committed_values(bootstrap, sink) == []

    # Arrow, and the other face.

    def test_arrow_in_and_out(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap, 2)
        headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        table = pa.table(
            {
                "key": pa.array([b"a", None, b"c"]),
                "value": pa.array(["one", None, "three"]),
                "timestamp": pa.array([TIME, TIME + 1, TIME + 2], pa.timestamp("ms")),
                "headers": pa.array([[{"key": "h", "value": b"v"}], [], None], headers),
                "partition": pa.array([0, 1, 0], pa.int32()),
            }
        )
        with Producer(bootstrap) as producer:
            deliveries = producer.send_many(topic, table)
        assert [(one.partition, one.offset) for one in deliveries] == [(0, 0), (1, 0), (0, 1)]
        rows: list[dict[str, Any]] = []
        with Consumer(bootstrap, topic, group=new_name()) as consumer:
            for batch in consumer.arrow_batches(with_headers=True):
                rows += batch.to_pylist()
                if len(rows) == 3:
                    break
        rows.sort(key=lambda row: row["timestamp"])
        assert [row["key"] for row in rows] == [b"a", None, b"c"]
        assert [row["value"] for row in rows] == [b"one", None, b"three"]
        assert [row["partition"] for row in rows] == [0, 1, 0]
        assert [row["offset"] for row in rows] == [0, 0, 1]
        assert {row["topic"] for row in rows} == {topic}
        assert rows[0]["headers"] == [{"key": "h", "value": b"v"}]
        assert [int(row["timestamp"].timestamp() * 1000) for row in rows] == [TIME, TIME + 1, TIME + 2]

    def test_at_most_once_as_arrow(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        write(bootstrap, topic, 600)
        seen: list[list[bytes]] = []
        for _ in range(2):
            with Consumer(bootstrap, topic, group=group, delivery="at-most-once") as consumer:
                seen.append(next(consumer.arrow_batches()).column("value").to_pylist())
        assert seen == [[b"%d" % number for number in numbers] for numbers in (range(500), range(500, 600))]

    def test_a_loop_that_was_left_goes_on_where_it_was(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap)
        written = write(bootstrap, topic, 10)
        place = TopicPartition(topic, 0)

        async def run() -> list[bytes | None]:
            seen = []
            async with aio.Consumer(bootstrap) as consumer:
                await consumer.assign([place])
                for count in (1, 4, 5):
                    async for message in consumer:
                        seen.append(message.value)
                        count -= 1
                        if not count:
                            break
            return seen

        assert asyncio.run(run()) == written
        with Consumer(bootstrap) as consumer:
            consumer.assign([place])
            first, second = iter(consumer), iter(consumer)
            assert [next(one).value for one in (first, first, second, first)] == written[:4]

    def test_the_same_on_an_event_loop(self, bootstrap: str) -> None:
        source, sink, group = make_topic(bootstrap), make_topic(bootstrap), new_name()
        told: list[str] = []

        async def assigned(partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            told.extend(map(str, partitions))

        async def run() -> None:
            async with (
                aio.Producer(bootstrap, transactional_id=new_name()) as producer,
                aio.Consumer(
                    bootstrap, source, group=group, delivery="exactly-once", on_assigned=assigned, **QUICK
                ) as consumer,
                aio.Producer(bootstrap) as writer,
            ):
                delivery = await writer.send(source, b"in")
                assert delivery.offset == 0
                async for message in consumer:
                    async with producer.transaction() as transaction:
                        producer.send(sink, message.value)
                        await transaction.send_offsets(consumer)
                    break
                place = TopicPartition(source, 0)
                assert (await consumer.committed([place]))[place].offset == 1

        asyncio.run(run())
        assert told == [f"{source}-0"]
        assert committed_values(bootstrap, sink) == [b"in"]


def write_when_done(bootstrap: str, sink: str, source: str) -> None:
    """The record that ends the handler's loop, when all before it is through."""
    eventually(lambda: len(committed_values(bootstrap, sink)), (19).__eq__)
    write(bootstrap, source, 1, first=20)


def _written_to(producer: Producer, topic: str, partition: int) -> bool:
    try:
        producer.send(topic, b"new", partition=partition).result()
    except ClientError:
        return False
    return True
