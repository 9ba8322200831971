"""Classic groups of very many members, or of members that tell very much: others have their turn in between."""

from __future__ import annotations

import struct

import pytest

from ottla.coordinator.classic import join
from ottla.coordinator.classic.generation import ClassicState
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.join import MOST_PROTOCOLS
from ottla.coordinator.classic.rebalance import ANSWERED_AT_ONCE
from ottla.coordinator.consumer.migration import MOST_MEMBERS
from ottla.coordinator.told import MOST_BYTES
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.coordinator.classic_members import REBALANCE_MS, ClassicWorld, subscription
from tests.coordinator.consumer_members import CLIENT, GROUP, FakeMember, World
from tests.coordinator.driver import Asked
from tests.coordinator.mixed_members import ClassicClient, settle_all

MANY = 3 * ANSWERED_AT_ONCE
TELLING = [f"topic-{number}" for number in range(200)]  # some 2 KB


@pytest.fixture
def world() -> ClassicWorld:
    return ClassicWorld(initial_rebalance_delay_ms=1000)


def come_together(world: ClassicWorld, count: int = MANY, **options: dict[str, bytes]) -> list[Asked]:
    """All are in the first generation, and nobody was told yet."""
    world.driver.holds_work = True
    joins = [world.enter(**options) for _ in range(count)]
    while world.group.state is ClassicState.PREPARING:
        world.driver.advance(1000)
    return joins


def answered(asked: list[Asked]) -> list[Asked]:
    return [each for each in asked if not each.is_waiting]


def test_members_are_told_some_at_a_time_who_leads_first(world: ClassicWorld) -> None:
    joins = come_together(world)
    assert world.state == "CompletingRebalance"
    assert not answered(joins)
    while not (told := answered(joins)):
        world.driver.do_work(1)
    assert len(told) == ANSWERED_AT_ONCE
    leaders = [each.response for each in told if each.response.members]
    assert [len(leader.members) for leader in leaders] == [MANY]
    assert world.group.leader_id == leaders[0].member_id
    world.driver.do_work()
    assert {each.response.generation_id for each in joins} == {1}
    assert world.group.topics == {"t"}


def test_assignments_are_told_some_at_a_time(world: ClassicWorld) -> None:
    joins = come_together(world)
    world.driver.do_work()
    leader = world.group.leader_id
    assert leader is not None
    followers = [each.response.member_id for each in joins if each.response.member_id != leader]
    waiting = [world.sync(member_id, 1) for member_id in followers]
    led = world.sync(leader, 1, {member_id: member_id.encode() for member_id in [leader, *followers]})
    assert world.state == "Stable"
    assert not answered([led, *waiting])
    world.driver.do_work(1)
    assert led.response.assignment == leader.encode()
    assert len(answered(waiting)) == ANSWERED_AT_ONCE - 1
    late = followers[-1]  # who asks in the middle is told at once
    assert world.sync(late, 1).response.assignment == late.encode()
    world.driver.do_work()
    told = [each.response.assignment or each.response.error_code for each in waiting]
    assert told == [*(member_id.encode() for member_id in followers[:-1]), late.encode()]


def test_a_rebalance_in_the_middle_takes_along_who_was_not_told(world: ClassicWorld) -> None:
    joins = come_together(world)
    while len(answered(joins)) < ANSWERED_AT_ONCE:
        world.driver.do_work(1)
    told = [each.response.member_id for each in answered(joins)]
    newcomer = world.enter()
    assert world.state == "PreparingRebalance"
    world.driver.do_work()
    assert len(answered(joins)) == ANSWERED_AT_ONCE
    again = [world.join(member_id) for member_id in told]
    world.driver.do_work()
    everybody = [each for each in joins if each.response.member_id not in told] + [*again, newcomer]
    assert {(each.response.error_code, each.response.generation_id) for each in everybody} == {(0, 2)}


