"""Static members of classic groups: who comes back under the name of an instance goes on where it was."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.wire.errors import ErrorCode
from tests.coordinator.classic_members import REBALANCE_MS, SESSION_MS, ClassicWorld, subscription


@pytest.fixture
def world() -> ClassicWorld:
    return ClassicWorld()


def stable(world: ClassicWorld, *instances: str) -> list[str]:
    joins = [world.join(instance_id=instance) for instance in instances]
    world.driver.advance(0)
    members = [asked.response.member_id for asked in joins]
    world.assign(members)
    assert world.state == "Stable"
    return members


def test_a_static_member_needs_no_pending_id(world: ClassicWorld) -> None:
    [member_id] = stable(world, "one")
    assert member_id.startswith("one-")


def test_a_follower_that_comes_back_disturbs_nobody(world: ClassicWorld) -> None:
    leader, follower = stable(world, "one", "two")
    back = world.join(instance_id="two").response
    assert (back.error_code, back.generation_id, back.leader, back.members) == (0, 1, leader, [])
    assert not back.skip_assignment
    assert back.member_id not in (leader, follower)
    assert world.state == "Stable"
    assert world.sync(back.member_id, 1, instance_id="two").response.assignment == follower.encode()
    assert world.beat(follower, 1, instance_id="two") is ErrorCode.FENCED_INSTANCE_ID
    assert world.beat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_comes_back_is_told_to_assign_nothing(world: ClassicWorld) -> None:
    leader, follower = stable(world, "one", "two")
    back = world.join(instance_id="one").response
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert {member.member_id for member in back.members} == {back.member_id, follower}
    older = world.join(instance_id="one", version=8).response
    assert (older.leader, older.members, older.skip_assignment) == (back.member_id, [], False)
    assert leader not in world.group.members


def test_what_came_back_lasts(world: ClassicWorld) -> None:
    _, follower = stable(world, "one", "two")
    back = world.join(instance_id="two").response.member_id
    world.driver.crash()
    assert world.beat(back, 1, instance_id="two") is ErrorCode.NONE
    assert world.beat(follower, 1, instance_id="two") is ErrorCode.FENCED_INSTANCE_ID


def test_another_subscription_disturbs_nobody_but_another_protocol_does(world: ClassicWorld) -> None:
    one = world.join(instance_id="one", protocols={"range": b"", "sticky": b""})
    world.driver.advance(0)
    world.assign([one.response.member_id])
    changed = world.join(instance_id="one", protocols={"range": subscription("u"), "sticky": b""})
    assert changed.response.generation_id == 1
    assert world.state == "Stable"
    dearer = world.join(instance_id="one", protocols={"sticky": b"", "range": b""})
    assert (dearer.response.generation_id, dearer.response.protocol_name) == (2, "sticky")


def test_what_it_offers_beside_the_record_is_not_in_what_lasts(world: ClassicWorld) -> None:
    one = world.join(instance_id="one", protocols={"range": b"", "sticky": b""})
    world.driver.advance(0)
    world.assign([one.response.member_id])
    back = world.join(instance_id="one", protocols={"range": b"new", "sticky": b""}).response.member_id
    assert world.group.kept.members[back].protocols == [("range", b"new")]
    assert world.group.members[back].protocols == [("range", b"new"), ("sticky", b"")]


def test_a_member_that_comes_back_before_the_assignment_begins_a_rebalance(world: ClassicWorld) -> None:
    joins = [world.join(instance_id=instance) for instance in ("one", "two")]
    world.driver.advance(0)
    leader = joins[0].response.member_id
    waiting = world.sync(joins[1].response.member_id, 1, instance_id="two")
    back = world.join(instance_id="two")
    assert waiting.response.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert back.is_waiting
    assert world.sync(leader, 1, instance_id="one").response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.join(leader, instance_id="one")
    assert back.response.generation_id == 2


def test_a_join_that_waits_is_fenced_by_the_next_of_its_instance(world: ClassicWorld) -> None:
    leader, follower = stable(world, "one", "two")
    waiting = world.join(leader, instance_id="one")
    assert waiting.is_waiting
    again = world.join(instance_id="one")
    assert waiting.response.error_code == ErrorCode.FENCED_INSTANCE_ID
    world.join(follower, instance_id="two")
    assert again.response.generation_id == 2


def test_a_static_member_is_not_left_out_of_a_rebalance_but_its_session_ends(world: ClassicWorld) -> None:
    options: dict[str, Any] = {"session_ms": REBALANCE_MS + SESSION_MS}
    joins = [world.join(instance_id=instance, **options) for instance in ("one", "two")]
    world.driver.advance(0)
    leader, absent = [asked.response.member_id for asked in joins]
    world.assign([leader, absent])
    led = world.join(leader, instance_id="one", **options)
    world.driver.advance(REBALANCE_MS)
    assert {member.member_id for member in led.response.members} == {leader, absent}
    world.sync(leader, 2, {leader: b"all"}, instance_id="one")
    world.driver.advance(REBALANCE_MS)
    assert absent not in world.group.members


def test_a_group_of_static_members_waits_for_one_of_them(world: ClassicWorld) -> None:
    """All are away: nobody can lead, so the next generation waits for one to come, or for all sessions to end."""
    options: dict[str, Any] = {"session_ms": 4 * REBALANCE_MS}
    joins = [world.join(instance_id=instance, **options) for instance in ("one", "two")]
    world.driver.advance(0)
    leader, follower = [asked.response.member_id for asked in joins]
    world.assign([leader, follower])
    assert world.leave(("", "one")) == [ErrorCode.NONE]
    world.driver.advance(2 * REBALANCE_MS)
    assert world.state == "PreparingRebalance"
    back = world.join(instance_id="two", **options)
    assert back.response.leader == back.response.member_id


def test_an_instance_can_be_sent_away_by_its_name(world: ClassicWorld) -> None:
    leader, follower = stable(world, "one", "two")
    codes = world.leave(("", "two"), (leader, "two"), (leader, "stranger"))
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert follower not in world.group.members
    assert world.leave(("other", "one")) == [ErrorCode.FENCED_INSTANCE_ID]


def test_commits_of_a_fenced_instance_are_refused(world: ClassicWorld) -> None:
    [old] = stable(world, "one")
    new = world.join(instance_id="one").response.member_id
    commit: dict[str, Any] = {"epoch": 1, "instance_id": "one"}
    assert world.commit({0: 1}, member_id=old, **commit) == [ErrorCode.FENCED_INSTANCE_ID]
    assert world.commit({0: 2}, member_id=new, **commit) == [ErrorCode.NONE]
    assert world.join(old, instance_id="one").response.error_code == ErrorCode.FENCED_INSTANCE_ID
