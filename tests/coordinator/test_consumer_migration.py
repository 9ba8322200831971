"""Groups change from the classic to the consumer protocol and back, member by member, and everybody works on."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.settings import ConsumerSettings, MigrationPolicy
from ottla.coordinator.consumer.target import FEW
from ottla.coordinator.consumer.timers import JOIN, SYNC
from ottla.coordinator.group import GroupSettings
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.versioned import encode_versioned
from tests.coordinator.consumer_members import GROUP, FakeMember, World
from tests.coordinator.mixed_members import ClassicClient, settle_all

EVERYTHING = list(range(6))


@pytest.fixture
def world() -> World:
    world = World()
    world.add_topic("t", 6)
    return world


def with_policy(policy: MigrationPolicy, max_size: int = 100) -> World:
    world = World(ConsumerSettings(assignment_interval_ms=0, migration_policy=policy, max_size=max_size))
    world.add_topic("t", 6)
    return world


def group_type(world: World) -> type:
    return type(world.driver.machine.groups[GROUP])


def all_numbers(*members: ClassicClient | FakeMember) -> list[int]:
    return sorted(number for member in members for number in member.numbers)


def crash(world: World, *members: ClassicClient | FakeMember) -> None:
    """Classic groups forget that somebody left until they have rebalanced: then only its session tells."""
    world.driver.crash()
    for _ in range(4):
        settle_all(world, *members)
        world.driver.advance(3000)


@pytest.mark.parametrize("is_cooperative", [False, True])
@pytest.mark.parametrize("crashes", [False, True])
def test_a_rolling_upgrade_and_back(world: World, is_cooperative: bool, crashes: bool) -> None:
    old = [ClassicClient(world, f"old-{number}", is_cooperative=is_cooperative) for number in range(3)]
    settle_all(world, *old)
    assert group_type(world) is ClassicGroup
    assert all_numbers(*old) == EVERYTHING
    new: list[FakeMember] = []
    while old:
        old.pop().leave()
        new.append(FakeMember(world, f"new-{len(new)}"))
        if crashes:
            crash(world, *old, *new)
        settle_all(world, *old, *new)
        assert group_type(world) is ConsumerGroup
        assert all_numbers(*old, *new) == EVERYTHING
        members: list[ClassicClient | FakeMember] = [*old, *new]
        assert all(member.numbers for member in members)
    while new:
        new.pop().leave()
        old.append(ClassicClient(world, f"again-{len(old)}", is_cooperative=is_cooperative))
        if crashes:
            crash(world, *old, *new)
        settle_all(world, *old, *new)
        assert group_type(world) is (ConsumerGroup if new else ClassicGroup)
        assert all_numbers(*old, *new) == EVERYTHING
    assert all(member.refused is None for member in old)


def test_an_upgrade_keeps_what_members_have(world: World) -> None:
    a = ClassicClient(world, "a")
    settle_all(world, a)
    generation = a.generation
    world.record_types()
    b = FakeMember(world, "b")
    response = b.join()
    assert world.record_types()[:6] == [
        "-GroupMetadata",
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment",
    ]
    assert response.member_epoch == generation + 1
    assert (a.numbers, b.numbers) == (EVERYTHING, [])
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_upgrade_before_a_generation_was_shared_out_leaves_members_what_they_have(world: World) -> None:
    """Of cooperative members, which work on in a rebalance."""
    old = [ClassicClient(world, f"old-{number}", is_cooperative=True) for number in range(2)]
    settle_all(world, *old)
    third = ClassicClient(world, "third", is_cooperative=True)
    for member in (third, third, third, *old):
        member.step()  # up to where the others would join with it
    while world.driver.machine.groups[GROUP].state_name != "CompletingRebalance":
        for member in old:
            member.step()
    third.member_id = third.joining.response.member_id if third.joining is not None else third.member_id
    assert third.leave() is ErrorCode.NONE
    new = FakeMember(world, "new")
    new.join()
    assert group_type(world) is ConsumerGroup
    settle_all(world, *old, new)
    assert all_numbers(*old, new) == EVERYTHING


class CarelessClient(ClassicClient):
    """Gives everybody the same, and what is not there, when it leads."""

    def _shares(self, members: Mapping[str, bytes]) -> dict[str, bytes]:
        parts = [TopicPartition(topic="t", partitions=[1, 0, 6, -1, 0]), TopicPartition(topic="gone", partitions=[0])]
        assignment = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=parts), 1)
        return dict.fromkeys(members, assignment)


def test_what_careless_members_share_out_is_put_right_by_an_upgrade(world: World) -> None:
    world.add_topic("u", 1)
    old = [CarelessClient(world, f"old-{number}") for number in range(2)]
    for _ in range(10):
        world.driver.advance(0)
        for member in old:
            member.step()
    assert [member.numbers for member in old] == [[-1, 0, 1, 6]] * 2
    new = FakeMember(world, "new", ["t", "u"])
    new.join()
    for _ in range(10):
        new.acknowledge()
        for member in old:
            member.step()
    (topic, other) = (world.topics.by_name[name].topic_id for name in ("t", "u"))
    assert new.owned[other] == {0}
    assert sorted([*all_numbers(*old), *new.owned[topic]]) == EVERYTHING
    held = [member.progress.partitions() for member in world.group.members.values()]
    assert len({each for partitions in held for each in partitions}) == len(EVERYTHING) + 1


def test_those_who_wait_in_a_classic_group_are_sent_to_the_new_one(world: World) -> None:
    a, b = ClassicClient(world, "a"), ClassicClient(world, "b")
    settle_all(world, a)
    b.step()
    b.step()
    waiting = b.ask_join()
    assert waiting.is_waiting
    FakeMember(world, "c").join()
    assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(world.group.members) == {a.member_id, b.member_id, "c"}


@pytest.mark.parametrize("regex", [None, "t.*"])
def test_whoever_joins_before_the_first_generation_of_a_classic_group_is_in_the_group(regex: str | None) -> None:
    world = World(classic=GroupSettings(initial_rebalance_delay_ms=3000))
    world.add_topic("t", FEW + 1)
    world.driver.holds_work = True  # the target of so many partitions takes a while
    old = ClassicClient(world, "old")
    for _ in range(3):
        old.step()
    assert old.joining is not None
    assert old.joining.is_waiting
    new = FakeMember(world, "new", topics=None if regex else ["t"], subscribed_topic_regex=regex)
    assert new.join().error_code == ErrorCode.NONE
    assert new.epoch > 0
    assert new.beat().error_code == ErrorCode.NONE
    world.driver.holds_work = False
    world.driver.do_work()
    settle_all(world, old, new)
    world.driver.advance(1)
    settle_all(world, old, new)
    assert all_numbers(old, new) == list(range(FEW + 1))


def test_an_empty_classic_group_makes_way(world: World) -> None:
    a = ClassicClient(world, "a")
    settle_all(world, a)
    a.leave()
    b = FakeMember(world, "b")
    assert b.join().member_epoch == 2
    assert b.numbers == EVERYTHING


def test_a_classic_group_makes_way_that_waits_for_members_after_all_have_left() -> None:
    world = World(classic=GroupSettings(initial_rebalance_delay_ms=3000))
    world.add_topic("t", 6)
    old, new = ClassicClient(world, "old"), FakeMember(world, "new")
    while old.joining is None or not old.member_id:
        old.step()
    old.leave()
    group = world.driver.machine.groups[GROUP]
    assert (group.state_name, group.member_count) == ("PreparingRebalance", 0)
    assert new.join().error_code == ErrorCode.NONE
    assert new.numbers == EVERYTHING
    world.driver.advance(3000)
    assert group_type(world) is ConsumerGroup


def test_an_empty_consumer_group_makes_way(world: World) -> None:
    b = FakeMember(world, "b")
    b.join()
    b.leave()
    a = ClassicClient(world, "a")
    settle_all(world, a)
    assert (group_type(world), a.generation, a.numbers) == (ClassicGroup, 1, EVERYTHING)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (MigrationPolicy.DISABLED, "online upgrade is disabled"),
        (MigrationPolicy.DOWNGRADE, "online upgrade is disabled"),
    ],
)
def test_an_upgrade_may_be_forbidden(policy: MigrationPolicy, reason: str) -> None:
    world = with_policy(policy)
    settle_all(world, ClassicClient(world, "a"))
    response = FakeMember(world, "b").join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.error_message == f"Cannot upgrade classic group g to consumer group because {reason}."
    assert group_type(world) is ClassicGroup


def test_a_group_of_a_custom_assignor_stays_classic(world: World) -> None:
    settle_all(world, ClassicClient(world, "a", user_data=b"mine"))
    response = FakeMember(world, "b").join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "custom assignor" in str(response.error_message)


def test_a_group_that_is_too_large_stays_classic() -> None:
    world = with_policy(MigrationPolicy.BIDIRECTIONAL, max_size=1)
    a = ClassicClient(world, "a")
    settle_all(world, a)
    assert FakeMember(world, "b").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    settle_all(world, a, ClassicClient(world, "c"))
    assert FakeMember(world, "b").join().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_classic_members_may_be_kept_out() -> None:
    world = with_policy(MigrationPolicy.DISABLED)
    FakeMember(world, "b").join()
    assert ClassicClient(world, "a").ask_join().response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_downgrade_may_be_forbidden() -> None:
    world = with_policy(MigrationPolicy.UPGRADE)
    a, b = ClassicClient(world, "a"), FakeMember(world, "b")
    settle_all(world, a)
    settle_all(world, a, b)
    b.leave()
    settle_all(world, a)
    assert group_type(world) is ConsumerGroup
    assert a.numbers == EVERYTHING


def test_a_downgrade_begins_with_a_rebalance(world: World) -> None:
    a, b = ClassicClient(world, "a"), FakeMember(world, "b")
    settle_all(world, a)
    settle_all(world, a, b)
    epoch = world.group.epoch
    b.leave()
    assert world.driver.machine.groups[GROUP].state_name == "PreparingRebalance"
    settle_all(world, a)
    assert (a.generation, a.numbers) == (epoch + 1, EVERYTHING)


@pytest.mark.parametrize("told", [b"", b"\xff\xff", b"\x7f\xff", b"no subscription"])
def test_a_downgrade_of_members_whose_favourite_protocol_makes_no_sense(world: World, told: bytes) -> None:
    """They agreed on another one, and nobody has looked at this one before."""
    plain, odd = ClassicClient(world, "plain"), ClassicClient(world, "odd", likes_best=told)
    settle_all(world, plain)
    settle_all(world, plain, odd)
    new = FakeMember(world, "new")
    new.join()
    assert group_type(world) is ConsumerGroup
    new.leave()
    assert group_type(world) is ClassicGroup
    settle_all(world, plain, odd)
    assert all_numbers(plain, odd) == EVERYTHING


def test_a_fenced_member_leaves_a_classic_group_behind(world: World) -> None:
    a, b = ClassicClient(world, "a"), FakeMember(world, "b")
    settle_all(world, a)
    settle_all(world, a, b)
    for _ in range(9):
        world.driver.advance(5000)
        a.step()
    settle_all(world, a)
    assert group_type(world) is ClassicGroup
    assert a.numbers == EVERYTHING


def test_a_classic_member_that_is_told_to_join_has_its_rebalance_timeout(world: World) -> None:
    a, b = ClassicClient(world, "a"), FakeMember(world, "b")
    settle_all(world, a)
    b.join()
    for _ in range(4):
        assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        world.driver.advance(7500)
        b.beat()
    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_joins_must_fetch_its_assignment(world: World) -> None:
    b = FakeMember(world, "b")
    b.join()
    a = ClassicClient(world, "a")
    a.step()
    a.step()
    response = a.ask_join().response
    a.generation = response.generation_id
    assert (response.leader, response.members) == ("", [])
    for _ in range(4):
        world.driver.advance(7500)
        a.beat()
        b.acknowledge()
    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_goes_on_in_the_consumer_protocol_under_its_own_id(world: World) -> None:
    a, b = ClassicClient(world, "a"), FakeMember(world, "b")
    settle_all(world, a)
    settle_all(world, a, b)
    again = FakeMember(world, a.member_id)
    settle_all(world, again, b)
    assert not world.group.members[a.member_id].is_classic
    assert all_numbers(again, b) == EVERYTHING
    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("others", [0, 1])
def test_a_static_member_goes_back_to_the_classic_protocol(world: World, others: int) -> None:
    classic = [ClassicClient(world, f"c{number}") for number in range(others)]
    settle_all(world, *classic)
    b = FakeMember(world, "b", instance_id="i")
    settle_all(world, *classic, b)
    b.leave(-2)
    again = ClassicClient(world, "b", instance_id="i")
    settle_all(world, *classic, again)
    assert group_type(world) is ClassicGroup
    assert all_numbers(*classic, again) == EVERYTHING


def test_a_static_member_goes_on_in_the_consumer_protocol(world: World) -> None:
    a = ClassicClient(world, "a", instance_id="i")
    other = ClassicClient(world, "b")
    settle_all(world, a, other)
    had = a.numbers
    again = FakeMember(world, "new", instance_id="i")
    again.join()
    settle_all(world, other, again)
    assert again.numbers == had
    assert a.beat() is ErrorCode.FENCED_INSTANCE_ID


def test_members_of_both_protocols_can_be_sent_away_by_one_request(world: World) -> None:
    a, b = ClassicClient(world, "a"), FakeMember(world, "b")
    settle_all(world, a)
    settle_all(world, a, b)
    leaver = ClassicClient(world, "x")
    leaver.member_id = "b"
    assert leaver.leave() is ErrorCode.NONE
    leaver.member_id = "nobody"
    assert leaver.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert group_type(world) is ClassicGroup


def test_a_member_that_changed_its_protocol_is_free_of_the_old_ones_timers(world: World) -> None:
    a, b = ClassicClient(world, "a"), FakeMember(world, "b")
    settle_all(world, a)
    b.join()
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    again = FakeMember(world, a.member_id)
    settle_all(world, again, b)
    kinds = {timer[0] for timer in world.driver.timers if isinstance(timer, tuple)}
    assert kinds.isdisjoint({JOIN, SYNC})
    assert world.group.timers.told_to_join == set()
