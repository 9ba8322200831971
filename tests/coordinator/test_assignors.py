"""Every partition has one owner that subscribes to it; loads are even; who has something keeps it if it may."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.loop.slices import finished
from ottla.coordinator.consumer.assignors import ASSIGNORS, Partitions, Subscriber, assigned, mixed
from ottla.coordinator.consumer.assignors.range import assign_ranges
from ottla.coordinator.consumer.assignors.uniform import assign_uniformly

A, B, C = (bytes([letter]) * 16 for letter in b"abc")
TOPICS = (A, B, C)
COUNTS = st.fixed_dictionaries({topic_id: st.integers(0, 12) for topic_id in TOPICS})
SUBSCRIPTIONS = st.frozensets(st.sampled_from(TOPICS))
MEMBER_IDS = tuple("mnopqrstu")


def sizes(assigned: Mapping[str, Partitions]) -> dict[str, int]:
    return {member_id: sum(map(len, partitions.values())) for member_id, partitions in assigned.items()}


def owners(assigned: Mapping[str, Partitions]) -> dict[tuple[bytes, int], str]:
    found: dict[tuple[bytes, int], str] = {}
    for member_id, partitions in assigned.items():
        for topic_id, numbers in partitions.items():
            assert numbers, "a topic without partitions is not there"
            for number in numbers:
                assert (topic_id, number) not in found, "one owner"
                found[topic_id, number] = member_id
    return found


def subscribed(
    topic_ids: frozenset[bytes], targets: Mapping[str, Partitions], member_ids: list[str]
) -> dict[str, Subscriber]:
    return {member_id: Subscriber(topic_ids, targets.get(member_id, {})) for member_id in member_ids}


def to_numbers(assigned: Mapping[str, Partitions]) -> dict[str, list[int]]:
    return {member_id: sorted(partitions.get(A, ())) for member_id, partitions in assigned.items()}


def test_uniform_gives_a_joiner_its_share_and_moves_nothing_else() -> None:
    targets: dict[str, Partitions] = {}
    seen = []
    for member_ids in (["a"], ["a", "b"], ["a", "b", "c"]):
        targets = assigned(assign_uniformly(subscribed(frozenset({A}), targets, member_ids), {A: 7}))
        seen.append(to_numbers(targets))
    assert seen == [
        {"a": [0, 1, 2, 3, 4, 5, 6]},
        {"a": [0, 1, 2, 3], "b": [4, 5, 6]},
        {"a": [0, 1, 2], "b": [4, 5], "c": [3, 6]},
    ]


def test_a_joiner_that_subscribes_to_one_more_topic_takes_it_and_disturbs_nobody() -> None:
    before: dict[str, Partitions] = {"a": {A: frozenset({0, 1, 2})}, "b": {A: frozenset({3, 4, 5})}}
    members = {
        "a": Subscriber(frozenset({A}), before["a"]),
        "b": Subscriber(frozenset({A}), before["b"]),
        "c": Subscriber(frozenset({A, B}), {}),
    }
    assert assigned(assign_uniformly(members, {A: 6, B: 3})) == {**before, "c": {B: frozenset({0, 1, 2})}}


def test_range_lines_up_topics_and_puts_static_members_in_front() -> None:
    both = frozenset({A, B})
    members = {
        "a": Subscriber(both, {}),
        "b": Subscriber(both, {}),
        "z": Subscriber(both, {}, instance_id="static"),
        "c": Subscriber(frozenset({B}), {}),
    }
    assert assigned(assign_ranges(members, {A: 4, B: 2})) == {
        "z": {A: frozenset({0, 1}), B: frozenset({0})},
        "a": {A: frozenset({2}), B: frozenset({1})},
        "b": {A: frozenset({3})},
        "c": {},
    }


@pytest.mark.parametrize("name", ASSIGNORS)
def test_without_members_there_is_nothing_to_assign(name: str) -> None:
    assert assigned(ASSIGNORS[name]({}, {})) == {}


@given(
    st.sampled_from(sorted(ASSIGNORS)),
    COUNTS,
    st.lists(st.dictionaries(st.sampled_from(MEMBER_IDS), SUBSCRIPTIONS), min_size=1, max_size=5),
)
def test_each_partition_that_somebody_wants_has_one_owner_who_wants_it(
    name: str, counts: dict[bytes, int], rounds: list[dict[str, frozenset[bytes]]]
) -> None:
    targets: dict[str, Partitions] = {}
    for subscriptions in rounds:
        members = {
            member_id: Subscriber(topic_ids, targets.get(member_id, {}))
            for member_id, topic_ids in subscriptions.items()
        }
        wanted = frozenset[bytes]().union(*subscriptions.values())
        partition_counts = {topic_id: counts[topic_id] for topic_id in wanted}
        targets = assigned(ASSIGNORS[name](members, partition_counts))
        assert targets.keys() == members.keys()
        found = owners(targets)
        assert found.keys() == {(topic_id, number) for topic_id in wanted for number in range(counts[topic_id])}
        assert all(topic_id in subscriptions[owner] for (topic_id, _), owner in found.items())
        again = {member_id: member._replace(target=targets[member_id]) for member_id, member in members.items()}
        assert assigned(ASSIGNORS[name](again, partition_counts)) == targets, "computing twice is stable"


@settings(max_examples=50)
@given(COUNTS, st.lists(st.sampled_from(MEMBER_IDS), min_size=1, max_size=25))
def test_uniform_stays_even_and_moves_no_more_than_it_must(counts: dict[bytes, int], toggled: list[str]) -> None:
    """Members join and leave one by one."""
    member_ids: list[str] = []
    targets: dict[str, Partitions] = {}
    for member_id in toggled:
        is_join = member_id not in member_ids
        member_ids = [*member_ids, member_id] if is_join else [other for other in member_ids if other != member_id]
        before = owners({other: targets[other] for other in member_ids if other in targets})
        targets = assigned(assign_uniformly(subscribed(frozenset(TOPICS), targets, member_ids), counts))
        if not member_ids:
            continue
        loads = sizes(targets)
        assert max(loads.values()) - min(loads.values()) <= 1
        after = owners(targets)
        moved = [partition for partition, owner in before.items() if after[partition] != owner]
        assert len(moved) == (loads[member_id] if is_join and before else 0)


@given(COUNTS, st.dictionaries(st.sampled_from(MEMBER_IDS), SUBSCRIPTIONS, min_size=2))
def test_no_move_of_one_partition_would_make_mixed_subscriptions_more_even(
    counts: dict[bytes, int], subscriptions: dict[str, frozenset[bytes]]
) -> None:
    members = {member_id: Subscriber(topic_ids, {}) for member_id, topic_ids in subscriptions.items()}
    targets = assigned(assign_uniformly(members, counts))
    loads = sizes(targets)
    for (topic_id, _), owner in owners(targets).items():
        subscribers = [member_id for member_id, topic_ids in subscriptions.items() if topic_id in topic_ids]
        assert loads[owner] - min(loads[member_id] for member_id in subscribers) <= 1


def moved_one_by_one(members: Mapping[str, Subscriber], counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """What the mixed assignor does, without any haste: it looks for both ends again before each move."""
    balance = mixed._Balance(list(members.values()), counts)
    list(balance.place_held())
    list(balance.place_unassigned())
    loads = balance._loads

    def move_one(topic_id: bytes) -> bool:
        owned = balance._owners[topic_id]
        least = min(balance._subscribers[topic_id], key=loads.__getitem__)
        most = max(sorted(set(owned)), key=loads.__getitem__, default=least)
        if loads[most] - loads[least] <= 1:
            return False
        owned[len(owned) - 1 - owned[::-1].index(most)] = least
        loads[most] -= 1
        loads[least] += 1
        return True

    for _ in range(mixed.MOST_ROUNDS):
        moves = 0
        for topic_id in balance._topics:
            while move_one(topic_id):
                moves += 1
        if not moves:
            break
    return dict(zip(members, finished(balance.assigned()), strict=True))


@settings(max_examples=200)
@given(COUNTS, st.lists(st.lists(SUBSCRIPTIONS, min_size=1, max_size=9), min_size=1, max_size=4))
def test_mixed_moves_what_looking_for_both_ends_before_each_move_does(
    counts: dict[bytes, int], rounds: list[list[frozenset[bytes]]]
) -> None:
    targets: dict[str, Partitions] = {}
    for subscriptions in rounds:
        members = {
            member_id: Subscriber(
                topic_ids, {name: held for name, held in targets.get(member_id, {}).items() if name in topic_ids}
            )
            for member_id, topic_ids in zip(MEMBER_IDS, subscriptions, strict=False)
        }
        targets = assigned(mixed.assign_mixed(members, counts))
        assert targets == moved_one_by_one(members, counts)


def test_moving_many_partitions_takes_time_in_proportion_to_them() -> None:
    """One member has all, and others come to share them: four times as many take no sixteen times as long."""

    def cpu_seconds(count: int) -> float:
        members = {"m0": Subscriber(frozenset({A, B}), {A: frozenset(range(count)), B: frozenset({0})})}
        members |= {f"m{number}": Subscriber(frozenset({A}), {}) for number in range(1, 100)}
        started = time.thread_time()
        targets = assigned(mixed.assign_mixed(members, {A: count, B: 1}))
        spent = time.thread_time() - started
        assert max(sizes(targets).values()) - min(sizes(targets).values()) <= 1
        return spent

    few = min(cpu_seconds(2000) for _ in range(5))
    assert min(cpu_seconds(8000) for _ in range(3)) < 8 * few
