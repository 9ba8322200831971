"""Members of a consumer group join, walk to their targets, change their minds, and leave."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.consumer.settings import ConsumerSettings
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.coordinator.consumer_members import GROUP, FakeMember, World, settle


@pytest.fixture
def world() -> World:
    world = World()
    world.add_topic("t", 6)
    return world


def test_the_first_member_gets_everything_in_epoch_two(world: World) -> None:
    a = FakeMember(world, "a")
    response = a.join()
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("a", 2, 5000)
    assert a.numbers == [0, 1, 2, 3, 4, 5]
    assert world.group.state_name == "Stable"
    assert world.record_types() == [
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment",
    ]


def test_a_heartbeat_that_brings_nothing_new_writes_nothing_and_carries_no_assignment(world: World) -> None:
    a = FakeMember(world, "a")
    a.join()
    world.record_types()
    response = a.beat()
    assert (response.member_epoch, response.assignment) == (2, None)
    assert world.record_types() == []


def test_a_full_heartbeat_is_told_everything_again(world: World) -> None:
    a = FakeMember(world, "a")
    a.join()
    told = a.told_owned()
    response = a.beat(rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=told)
    assert response.assignment is not None
    assert world.record_types()[5:] == []


def test_partitions_change_hands_only_after_their_owner_let_go(world: World) -> None:
    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.join()
    assert b.join().member_epoch == 3
    assert b.numbers == []
    assert world.group.state_name == "Reconciling"
    response = a.beat()
    assert (response.member_epoch, a.numbers) == (2, [0, 1, 2]), "it is told to let go, and stays in its epoch"
    assert b.beat().assignment is None
    assert a.beat().member_epoch == 2, "it does not say what it works on"
    response = a.acknowledge()
    assert (response.member_epoch, response.assignment) == (3, None)
    assert b.beat().assignment is not None
    assert b.numbers == [3, 4, 5]
    assert world.group.state_name == "Stable"


def test_members_that_join_together_are_assigned_together() -> None:
    world = World(ConsumerSettings(assignment_interval_ms=1000))
    world.add_topic("t", 6)
    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.join()
    response = b.join()
    assert (response.member_epoch, b.numbers) == (2, [])
    assert world.group.state_name == "Assigning"
    world.driver.advance(1000)
    settle(a, b)
    assert (a.epoch, b.epoch, a.numbers, b.numbers) == (3, 3, [0, 1, 2], [3, 4, 5])


def test_unsubscribing_takes_partitions_away_at_once(world: World) -> None:
    world.settings = ConsumerSettings(assignment_interval_ms=1000)
    a = FakeMember(world, "a")
    a.join()
    response = a.beat(subscribed_topic_names=[])
    assert response.assignment is not None
    assert response.assignment.topic_partitions == []
    assert response.member_epoch == 2
    world.driver.advance(1000)
    assert a.acknowledge().member_epoch == 3


@pytest.mark.parametrize(
    ("epoch", "owned", "code"),
    [
        (3, None, ErrorCode.NONE),
        (4, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, [0, 1], ErrorCode.NONE),
        (2, [0, 5], ErrorCode.FENCED_MEMBER_EPOCH),
        (1, [], ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_a_member_must_be_in_its_epoch_unless_it_missed_an_answer(
    world: World, epoch: int, owned: list[int] | None, code: ErrorCode
) -> None:
    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.join()
    b.join()
    settle(a, b)
    topic_id = next(iter(a.owned))
    a.owned = {topic_id: set(owned or ())}
    response = a.beat(member_epoch=epoch, topic_partitions=None if owned is None else a.told_owned())
    assert response.error_code == code
    if code is ErrorCode.NONE:
        assert (response.member_epoch, response.assignment) == (3, None)


def test_a_member_that_joins_again_keeps_its_partitions(world: World) -> None:
    a = FakeMember(world, "a")
    a.join()
    world.record_types()
    assert a.join().member_epoch == 2
    assert a.numbers == [0, 1, 2, 3, 4, 5]
    assert world.record_types() == []


def test_leaving_gives_partitions_to_the_others(world: World) -> None:
    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.join()
    b.join()
    settle(a, b)
    world.record_types()
    response = a.leave()
    assert (response.member_epoch, response.heartbeat_interval_ms, response.assignment) == (-1, 0, None)
    assert world.record_types() == [
        "-ConsumerGroupCurrentMemberAssignment",
        "-ConsumerGroupTargetAssignmentMember",
        "-ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadata",
    ]
    assert a.beat(member_epoch=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    settle(b)
    assert (b.epoch, b.numbers) == (4, [0, 1, 2, 3, 4, 5])
    b.leave()
    assert world.group.state_name == "Empty"


def test_a_member_that_is_not_heard_of_is_removed(world: World) -> None:
    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.join()
    b.join()
    settle(a, b)
    world.driver.advance(44_000)
    b.beat()
    world.driver.advance(1000)
    assert set(world.group.members) == {"b"}
    settle(b)
    assert b.numbers == [0, 1, 2, 3, 4, 5]


def test_a_member_that_does_not_let_go_in_time_is_removed_though_it_beats(world: World) -> None:
    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.join(rebalance_timeout_ms=6000)
    b.join()
    for _ in range(6):
        assert a.beat().error_code == ErrorCode.NONE
        world.driver.advance(1000)
    assert a.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    settle(b)
    assert b.numbers == [0, 1, 2, 3, 4, 5]


def test_one_that_let_go_in_time_stays(world: World) -> None:
    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.join(rebalance_timeout_ms=6000)
    b.join()
    a.beat()
    a.acknowledge()
    world.driver.advance(10_000)
    assert a.beat().error_code == ErrorCode.NONE


def test_changes_of_topics_reach_a_group_with_its_next_heartbeat(world: World) -> None:
    a = FakeMember(world, "a", ["t", "later"])
    a.join()
    world.topics.by_name["t"].partition_count = 8
    world.change_topic("t")
    assert (world.group.epoch, a.beat().member_epoch) == (2, 3)
    assert a.numbers == list(range(8))
    world.add_topic("later", 1)
    assert a.beat().member_epoch == 4
    assert len(a.numbers) == 9
    world.topics.remove("t")
    world.change_topic("t")
    response = a.beat()
    assert (response.member_epoch, a.numbers) == (4, [0])
    assert a.acknowledge().member_epoch == 5


def test_a_topic_of_others_is_no_news(world: World) -> None:
    a = FakeMember(world, "a")
    a.join()
    world.add_topic("other", 1)
    assert a.beat().member_epoch == 2


def test_most_members_decide_on_the_assignor(world: World) -> None:
    world.add_topic("u", 3)
    members = [FakeMember(world, name, ["t", "u"], server_assignor="range") for name in ("a", "b")]
    members.append(FakeMember(world, "c", ["t", "u"]))
    for member in members:
        member.join()
    settle(*members)
    t, u = (world.topics.by_name[name].topic_id for name in "tu")
    assert [member.owned for member in members] == [{t: {0, 1}, u: {0}}, {t: {2, 3}, u: {1}}, {t: {4, 5}, u: {2}}]


def test_a_group_that_is_full_takes_nobody_in(world: World) -> None:
    world.settings = ConsumerSettings(max_size=1)
    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.join()
    response = b.join()
    assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == (None, 0, 0)
    assert a.join().error_code == ErrorCode.NONE


def test_in_version_0_the_broker_makes_up_the_id(world: World) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    response = world.beat(request, version=0)
    assert response.error_code == ErrorCode.NONE
    assert response.member_id is not None
    assert len(response.member_id) == 22


INVALID = ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"member_id": ""}, INVALID, "MemberId can't be empty."),
        ({"group_id": ""}, INVALID, "GroupId can't be empty."),
        ({"instance_id": ""}, INVALID, "InstanceId can't be empty."),
        ({"rack_id": ""}, INVALID, "RackId can't be empty."),
        (
            {"subscribed_topic_names": [f"t{number}" for number in range(10_001)]},
            INVALID,
            "SubscribedTopicNames has more than 10000 names. Use SubscribedTopicRegex.",
        ),
        ({"rebalance_timeout_ms": -1}, INVALID, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, INVALID, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            INVALID,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, INVALID, "InstanceId can't be null."),
        ({"member_epoch": -3}, INVALID, "MemberEpoch is invalid."),
        (
            {"server_assignor": "best"},
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor best is not supported. Supported assignors: uniform, range.",
        ),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found."),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
    ],
)
def test_what_cannot_be_is_refused_in_kafkas_words(
    world: World, fields: dict[str, Any], code: ErrorCode, message: str
) -> None:
    response = FakeMember(world, "a").join(**fields)
    assert (response.error_code, response.error_message) == (code, message)
    assert world.driver.log == []