def test_who_leaves_or_dies_before_it_was_told(world: ClassicWorld) -> None:
    joins = come_together(world)
    *_, last = world.group.members
    world.leave((last, None))
    assert sum(not each.is_waiting for each in joins) == 1
    world.driver.do_work()  # of the generation before
    world.driver.advance(REBALANCE_MS)
    world.driver.do_work()
    assert not [each for each in joins if each.is_waiting]


def test_a_coordinator_that_goes_in_the_middle_refuses_who_was_not_told(world: ClassicWorld) -> None:
    joins = come_together(world)
    while not answered(joins):
        world.driver.do_work(1)
    world.driver.crash()
    refused = [each for each in joins if each.refused is ErrorCode.NOT_COORDINATOR]
    assert len(refused) == MANY - ANSWERED_AT_ONCE


def test_a_group_has_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "MOST_MEMBERS", 2)
    world = ClassicWorld()
    world.stable(2)
    assert world.enter().response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.group.member_count == 2


# What members tell


def test_what_very_many_members_read_is_found_in_steps(world: ClassicWorld) -> None:
    joins = come_together(world, 50, protocols={"range": subscription("t", *TELLING)})
    steps = 0
    while not answered(joins):
        assert world.group.current.topics is None  # so that none of their offsets is deleted meanwhile
        assert world.group.is_subscribed_to("anything")
        world.driver.do_work(1)
        steps += 1
    assert steps > 2
    assert world.group.topics == {"t", *TELLING}


@pytest.mark.parametrize(
    "told",
    [
        struct.pack(">hi", 0, 400_000) + bytes(2 * 400_000) + struct.pack(">i", -1),  # empty names
        subscription("t") + bytes(MOST_BYTES),
    ],
)
def test_a_subscription_that_is_too_long_is_not_looked_into(world: ClassicWorld, told: bytes) -> None:
    joins = come_together(world, 1, protocols={"range": told})
    world.driver.do_work()
    assert joins[0].response.error_code == ErrorCode.NONE
    assert world.group.current.topics is None


def test_a_member_offers_few_protocols(world: ClassicWorld) -> None:
    protocols = {str(number): b"" for number in range(MOST_PROTOCOLS + 1)}
    assert world.enter(protocols=protocols).response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_members_are_known_by_what_they_told_last_after_a_restart() -> None:
    world = ClassicWorld()
    [member] = world.stable(1)
    again = world.join(member, protocols={"range": subscription("t", "u")})
    world.driver.advance(0)
    world.sync(member, again.response.generation_id, {member: b"all"})
    assert world.group.topics == {"t", "u"}
    world.driver.crash()
    assert world.group.topics == {"t", "u"}
    assert world.group.members[member].metadata("range") == subscription("t", "u")


# The other protocol


def test_a_group_that_is_too_large_stays_classic(world: ClassicWorld) -> None:
    come_together(world, MOST_MEMBERS + 1)
    world.driver.do_work()
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="new",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    asked = world.driver.ask(
        lambda machine, operation, reply: machine.consumer_heartbeat(operation, reply, request, 1, CLIENT)
    )
    assert asked.response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "too large" in asked.response.error_message
    assert world.state == "CompletingRebalance"


def test_a_group_that_is_too_large_goes_back_to_the_classic_protocol_when_it_is_smaller() -> None:
    world = World()
    world.add_topic("t", 6)
    old, new = ClassicClient(world, "old"), FakeMember(world, "new")
    settle_all(world, old)
    new.join()
    settle_all(world, old, new)
    more = [ClassicClient(world, f"more-{number}") for number in range(MOST_MEMBERS)]
    for client in more:
        client.member_id = client.ask_join(version=3).response.member_id
    new.leave()
    assert world.group.is_all_classic  # it goes on as it is
    assert old.step()
    assert old.refused is None
    for client in more[:2]:
        client.leave()
    assert isinstance(world.driver.machine.groups[GROUP], ClassicGroup)
