"""Who may commit and read offsets of a consumer group, and what the group looks like from outside."""

from __future__ import annotations

import pytest

from ottla.broker.loop.slices import finished
from ottla.coordinator.consumer.describe import describe_consumer_group
from ottla.coordinator.group import Committer, OffsetToCommit
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import DescribedGroup
from tests.coordinator.consumer_members import GROUP, FakeMember, World, settle
from tests.coordinator.mixed_members import ClassicClient, settle_all

NONE, UNKNOWN, STALE, ILLEGAL = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
)


def described(world: World, group_id: str = GROUP) -> DescribedGroup:
    described = describe_consumer_group(world.driver.machine, group_id)
    return described if isinstance(described, DescribedGroup) else finished(described)


@pytest.fixture
def world() -> World:
    """A group of two: a has had the partitions 0 to 2 since epoch 2, and b 3 to 5 since epoch 3."""
    world = World()
    world.add_topic("t", 6)
    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.join()
    b.join()
    settle(a, b)
    return world


def check(
    world: World, member_id: str, epoch: int, number: int = 0, version: int = 9, is_transactional: bool = False
) -> ErrorCode:
    topic_id = world.topics.by_name["t"].topic_id
    committer = Committer(member_id, None, epoch, version, is_transactional)
    return world.group.check_commit(committer, [OffsetToCommit("t", topic_id, number, 0, -1, None)])


@pytest.mark.parametrize(
    ("member_id", "epoch", "number", "code"),
    [
        ("a", 3, 0, NONE),
        ("a", 3, 5, NONE),  # in its epoch a member may commit anything
        ("a", 2, 0, NONE),
        ("a", 2, 5, STALE),
        ("a", 1, 0, STALE),
        ("a", 4, 0, STALE),
        ("b", 2, 3, STALE),
        ("", -1, 0, UNKNOWN),
        ("", 3, 0, UNKNOWN),
        ("nobody", 3, 0, UNKNOWN),
    ],
)
def test_a_commit_belongs_to_a_member_and_its_epoch(
    world: World, member_id: str, epoch: int, number: int, code: ErrorCode
) -> None:
    assert check(world, member_id, epoch, number) is code
    expected = ILLEGAL if code is STALE else code
    if (member_id, epoch) == ("", -1):
        expected = NONE  # older transactional producers do not say whose offsets they commit
    assert check(world, member_id, epoch, number, is_transactional=True) is expected


def test_what_a_member_is_letting_go_of_may_be_committed(world: World) -> None:
    FakeMember(world, "c").join()
    a = FakeMember(world, "a")
    a.epoch = 3
    a.beat()
    assert world.group.members["a"].progress.revoking
    assert check(world, "a", 2, 2) is NONE


def test_older_versions_cannot_tell_epochs(world: World) -> None:
    assert check(world, "a", 3, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert check(world, "a", 3, version=3, is_transactional=True) is NONE


def test_an_empty_group_takes_commits_from_anybody(world: World) -> None:
    for name in ("a", "b"):
        FakeMember(world, name).leave()
    assert check(world, "", -1) is NONE
    assert check(world, "", 3) is UNKNOWN


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [(None, -1, NONE), ("a", 3, NONE), ("a", 2, STALE), ("a", 4, STALE), ("", -1, UNKNOWN), ("x", 3, UNKNOWN)],
)
def test_reading_offsets_needs_the_epoch_if_a_member_asks(
    world: World, member_id: str | None, epoch: int, code: ErrorCode
) -> None:
    assert world.group.check_fetch(member_id, epoch) is code


def test_classic_members_are_told_of_generations() -> None:
    world = World()
    world.add_topic("t", 6)
    a, b = ClassicClient(world, "a"), FakeMember(world, "b")
    settle_all(world, a)
    settle_all(world, a, b)
    assert check(world, a.member_id, a.generation, version=2) is NONE
    assert check(world, a.member_id, a.generation + 1) is ILLEGAL
    assert world.group.check_fetch(a.member_id, a.generation - 1) is ILLEGAL


def test_a_group_is_subscribed_to_what_its_members_name(world: World) -> None:
    assert world.group.is_subscribed_to("t")
    assert not world.group.is_subscribed_to("u")
    for name in ("a", "b"):
        FakeMember(world, name).leave()
    assert not world.group.is_subscribed_to("t")


def test_a_description_shows_what_members_have_and_are_to_have(world: World) -> None:
    FakeMember(world, "c", ["t", "gone"], rack_id="r", server_assignor="range").join()
    a = FakeMember(world, "a")
    a.epoch = 3
    a.beat()
    group = described(world)
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Reconciling", 4, 4)
    assert group.assignor_name == "range"
    shown = {
        member.member_id: (
            member.member_epoch,
            [part.partitions for part in member.assignment.topic_partitions],
            [part.partitions for part in member.target_assignment.topic_partitions],
        )
        for member in group.members
    }
    assert shown == {"a": (3, [[0, 1, 2]], [[0, 1]]), "b": (3, [[3, 4, 5]], [[2, 3]]), "c": (4, [], [[4, 5]])}
    c = group.members[2]
    assert (c.rack_id, c.subscribed_topic_names, c.subscribed_topic_regex, c.member_type) == ("r", ["gone", "t"], "", 1)


def test_topics_that_are_gone_are_not_shown(world: World) -> None:
    world.topics.remove("t")
    group = described(world)
    assert [member.assignment.topic_partitions for member in group.members] == [[], []]


def test_what_is_no_consumer_group_is_not_described(world: World) -> None:
    assert described(world, "x").error_message == "Group x not found."


def test_tombstones_leave_nothing_behind(world: World) -> None:
    for name in ("a", "b"):
        FakeMember(world, name).leave()
    world.record_types()
    world.driver.run(lambda machine, operation: machine.groups[GROUP].write_tombstones(operation))
    assert world.record_types() == [
        "-ConsumerGroupTargetAssignmentMetadata",
        "-ConsumerGroupPartitionMetadata",
        "-ConsumerGroupMetadata",
    ]
    assert GROUP not in world.driver.machine.groups
    world.driver.crash()
    assert GROUP not in world.driver.machine.groups
