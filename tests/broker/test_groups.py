"""Classic groups and offsets through a whole broker, in simulated time: what lasts, and what goes with topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordinators.asked_offsets import COMMITTED_AT_ONCE
from ottla.broker.quotas.quotas import REQUEST_PERCENTAGE, client_entity
from ottla.testing.simulated_client import SimulatedClient
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.uuids import ZERO_UUID
from ottla.wire.versioned import encode_versioned
from tests.sim.simulated_broker import SimulatedBroker

TOPIC, GROUP = "t", "g"
SESSION_SECONDS = 10
LAST_WITH_NAMES = 9
TOPIC_RESOURCE = 2

Start = Callable[..., SimulatedBroker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[SimulatedBroker] = []

    def started(**options: Any) -> SimulatedBroker:
        few: dict[str, Any] = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "7"}
        broker = SimulatedBroker(tmp_path, **{**few, **options})
        running.append(broker)
        return broker

    yield started
    running[-1].stop()


def killed(broker: SimulatedBroker, start: Start, **options: Any) -> SimulatedBroker:
    """The broker that takes the place of one that was killed, when it has loaded its groups."""
    broker.abandon()
    successor = start(files=broker.files, **options)
    successor.system.run_until(successor.loop, lambda: not successor.broker.groups.is_loading, 60)
    return successor


def commit(client: SimulatedClient, offset: int, *, group: str = GROUP, partition: int = 0, **member: Any) -> ErrorCode:
    partitions = [
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    ]
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member.get("member_id", ""),
        generation_id_or_member_epoch=member.get("generation", -1),
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
    )
    return ErrorCode(client.ask(request, LAST_WITH_NAMES).topics[0].partitions[0].error_code)


def committed(client: SimulatedClient, *groups: str) -> list[int]:
    """The offset of partition 0, by group."""
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=topics) for name in groups])
    answer = client.ask(request, LAST_WITH_NAMES)
    assert [group.group_id for group in answer.groups] == list(groups)
    return [group.topics[0].partitions[0].committed_offset for group in answer.groups]


def join_request(member_id: str = "") -> JoinGroupRequest:
    metadata = encode_versioned(ConsumerProtocolSubscription(topics=[TOPIC]), 0)
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_SECONDS * 1000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def stable_member(client: SimulatedClient) -> str:
    """The one member of a group that is at work."""
    member_id: str = client.ask(join_request(), 3).member_id
    assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")]
    request = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=member_id, assignments=assignments)
    assert client.ask(request, 4).assignment == b"all"
    return member_id


def beat(client: SimulatedClient, member_id: str) -> ErrorCode:
    request = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    return ErrorCode(client.ask(request).error_code)


@pytest.mark.parametrize("syncs", [False, True])
def test_a_group_and_its_offsets_outlive_the_broker(start: Start, syncs: bool) -> None:
    broker = start(syncs=syncs)
    broker.create(TOPIC)
    client = broker.client()
    member_id = stable_member(client)
    assert commit(client, 5, member_id=member_id, generation=1) is ErrorCode.NONE
    assert commit(client, 7, group="other") is ErrorCode.NONE

    broker = killed(broker, start, syncs=syncs)
    client = broker.client()
    assert committed(client, GROUP, "other", "nobody") == [5, 7, -1]
    assert beat(client, member_id) is ErrorCode.NONE
    broker.advance(SESSION_SECONDS + 1)
    assert beat(client, member_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_of_very_many_partitions_is_answered_whole_and_in_order(start: Start) -> None:
    count = 2 * COMMITTED_AT_ONCE + 1
    broker = start()
    broker.create(TOPIC, partitions=count)
    client = broker.client()
    indexes = [*range(count), count]  # the last one is not there
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=7 * index, committed_metadata="")
        for index in indexes
    ]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    answer = client.ask(OffsetCommitRequest(group_id=GROUP, member_id="", topics=topics), LAST_WITH_NAMES).topics[0]
    assert [row.partition_index for row in answer.partitions] == indexes
    codes = [row.error_code for row in answer.partitions]
    assert codes == [ErrorCode.NONE] * count + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    asked = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=indexes[:-1])]
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=asked)])
    found = client.ask(fetch, LAST_WITH_NAMES).groups[0].topics[0].partitions
    assert {row.partition_index: row.committed_offset for row in found} == {n: 7 * n for n in range(count)}


def test_the_topic_of_offsets_is_made_as_apache_kafka_makes_it(start: Start) -> None:
    broker = start(offsets_topic_num_partitions="50")
    client = broker.client()
    [found] = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])).coordinators
    assert (found.error_code, found.node_id, found.port) == (0, 1, broker.broker.address.port)
    [topic] = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")])).topics
    assert topic.is_internal
    assert len(topic.partitions) == 50
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name="__consumer_offsets", configuration_keys=None
    )
    [described] = client.ask(DescribeConfigsRequest(resources=[resource])).results
    configs = {config.name: config.value for config in described.configs}
    assert configs["cleanup.policy"] == "compact"
    assert configs["compression.type"] == "producer"
    assert configs["segment.bytes"] == "104857600"


def test_offsets_go_with_their_topic_also_if_it_is_made_again_at_once(start: Start) -> None:
    broker = start()
    broker.create(TOPIC)
    client = broker.client()
    commit(client, 5)
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC, topic_id=ZERO_UUID)], timeout_ms=1000))
    broker.create(TOPIC)
    assert committed(client, GROUP) == [-1]
    broker = killed(broker, start)
    assert committed(broker.client(), GROUP) == [-1]


def test_members_see_new_partitions_in_the_metadata_and_may_commit_for_them(start: Start) -> None:
    """Classic members find out by themselves that there is more to share out."""
    broker = start()
    broker.create(TOPIC)
    client = broker.client()
    member_id = stable_member(client)
    unknown = commit(client, 1, partition=1, member_id=member_id, generation=1)
    assert unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client.ask(
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)], timeout_ms=1000, validate_only=False
        )
    )
    [topic] = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])).topics
    assert len(topic.partitions) == 2
    assert commit(client, 1, partition=1, member_id=member_id, generation=1) is ErrorCode.NONE


def test_groups_of_all_partitions_are_listed_described_and_deleted(start: Start) -> None:
    broker = start()
    broker.create(TOPIC)
    client = broker.client()
    names = [f"group {number}" for number in range(20)]
    for number, name in enumerate(names):
        assert commit(client, number, group=name) is ErrorCode.NONE
    member_id = stable_member(client)
    listed = {group.group_id: group.group_state for group in client.ask(ListGroupsRequest()).groups}
    assert listed == {**dict.fromkeys(names, "Empty"), GROUP: "Stable"}
    only = client.ask(ListGroupsRequest(states_filter=["stable"])).groups
    assert [group.group_id for group in only] == [GROUP]
    described = client.ask(DescribeGroupsRequest(groups=[*names, GROUP])).groups
    assert [group.group_id for group in described] == [*names, GROUP]
    [member] = described[-1].members
    assert (member.member_id, member.client_id, member.member_assignment) == (member_id, "simulated", b"all")
    results = client.ask(DeleteGroupsRequest(groups_names=[*names, GROUP, "nobody"])).results
    codes = {result.group_id: result.error_code for result in results}
    refused = {GROUP: ErrorCode.NON_EMPTY_GROUP, "nobody": ErrorCode.GROUP_ID_NOT_FOUND}
    assert codes == {**dict.fromkeys(names, ErrorCode.NONE), **refused}
    broker = killed(broker, start)
    assert [group.group_id for group in broker.client().ask(ListGroupsRequest()).groups] == [GROUP]


def test_a_join_that_waits_is_refused_when_the_broker_stops(start: Start) -> None:
    broker = start(group_initial_rebalance_delay_ms="60000")
    client = broker.client()
    number = client.send(join_request(), 3)
    broker.advance(1)
    client.step()
    assert number not in client.answers
    broker.broker.groups.stop()
    broker.advance(0.1)
    client.step()
    assert client.answers[number].error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]


def test_a_client_over_its_quota_is_told_so_now_and_later(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = start(group_initial_rebalance_delay_ms="5000")
    client = broker.client()
    broker.broker.quotas.set_limits(client_entity("simulated"), {REQUEST_PERCENTAGE: 1})
    monkeypatch.setattr(broker.broker, "throttle", lambda _kind, _context, amount: 77 + int(amount))
    assert client.ask(HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")).throttle_time_ms == 77
    assert client.ask(join_request(), 3).throttle_time_ms == 77
    assert client.ask(ListGroupsRequest()).throttle_time_ms == 77


def test_settings_of_groups_are_obeyed(start: Start) -> None:
    broker = start(group_min_session_timeout_ms="20000", offset_metadata_max_bytes="0")
    client = broker.client()
    assert client.ask(join_request(), 3).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_limits_and_sessions_of_consumer_groups_are_obeyed(start: Start) -> None:
    broker = start(group_consumer_max_size="1", group_consumer_session_timeout_ms="45000", group_max_size="1")
    broker.create(TOPIC)
    client = broker.client()

    def beat(member_id: str, epoch: int, group: str = GROUP) -> tuple[ErrorCode, int]:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        answer = client.ask(request)
        return ErrorCode(answer.error_code), answer.member_epoch

    assert beat("a", 0) == (ErrorCode.NONE, 2)
    assert beat("b", 0) == (ErrorCode.GROUP_MAX_SIZE_REACHED, 0)
    broker.advance(44)
    assert beat("a", 2) == (ErrorCode.NONE, 2)
    broker.advance(44)
    assert beat("b", 0) == (ErrorCode.GROUP_MAX_SIZE_REACHED, 0)
    broker.advance(2)  # now nothing was heard of the first one for too long
    assert beat("b", 0)[0] is ErrorCode.NONE
    assert beat("a", 2)[0] is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_old_offsets_go_after_their_time(start: Start) -> None:
    broker = start(offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")
    broker.create(TOPIC)
    client = broker.client()
    commit(client, 5)
    broker.advance(59)
    assert committed(client, GROUP) == [5]
    broker.advance(3)
    assert committed(client, GROUP) == [-1]
    assert client.ask(ListGroupsRequest()).groups == []
