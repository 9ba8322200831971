"""The target of a large consumer group is computed and written in steps: what happens between two of them."""

from __future__ import annotations

import itertools

import pytest

from ottla.coordinator.consumer import target
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.settings import ConsumerSettings
from ottla.coordinator.consumer.timers import SESSION
from ottla.coordinator.group_machine import LOOKED_AT_ONCE
from ottla.records.growth import Growth
from tests.coordinator.consumer_members import GROUP, FakeMember, World, settle

PARTITIONS = 60


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One in which 20 are many."""
    monkeypatch.setattr(target, "FEW", 20)
    monkeypatch.setattr(target, "WRITTEN_AT_ONCE", 1)
    world = World(ConsumerSettings(assignment_interval_ms=0))
    world.add_topic("t", PARTITIONS)
    return world


def joined(world: World, *member_ids: str) -> list[FakeMember]:
    members = [FakeMember(world, member_id) for member_id in member_ids]
    for member in members:
        member.join()
    settle(*members)
    return members


def count(member: FakeMember) -> int:
    return sum(map(len, member.owned.values()))


def check_all_is_held_once(members: list[FakeMember]) -> None:
    held = [(topic_id, n) for member in members for topic_id, numbers in member.owned.items() for n in numbers]
    assert len(held) == len(set(held)) == PARTITIONS


def test_members_go_on_with_what_they_have_until_the_target_is_there(world: World) -> None:
    [a] = joined(world, "a")
    assert count(a) == PARTITIONS
    world.driver.holds_work = True
    b = FakeMember(world, "b")
    assert b.join().error_code == 0
    assert world.group.state_name == "Assigning"
    world.driver.do_work(2)
    a.beat()
    b.beat()
    assert (count(a), count(b)) == (PARTITIONS, 0)
    world.driver.holds_work = False
    world.driver.do_work()
    settle(a, b)
    assert (count(a), count(b)) == (PARTITIONS // 2, PARTITIONS // 2)
    check_all_is_held_once([a, b])


@pytest.mark.parametrize("events", range(6))
def test_who_leaves_in_between_leaves_its_share_to_the_others(world: World, events: int) -> None:
    a, b = joined(world, "a", "b")
    world.driver.holds_work = True
    c = FakeMember(world, "c")
    c.join()
    world.driver.do_work(events)
    b.leave()
    world.driver.holds_work = False
    world.driver.do_work()
    settle(a, c)
    check_all_is_held_once([a, c])
    assert (count(a), count(c)) == (PARTITIONS // 2, PARTITIONS // 2)


@pytest.mark.parametrize("events", range(6))
def test_what_is_held_back_stays_so_when_topics_change_in_between(world: World, events: int) -> None:
    parents = PARTITIONS // 2
    world.topics.by_name["t"].growths = (Growth(parents, PARTITIONS, fences=dict.fromkeys(range(parents), 10)),)
    world.driver.holds_work = True
    a = FakeMember(world, "a")
    a.join()
    world.driver.do_work(events)
    world.add_topic("u", 1)
    world.driver.let_the_last_go_first()
    world.driver.holds_work = False
    world.driver.do_work()
    settle(a)
    assert a.numbers == list(range(parents))


@pytest.mark.parametrize("events", range(6))
def test_a_static_member_that_comes_back_under_another_id_in_between_has_its_share(world: World, events: int) -> None:
    static = FakeMember(world, "s", instance_id="i")
    static.join()
    [a] = joined(world, "a")
    settle(static, a)
    world.driver.holds_work = True
    b = FakeMember(world, "b")
    b.join()
    world.driver.do_work(events)
    static.leave(-2)
    again = FakeMember(world, "s2", instance_id="i")
    again.join()
    world.driver.holds_work = False
    world.driver.do_work()
    settle(a, b, again)
    check_all_is_held_once([a, b, again])
    assert {count(member) for member in (a, b, again)} == {PARTITIONS // 3}


@pytest.mark.parametrize("events", range(5))
def test_a_group_that_is_deleted_in_between_stays_away(world: World, events: int) -> None:
    world.driver.holds_work = True
    a = FakeMember(world, "a")
    a.join()
    world.driver.do_work(events)
    a.leave()
    world.driver.run(lambda machine, operation: machine.groups[GROUP].write_tombstones(operation))
    world.driver.do_work()
    assert GROUP not in world.driver.machine.groups
    world.driver.crash()
    assert GROUP not in world.driver.machine.groups


@pytest.mark.parametrize("events", range(6))
def test_a_target_that_was_not_finished_is_computed_anew_after_a_crash(world: World, events: int) -> None:
    [a] = joined(world, "a")
    world.driver.holds_work = True
    b = FakeMember(world, "b")
    b.join()
    world.driver.do_work(events)
    world.driver.holds_work = False
    world.crash()
    settle(a, b)
    check_all_is_held_once([a, b])
    assert (count(a), count(b)) == (PARTITIONS // 2, PARTITIONS // 2)


def test_the_sessions_of_a_large_loaded_group_begin_some_at_a_time() -> None:
    world = World(ConsumerSettings(assignment_interval_ms=1_000_000))
    world.add_topic("t", 1)
    size = 3 * LOOKED_AT_ONCE
    for number in range(size):
        FakeMember(world, f"m{number}").join()
    world.driver.holds_work = True
    world.driver.crash()
    counts = [sessions(world)]
    for _ in range(size):
        world.driver.do_work(1)
        counts.append(sessions(world))
    assert (counts[0], counts[-1]) == (0, size)
    assert max(after - before for before, after in itertools.pairwise(counts)) <= LOOKED_AT_ONCE
    assert isinstance(world.driver.machine.groups[GROUP], ConsumerGroup)


def sessions(world: World) -> int:
    return sum(isinstance(name, tuple) and name[0] == SESSION for name in world.driver.timers)


@pytest.mark.parametrize("wanted", [["t"], ["t", "u"]])
def test_what_two_are_to_have_after_a_crash_between_two_steps_is_shared_out_once(
    world: World, wanted: list[str]
) -> None:
    world.add_topic("u", 6)
    a, b, c = FakeMember(world, "a", ["u"]), FakeMember(world, "b"), FakeMember(world, "c")
    for member in (a, b, c):
        member.join()
    settle(a, b, c)
    topic_id = world.topics.by_name["t"].topic_id
    world.driver.holds_work = True
    a.beat(subscribed_topic_names=wanted)
    while topic_id not in world.group.target.of("a"):
        world.driver.do_work(1)
    assert world.group.target.of("a")[topic_id] & world.group.target.of("b")[topic_id]
    world.crash()
    world.driver.holds_work = False
    c.leave()
    settle(a, b)
    assert a.owned[topic_id] | b.owned[topic_id] == set(range(PARTITIONS))
    assert abs(count(a) - count(b)) <= 1
