"""Static members keep their place over a restart."""

from __future__ import annotations

import pytest

from ottla.wire.errors import ErrorCode
from tests.coordinator.consumer_members import FakeMember, World, settle


@pytest.fixture
def world() -> World:
    world = World()
    world.add_topic("t", 6)
    return world


def static(world: World, member_id: str) -> FakeMember:
    return FakeMember(world, member_id, instance_id="i")


def test_a_static_member_that_comes_back_has_what_it_had(world: World) -> None:
    a, b = static(world, "a"), FakeMember(world, "b")
    a.join()
    b.join()
    settle(a, b)
    response = a.leave(-2)
    assert (response.member_epoch, response.heartbeat_interval_ms) == (-2, 0)
    assert world.group.state_name == "Reconciling"
    assert b.beat().assignment is None
    assert a.beat(member_epoch=3).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    world.record_types()
    again = static(world, "a2")
    assert again.join().member_epoch == 3
    assert again.numbers == [0, 1, 2]
    assert (world.group.epoch, set(world.group.members), world.group.state_name) == (3, {"a2", "b"}, "Stable")
    assert world.record_types() == [
        "-ConsumerGroupCurrentMemberAssignment",
        "-ConsumerGroupTargetAssignmentMember",
        "-ConsumerGroupMemberMetadata",
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupCurrentMemberAssignment",
        "ConsumerGroupCurrentMemberAssignment",
    ]
    world.driver.advance(44_000)
    again.beat()
    world.driver.advance(44_000)
    assert set(world.group.members) == {"a2"}, "the session of the old id is nobody's"


def test_a_static_member_that_does_not_come_back_is_removed_with_its_session(world: World) -> None:
    a = static(world, "a")
    a.join()
    a.leave(-2)
    world.driver.advance(44_999)
    assert "a" in world.group.members
    world.driver.advance(1)
    assert world.group.is_empty


@pytest.mark.parametrize("crashes", [False, True])
def test_one_that_leaves_for_a_while_need_not_let_go_in_time(world: World, crashes: bool) -> None:
    """What it had to give up, it has given up by leaving: only its session counts."""
    a, b = FakeMember(world, "a", instance_id="i", rebalance_timeout_ms=5000), FakeMember(world, "b")
    a.join()
    b.join()
    assert len(a.beat().assignment.topic_partitions[0].partitions) == 3  # type: ignore[union-attr]
    a.leave(-2)
    if crashes:
        world.driver.crash()
    world.driver.advance(40_000)
    b.beat()
    again = static(world, "a2")
    again.join()
    assert again.numbers == [0, 1, 2]
    settle(again, b)
    assert sorted([*again.numbers, *b.numbers]) == list(range(6))


def test_one_that_comes_back_with_another_subscription_begins_an_epoch(world: World) -> None:
    world.add_topic("u", 2)
    a = static(world, "a")
    a.join()
    a.leave(-2)
    again = FakeMember(world, "a2", ["u"], instance_id="i")
    assert again.join().member_epoch == 3
    assert again.owned == {world.topics.by_name["u"].topic_id: {0, 1}}


def test_one_that_leaves_for_good_is_gone(world: World) -> None:
    a = static(world, "a")
    a.join()
    assert a.leave(-1).member_epoch == -1
    assert world.group.is_empty
    assert world.group.epoch == 3


@pytest.mark.parametrize("member_id", ["a", "b"])
def test_an_instance_that_is_in_use_cannot_be_taken(world: World, member_id: str) -> None:
    static(world, "a").join()
    assert static(world, member_id).join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID


@pytest.mark.parametrize("epoch", [2, -1, -2])
def test_an_instance_speaks_only_for_its_owner(world: World, epoch: int) -> None:
    static(world, "a").join()
    FakeMember(world, "b").join()
    b = FakeMember(world, "b", instance_id="i")
    assert b.beat(member_epoch=epoch).error_code == ErrorCode.FENCED_INSTANCE_ID
    b = FakeMember(world, "b", instance_id="nobody's")
    assert b.beat(member_epoch=epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_crash_while_it_is_away_changes_nothing(world: World) -> None:
    a = static(world, "a")
    a.join()
    a.leave(-2)
    world.driver.crash()
    again = static(world, "a2")
    again.join()
    assert (again.epoch, again.numbers) == (2, [0, 1, 2, 3, 4, 5])
