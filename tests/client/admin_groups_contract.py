"""What an administrator can do with groups, with a real broker: the same tests for Ottla and for Apache Kafka."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from ottla.client import (
    EARLIEST,
    LATEST,
    Admin,
    ClientOptions,
    Consumer,
    GroupDescription,
    Isolation,
    Offset,
    PartlyFailed,
    Producer,
    ProducerFenced,
    Reader,
    ServerError,
    TopicPartition,
    UnknownTopicOrPartition,
    aio,
)
from ottla.client.network.cluster import Cluster
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.client.consumer_contract import QUICK, members, take, write
from tests.client.contract import eventually, make_topic, new_name

QUICKLY = ClientOptions(retry_timeout_ms=5_000, unknown_topic_timeout_ms=100)


def commit(bootstrap: str, group: str, topic: str, offset: int = 1) -> None:
    """A group without members."""
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): offset})


class Abort(Exception):
    """Ends a transaction so that it is aborted."""


def write_transactions(bootstrap: str, topic: str, *lengths: int) -> None:
    """Each with so many records, committed and aborted in turn."""
    with Producer(bootstrap, transactional_id=new_name()) as producer:
        for number, length in enumerate(lengths):
            with suppress(Abort), producer.transaction():
                for _ in range(length):
                    producer.send(topic, b"v", partition=0)
                producer.flush()
                if number % 2:
                    raise Abort


def readable_offsets(bootstrap: str, topic: str) -> list[int]:
    """As a reader of committed records gets them, of partition 0."""
    with Reader(bootstrap, topic, [0], end=LATEST, isolation=Isolation.READ_COMMITTED) as reader:
        return [record.offset for fetched in reader for record in fetched.records]


def assert_counts_are_right(bootstrap: str, topic: str) -> None:
    """Between any two offsets as many as a reader would get there."""
    place = TopicPartition(topic, 0)
    readable = readable_offsets(bootstrap, topic)
    with Admin(bootstrap) as admin:
        end_offset = admin.find_offsets(topic, LATEST, [0], Isolation.READ_COMMITTED)[0]
        for start in range(end_offset + 1):
            expected = sum(offset >= start for offset in readable)
            assert admin.count_records({place: (start, end_offset)}) == {place: expected}, start
            expected = sum(offset < start for offset in readable)
            assert admin.count_records({place: (0, start)}) == {place: expected}, start


def describe(admin: Admin, group: str) -> GroupDescription | None:
    """None as long as nobody knows it."""
    try:
        return admin.describe_groups([group])[0]
    except ServerError:
        return None


def assigned_to(group: GroupDescription) -> Counter[TopicPartition]:
    """How many members have each partition."""
    return Counter(place for member in group.members for place in member.assignment)


def is_settled(group: GroupDescription | None, size: int, partition_count: int) -> bool:
    """A cooperative group is stable for a moment when a partition has been given up and not yet been given."""
    if group is None or group.state != "Stable":
        return False
    return len(group.members) == size and len(assigned_to(group)) == partition_count


async def delete_records(bootstrap: str, place: TopicPartition, before_offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=place.partition, offset=before_offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=place.topic, partitions=[partition])], timeout_ms=10_000
    )
    async with Cluster(bootstrap) as cluster:
        answer = await cluster.ask_any(request, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == 0


class AdminGroupsContract:
    """A subclass has a fixture `bootstrap`: the address of the broker."""

    def test_groups_are_listed_by_state_and_type(self, bootstrap: str) -> None:
        topic, empty, classic, consumer = make_topic(bootstrap), new_name(), new_name(), new_name()
        names = {empty, classic, consumer}
        commit(bootstrap, empty, topic)
        with members() as running, Admin(bootstrap) as admin:
            running.start(lambda: Consumer(bootstrap, topic, group=classic, **QUICK))
            running.start(lambda: Consumer(bootstrap, topic, group=consumer, group_protocol="consumer", **QUICK))
            eventually(running.sizes, [1, 1].__eq__)

            def listed(**conditions: list[str]) -> set[str]:
                return {group.group_id for group in admin.list_groups(**conditions)} & names

            found = {group.group_id: group for group in admin.list_groups() if group.group_id in names}
            assert {name: (group.type, group.state, group.protocol_type) for name, group in found.items()} == {
                empty: ("classic", "Empty", ""),
                classic: ("classic", "Stable", "consumer"),
                consumer: ("consumer", "Stable", "consumer"),
            }
            assert listed(types=["consumer"]) == {consumer}
            assert listed(types=["classic"], states=["stable"]) == {classic}
            assert listed(states=["Empty", "Stable"]) == names

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_groups_are_described_with_their_members(self, bootstrap: str, protocol: str) -> None:
        topic, group = make_topic(bootstrap, 3), new_name()
        options = {"group": group, "group_protocol": protocol, **QUICK}
        with members() as running, Admin(bootstrap) as admin:
            running.start(
                lambda: Consumer(bootstrap, topic, options=ClientOptions(client_id="one"), instance_id="i", **options)
            )
            running.start(lambda: Consumer(bootstrap, topic, options=ClientOptions(client_id="two"), **options))

            found = eventually(lambda: describe(admin, group), lambda seen: is_settled(seen, 2, 3))
            assert found is not None
            assert found.type == protocol
            assert found.protocol_type == "consumer"
            assert found.assignor == ("cooperative-sticky" if protocol == "classic" else "uniform")
            by_client = {member.client_id: member for member in found.members}
            assert sorted(by_client) == ["one", "two"]
            assert by_client["one"].instance_id == "i"
            assert by_client["two"].instance_id is None
            assert assigned_to(found) == Counter({TopicPartition(topic, index): 1 for index in range(3)})
            for member in found.members:
                assert member.host == "127.0.0.1"
                assert member.topics == (topic,)
                assert member.target == member.assignment
                assert member.is_classic == (protocol == "classic")
                assert (member.epoch is None) == (protocol == "classic")
            assert (found.epoch is None) == (protocol == "classic")

    def test_groups_that_nobody_knows(self, bootstrap: str) -> None:
        topic, known, unknown = make_topic(bootstrap), new_name(), new_name()
        commit(bootstrap, known, topic)
        with Admin(bootstrap) as admin:
            with pytest.raises(ServerError, match=f"group {unknown}: .*not found") as raised:
                admin.describe_groups([unknown])
            assert raised.value.code == ErrorCode.GROUP_ID_NOT_FOUND
            assert "Correct the name" in raised.value.advice
            with pytest.raises(PartlyFailed) as partly:
                admin.describe_groups([unknown, known])
            assert [group.group_id for group in partly.value.done] == [known]
            assert admin.list_group_offsets(unknown) == {}
            assert admin.group_lags(unknown) == {}

    def test_offsets_are_altered_listed_and_deleted(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap, 2), new_name()
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        with Admin(bootstrap) as admin:
            assert admin.alter_group_offsets(group, {}) == []
            asked: dict[TopicPartition, Offset | int] = {first: Offset(3, "why", 0), second: 4}
            assert sorted(admin.alter_group_offsets(group, asked)) == [first, second]
            assert admin.list_group_offsets(group) == {first: Offset(3, "why", 0), second: Offset(4)}
            assert admin.list_group_offsets(group, [second], must_be_stable=True) == {second: Offset(4)}
            assert admin.delete_group_offsets(group, [first]) == [first]
            assert admin.list_group_offsets(group) == {second: Offset(4)}

    def test_topics_that_are_not_there_have_no_offsets(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        there, missing = TopicPartition(topic, 0), TopicPartition(topic, 7)
        nowhere = TopicPartition(new_name(), 0)
        with Admin(bootstrap, QUICKLY) as admin:
            with pytest.raises(PartlyFailed) as partly:
                admin.alter_group_offsets(group, {there: 1, missing: 1})
            assert partly.value.done == [there]
            assert [(error.code, error.partition) for error in partly.value.errors] == [
                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 7)
            ]
            lags = admin.group_lags(group, [missing, nowhere])
            assert lags[there].committed == Offset(1)
            assert [(lags[one].end_offset, lags[one].offsets, lags[one].records) for one in (missing, nowhere)] == [
                (None, None, None),
                (None, None, None),
            ]
            for place in (missing, nowhere):
                with pytest.raises(UnknownTopicOrPartition):
                    admin.count_records({place: (0, 1)})

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_a_group_at_work_is_left_alone(self, bootstrap: str, protocol: str) -> None:
        topic, other, group = make_topic(bootstrap), make_topic(bootstrap), new_name()
        place = TopicPartition(topic, 0)
        with Admin(bootstrap) as admin:
            options = {"group": group, "group_protocol": protocol, **QUICK}
            with members() as running:
                running.start(lambda: Consumer(bootstrap, topic, **options))
                eventually(running.sizes, [1].__eq__)
                eventually(lambda: admin.describe_groups([group])[0].state, "Stable".__eq__)
                for ask in (
                    lambda: admin.delete_groups([group]),
                    lambda: admin.alter_group_offsets(group, {place: 1}),
                ):
                    with pytest.raises(ServerError, match=group) as raised:
                        ask()
                    assert raised.value.code == ErrorCode.NON_EMPTY_GROUP
                    assert "Stop the members" in raised.value.advice
                with pytest.raises(ServerError, match=topic) as raised:
                    admin.delete_group_offsets(group, [place])
                assert raised.value.code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                assert admin.delete_group_offsets(group, [TopicPartition(other, 0)]) == [TopicPartition(other, 0)]
            assert admin.alter_group_offsets(group, {place: 1}) == [place]
            assert admin.delete_groups([group]) == [group]
            assert admin.list_group_offsets(group) == {}

    def test_groups_are_deleted(self, bootstrap: str) -> None:
        topic, first, second, unknown = make_topic(bootstrap), new_name(), new_name(), new_name()
        commit(bootstrap, first, topic)
        commit(bootstrap, second, topic)
        with Admin(bootstrap) as admin:
            with pytest.raises(PartlyFailed, match=unknown) as partly:
                admin.delete_groups([first, unknown, second])
            assert partly.value.done == [first, second]
            with pytest.raises(ServerError, match=unknown):
                admin.delete_groups([unknown])
            assert not {first, second} & {group.group_id for group in admin.list_groups()}

    def test_lag_is_what_a_consumer_would_get(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap, 2), new_name()
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        write_transactions(bootstrap, topic, 2, 3, 1, 1)  # 0-2, aborted 3-6, 7-8, aborted 9-10
        with Producer(bootstrap) as producer:
            producer.send(topic, b"plain", partition=0).result()
        with Admin(bootstrap) as admin:
            admin.alter_group_offsets(group, {first: 1})
            lags = admin.group_lags(group, [second])
            assert lags == {
                first: (Offset(1), 0, 12, 3),
                second: (None, 0, 0, None),
            }
            assert lags[first].offsets == 11
            assert admin.group_lags(group, in_records=False)[first].records is None
            admin.alter_group_offsets(group, {first: 12})
            assert admin.group_lags(group)[first].records == 0
        with Consumer(bootstrap, topic, group=new_name(), isolation=Isolation.READ_COMMITTED, **QUICK) as consumer:
            assert take(consumer, 4) == [b"v", b"v", b"v", b"plain"]

    def test_counts_between_any_two_offsets(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap)
        write(bootstrap, topic, 4)
        write_transactions(bootstrap, topic, 2, 2, 1)
        write(bootstrap, topic, 2)
        assert_counts_are_right(bootstrap, topic)

    def test_what_is_not_decided_yet_is_no_lag(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        place = TopicPartition(topic, 0)
        with Producer(bootstrap) as plain, Admin(bootstrap) as admin:
            plain.send(topic, b"before").result()
            admin.alter_group_offsets(group, {place: 0})
            with Producer(bootstrap, transactional_id=new_name()) as producer, producer.transaction():
                producer.send(topic, b"undecided").result()
                plain.send(topic, b"behind").result()
                lag = admin.group_lags(group)[place]
                assert (lag.end_offset, lag.records) == (1, 1)
            lag = eventually(lambda: admin.group_lags(group)[place], lambda lag: lag.end_offset == 4)
            assert lag.records == 3

    def test_what_retention_has_removed_is_no_lag(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        place = TopicPartition(topic, 0)
        write(bootstrap, topic, 10)
        asyncio.run(delete_records(bootstrap, place, 6))
        with Admin(bootstrap) as admin:
            assert admin.find_offsets(topic, EARLIEST) == {0: 6}
            admin.alter_group_offsets(group, {place: 2})
            assert admin.group_lags(group)[place] == (Offset(2), 6, 10, 4)

    def test_progress_is_told_to_the_last_offset(self, bootstrap: str) -> None:
        topic = make_topic(bootstrap, 3)
        write(bootstrap, topic, 30)
        passed: Counter[TopicPartition] = Counter()
        with Admin(bootstrap) as admin:
            ends = admin.find_offsets(topic, LATEST)
            ranges = {TopicPartition(topic, index): (0, end) for index, end in ends.items()}
            counts = admin.count_records(ranges, lambda place, count: passed.update({place: count}))
        assert sum(counts.values()) == 30
        assert passed == counts

    def test_producers_are_fenced(self, bootstrap: str) -> None:
        topic, name = make_topic(bootstrap), new_name()
        with Admin(bootstrap) as admin, Producer(bootstrap, transactional_id=name) as producer:
            with pytest.raises(ProducerFenced):
                self.write_and_be_fenced(admin, producer, topic, name)
            eventually(lambda: admin.describe_transaction(name).state, lambda state: state != "Ongoing")
        assert readable_offsets(bootstrap, topic) == []

    def write_and_be_fenced(self, admin: Admin, producer: Producer, topic: str, name: str) -> None:
        with producer.transaction():
            producer.send(topic, b"lost").result()
            [fenced] = admin.fence_producers([name])
            assert fenced.transactional_id == name
            assert fenced.producer_epoch > 0

    def test_the_same_on_an_event_loop(self, bootstrap: str) -> None:
        topic, group = make_topic(bootstrap), new_name()
        place = TopicPartition(topic, 0)
        write(bootstrap, topic, 2)

        async def use() -> None:
            async with aio.Admin(bootstrap) as admin:
                await admin.alter_group_offsets(group, {place: 1})
                assert (await admin.describe_groups([group]))[0].state == "Empty"
                assert (await admin.group_lags(group))[place].records == 1
                assert await admin.delete_groups([group]) == [group]

        asyncio.run(use())
