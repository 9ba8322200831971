"""Classic groups: who gets in, how generations begin and end, and what lasts."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.classic.join import NEW_MEMBER_TIMEOUT_MS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_and_group_records import GroupMetadataKey, GroupMetadataValue
from tests.coordinator.classic_members import REBALANCE_MS, SESSION_MS, ClassicWorld, subscription


@pytest.fixture
def world() -> ClassicWorld:
    return ClassicWorld()


def group_records(world: ClassicWorld) -> list[GroupMetadataValue | None]:
    return [value for key, value in world.driver.records() if isinstance(key, GroupMetadataKey)]  # type: ignore[misc]


# Joining


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_join_that_cannot_be_leaves_nothing(world: ClassicWorld, options: dict[str, Any], code: ErrorCode) -> None:
    assert world.join(**options).response.error_code == code
    assert not world.driver.machine.groups
    assert not world.driver.log


def test_a_new_member_is_pendingd_an_id_and_joins_with_it(world: ClassicWorld) -> None:
    member_id = world.pending_id()
    assert member_id.startswith("client-")
    assert world.state == "Empty"
    assert world.beat(member_id, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    joined = world.join(member_id)
    assert joined.is_waiting
    world.driver.advance(0)
    assert joined.response.error_code == ErrorCode.NONE
    assert (joined.response.generation_id, joined.response.leader) == (1, member_id)
    assert world.state == "CompletingRebalance"


@pytest.mark.parametrize("version", [b"\xff\xff", b"\x80\x00"])
def test_a_subscription_of_a_version_that_cannot_be_is_not_understood(world: ClassicWorld, version: bytes) -> None:
    joined = world.enter(protocols={"range": version + subscription("t")[2:]})
    world.driver.advance(0)
    assert joined.response.error_code == ErrorCode.NONE
    assert joined.response.generation_id == 1


def test_an_id_that_nobody_uses_is_forgotten(world: ClassicWorld) -> None:
    member_id = world.pending_id()
    world.driver.advance(SESSION_MS)
    assert world.join(member_id).response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members(world: ClassicWorld) -> None:
    [leader] = world.stable(1)
    pending = world.pending_id()
    rejoined = world.join(leader)
    assert rejoined.is_waiting
    joined = world.join(pending)
    assert rejoined.response.generation_id == joined.response.generation_id == 2
    assert len(rejoined.response.members) == 2
    assert joined.response.members == []


def test_the_first_wait_is_extended_while_members_come_up_to_the_rebalance_timeout() -> None:
    world = ClassicWorld(initial_rebalance_delay_ms=3000)
    first = world.enter(rebalance_ms=4000)
    world.driver.advance(1000)
    second = world.enter(rebalance_ms=4000)
    world.driver.advance(2999)
    assert first.is_waiting
    assert second.is_waiting
    world.driver.advance(1)
    assert first.response.generation_id == second.response.generation_id == 1


def test_the_first_wait_ends_when_nobody_came() -> None:
    world = ClassicWorld(initial_rebalance_delay_ms=3000)
    first = world.enter()
    world.driver.advance(2999)
    assert first.is_waiting
    world.driver.advance(1)
    assert first.response.generation_id == 1


def test_a_member_that_waits_too_long_in_its_first_join_is_let_go() -> None:
    world = ClassicWorld(initial_rebalance_delay_ms=2 * NEW_MEMBER_TIMEOUT_MS)
    first = world.enter(rebalance_ms=2 * NEW_MEMBER_TIMEOUT_MS)
    world.driver.advance(NEW_MEMBER_TIMEOUT_MS)
    assert first.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not world.group.members


def test_a_group_takes_no_more_members_than_it_may() -> None:
    world = ClassicWorld(max_size=2)
    first, second = world.stable(2)
    assert world.enter().response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.beat(first, 2) is ErrorCode.NONE
    assert world.state == "Stable"
    assert world.group.member_count == 2
    assert world.beat(second, 2) is ErrorCode.NONE


def test_when_the_limit_was_lowered_the_last_to_join_again_is_left_out() -> None:
    world = ClassicWorld()
    members = world.stable(3)
    world.settings = type(world.settings)(initial_rebalance_delay_ms=0, max_size=2)
    joins = [world.join(member) for member in members]
    assert [asked.response.error_code for asked in joins] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert set(world.group.members) == set(members[:2])


def test_a_group_that_is_loaded_above_the_limit_meets_again() -> None:
    world = ClassicWorld()
    members = world.stable(3)
    world.settings = type(world.settings)(initial_rebalance_delay_ms=0, max_size=2)
    world.driver.crash()
    assert world.state == "PreparingRebalance"
    assert [world.beat(member, world.group.generation) for member in members] == [ErrorCode.REBALANCE_IN_PROGRESS] * 3
    joins = [world.join(member) for member in members]
    assert [asked.response.error_code for asked in joins] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


# Protocols


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ([["range"], ["range"]], "range"),
        ([["sticky", "range"], ["range", "sticky"], ["sticky", "range"]], "sticky"),
        ([["a", "b"], ["b", "c"]], "b"),
        ([["a", "b", "c"], ["c", "b"], ["c", "b"]], "c"),
    ],
)
def test_the_protocol_with_the_most_votes_among_those_all_know(
    world: ClassicWorld, offers: list[list[str]], chosen: str
) -> None:
    def protocols(names: list[str]) -> dict[str, bytes]:
        return {name: subscription("t") for name in names}

    joins = [world.enter(protocols=protocols(names)) for names in offers]
    world.driver.advance(0)
    assert {asked.response.protocol_name for asked in joins} == {chosen}


def test_who_knows_none_of_the_protocols_that_all_know_cannot_join(world: ClassicWorld) -> None:
    world.stable(1)
    refused = world.enter(protocols={"other": b""})
    assert refused.response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = world.enter(protocol_type="connect")
    assert refused.response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.state == "Stable"


# Joining again


def test_the_leader_begins_a_rebalance_and_a_follower_only_with_news(world: ClassicWorld) -> None:
    leader, follower = world.stable(2)
    again = world.join(follower)
    assert (again.response.generation_id, again.response.members) == (2, [])
    assert world.state == "Stable"
    changed = world.join(follower, protocols={"range": subscription("t", "u")})
    assert changed.is_waiting
    assert world.state == "PreparingRebalance"
    assert world.beat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    led = world.join(leader)
    assert led.response.generation_id == 3
    assert [member.member_id for member in led.response.members] == [leader, follower]
    world.assign([leader, follower])
    assert world.join(leader).is_waiting
    assert world.state == "PreparingRebalance"


def test_a_join_whose_answer_was_lost_is_answered_again(world: ClassicWorld) -> None:
    joined = world.enter()
    world.driver.advance(0)
    leader = joined.response.member_id
    again = world.join(leader)
    assert again.response.generation_id == 1
    assert [member.member_id for member in again.response.members] == [leader]
    assert world.state == "CompletingRebalance"


def test_of_two_joins_of_a_member_the_later_one_counts(world: ClassicWorld) -> None:
    leader, follower = world.stable(2)
    first = world.join(leader)
    second = world.join(leader)
    assert first.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.is_waiting
    world.join(follower)
    assert second.response.generation_id == 3


def test_who_does_not_join_in_time_is_out(world: ClassicWorld) -> None:
    leader, follower = world.stable(2, session_ms=2 * REBALANCE_MS)
    led = world.join(leader)
    world.driver.advance(REBALANCE_MS - 1)
    assert led.is_waiting
    world.driver.advance(1)
    assert [member.member_id for member in led.response.members] == [leader]
    assert world.beat(follower, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_one_leads_when_the_leader_does_not_come_back(world: ClassicWorld) -> None:
    leader, follower = world.stable(2, session_ms=2 * REBALANCE_MS)
    joined = world.join(follower, protocols={"range": subscription("u")}, session_ms=2 * REBALANCE_MS)
    world.driver.advance(REBALANCE_MS)
    assert joined.response.leader == follower
    assert world.beat(leader, 3) is ErrorCode.UNKNOWN_MEMBER_ID


# Assignments


def test_the_leaders_assignment_reaches_everybody_and_lasts(world: ClassicWorld) -> None:
    members = world.stable(3)
    assert world.state == "Stable"
    kept = group_records(world)[-1]
    assert kept is not None
    assert {member.member_id: member.assignment for member in kept.members} == {m: m.encode() for m in members}
    assert (kept.generation, kept.protocol, kept.leader) == (2, "range", members[0])
    world.driver.crash()
    for member in members:
        assert world.sync(member, 2).response.assignment == member.encode()
        assert world.beat(member, 2) is ErrorCode.NONE


def test_who_the_leader_leaves_out_gets_nothing(world: ClassicWorld) -> None:
    joins = [world.enter(), world.enter()]
    world.driver.advance(0)
    leader, follower = [asked.response.member_id for asked in joins]
    waiting = world.sync(follower, 1)
    world.sync(leader, 1, {"stranger": b"x"})
    assert waiting.response.assignment == b""


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_name": "other"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_sync_that_does_not_fit(world: ClassicWorld, fields: dict[str, Any], code: ErrorCode) -> None:
    [leader] = world.stable(1)
    asked = {"member_id": leader, "generation": 1, **fields}
    assert world.sync(**asked).response.error_code == code


def test_members_wait_in_vain_when_the_leader_never_syncs(world: ClassicWorld) -> None:
    options: dict[str, Any] = {"session_ms": 2 * REBALANCE_MS}
    joins = [world.enter(**options), world.enter(**options)]
    world.driver.advance(0)
    leader, follower = [asked.response.member_id for asked in joins]
    waiting = world.sync(follower, 1)
    world.driver.advance(REBALANCE_MS)
    assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(world.group.members) == {follower}
    assert world.beat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.state == "PreparingRebalance"


def test_a_member_that_never_fetches_its_assignment_is_out(world: ClassicWorld) -> None:
    options: dict[str, Any] = {"session_ms": 2 * REBALANCE_MS}
    joins = [world.enter(**options), world.enter(**options)]
    world.driver.advance(0)
    leader, follower = [asked.response.member_id for asked in joins]
    world.sync(leader, 1, {leader: b"all"})
    assert world.state == "Stable"
    world.driver.advance(REBALANCE_MS)
    assert world.state == "PreparingRebalance"
    assert set(world.group.members) == {leader}
    assert follower not in world.group.members


def test_a_new_member_ends_a_sync_that_waits(world: ClassicWorld) -> None:
    joins = [world.enter(), world.enter()]
    world.driver.advance(0)
    _, follower = [asked.response.member_id for asked in joins]
    waiting = world.sync(follower, 1)
    world.enter()
    assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.sync(follower, 1).response.error_code == ErrorCode.REBALANCE_IN_PROGRESS


# Sessions


def test_heartbeats_and_commits_keep_a_member_and_silence_ends_it(world: ClassicWorld) -> None:
    first, second = world.stable(2)
    world.driver.advance(SESSION_MS - 1)
    assert world.beat(first, 2) is ErrorCode.NONE
    assert world.commit({0: 1}, member_id=second, epoch=2) == [ErrorCode.NONE]
    world.driver.advance(SESSION_MS - 1)
    assert world.beat(first, 2) is ErrorCode.NONE
    world.driver.advance(1)
    assert set(world.group.members) == {first}
    assert world.state == "PreparingRebalance"
    assert world.beat(first, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_member_leaves_an_empty_group_with_a_record(world: ClassicWorld) -> None:
    [only] = world.stable(1)
    world.driver.advance(SESSION_MS)
    assert world.state == "Empty"
    kept = group_records(world)[-1]
    assert kept is not None
    assert (kept.generation, kept.members, kept.protocol_type, kept.protocol, kept.leader) == (
        2,
        [],
        "consumer",
        None,
        None,
    )
    assert kept.current_state_timestamp == world.driver.now_ms
    assert world.beat(only, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_a_log_tells_of_have_a_whole_session_to_show_up(world: ClassicWorld) -> None:
    first, second = world.stable(2)
    world.driver.advance(SESSION_MS - 1)
    world.driver.crash()
    world.driver.advance(SESSION_MS - 1)
    assert world.beat(first, 2) is ErrorCode.NONE
    world.driver.advance(1)
    assert world.beat(second, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_an_answer_lives(world: ClassicWorld) -> None:
    leader, follower = world.stable(2)
    waiting = world.join(leader, rebalance_ms=5 * SESSION_MS)
    for _ in range(3):
        world.driver.advance(SESSION_MS - 1)
        assert world.beat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.is_waiting
    world.join(follower)
    assert waiting.response.generation_id == 3
    world.driver.advance(SESSION_MS)
    assert not world.group.members


def test_a_new_member_waits_for_the_others_also_in_a_group_that_was_just_loaded(world: ClassicWorld) -> None:
    [old] = world.stable(1)
    world.driver.holds_work = True
    world.driver.crash()
    new = world.enter()
    world.driver.do_work()
    for _ in range(2):
        world.driver.advance(SESSION_MS - 1)
        assert world.beat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert new.is_waiting
    world.join(old)
    assert new.response.generation_id == 2


# Leaving


def test_some_leave_and_the_others_find_together_again(world: ClassicWorld) -> None:
    leader, second, third = world.stable(3)
    codes = world.leave((second, None), ("stranger", None), (second, None), ("", "stranger"))
    assert codes == [ErrorCode.NONE, *[ErrorCode.UNKNOWN_MEMBER_ID] * 3]
    assert world.state == "PreparingRebalance"
    rejoined = [world.join(leader), world.join(third)]
    assert {asked.response.generation_id for asked in rejoined} == {3}


def test_a_pending_id_can_be_given_back(world: ClassicWorld) -> None:
    [leader] = world.stable(1)
    pending = world.pending_id()
    rejoined = world.join(leader)
    assert rejoined.is_waiting
    assert world.leave((pending, None)) == [ErrorCode.NONE]
    assert rejoined.response.generation_id == 2


def test_who_leaves_while_waiting_is_told(world: ClassicWorld) -> None:
    leader, _ = world.stable(2)
    waiting = world.join(leader)
    assert world.leave((leader, None)) == [ErrorCode.NONE]
    assert waiting.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Crashes


def test_who_waits_is_refused_when_the_coordinator_goes(world: ClassicWorld) -> None:
    leader, _ = world.stable(2)
    waiting = world.join(leader)
    world.driver.crash()
    assert waiting.refused is ErrorCode.NOT_COORDINATOR
    assert world.state == "Stable"


def test_an_assignment_that_could_not_be_kept_is_given_to_nobody(world: ClassicWorld) -> None:
    joins = [world.enter(), world.enter()]
    world.driver.advance(0)
    leader, follower = [asked.response.member_id for asked in joins]
    waiting = world.sync(follower, 1)
    world.driver.is_broken = True
    led = world.sync(leader, 1, {leader: b"all"})
    assert led.refused is not None
    assert waiting.refused is not None
    assert world.state == "Empty"
    assert world.beat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
