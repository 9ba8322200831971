"""Who of a group reads which partitions: what the leader of a classic group decides. Plain functions.

An assignor is known to all members by its name, and Kafka's own clients use the same names, so members of several
makes can be in one group; only one of them, the leader, computes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.client.group.offsets import TopicPartition


class Subscriber(NamedTuple):
    """A member as its leader sees it. `owned` is what it had in `generation`, and may be out of date."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    instance_id: str | None = None


Subscribers: TypeAlias = Mapping[str, Subscriber]
"""By member id."""
PartitionCounts: TypeAlias = Mapping[str, int]
"""By topic, of those that exist."""
Assignments: TypeAlias = dict[str, set[TopicPartition]]
"""By member id, of all members."""


def assign_ranges(subscribers: Subscribers, partition_counts: PartitionCounts) -> Assignments:
    """Each topic by itself, in ranges: the same numbers of several topics go to the same member."""
    assignments: Assignments = {member: set() for member in subscribers}
    for topic, count in partition_counts.items():
        readers = [member for member in _in_order(subscribers) if topic in subscribers[member].topics]
        start = 0
        for number, member in enumerate(readers):
            size = count // len(readers) + (number < count % len(readers))
            assignments[member] |= {TopicPartition(topic, index) for index in range(start, start + size)}
            start += size
    return assignments


def assign_round_robin(subscribers: Subscribers, partition_counts: PartitionCounts) -> Assignments:
    """All partitions of all topics, one to each member in turn."""
    assignments: Assignments = {member: set() for member in subscribers}
    members = _in_order(subscribers)
    turn = 0
    for place in _all_places(partition_counts):
        for _ in members:
            member = members[turn % len(members)]
            turn += 1
            if place.topic in subscribers[member].topics:
                assignments[member].add(place)
                break
    return assignments


def assign_sticky(subscribers: Subscribers, partition_counts: PartitionCounts) -> Assignments:
    """As even as it can be, and of all ways to be so, one that moves few partitions."""
    places = list(_all_places(partition_counts))
    assignments = _still_owned(subscribers, set(places))
    taken = set().union(*assignments.values())
    readers = {
        topic: [member for member in _in_order(subscribers) if topic in subscribers[member].topics]
        for topic in partition_counts
    }
    # Those with the least choice first.
    for place in sorted((place for place in places if place not in taken), key=lambda place: len(readers[place.topic])):
        if readers[place.topic]:
            least = min(readers[place.topic], key=lambda member: len(assignments[member]))
            assignments[least].add(place)
    _balance(assignments, readers)
    return assignments


def assign_cooperatively(subscribers: Subscribers, partition_counts: PartitionCounts) -> Assignments:
    """As sticky, but what another member still has is given to nobody: it is given up first, and then given anew."""
    owners = _still_owned(subscribers, set(_all_places(partition_counts)))
    owner_of = {place: member for member, places in owners.items() for place in places}
    return {
        member: {place for place in places if owner_of.get(place, member) == member}
        for member, places in assign_sticky(subscribers, partition_counts).items()
    }


def _still_owned(subscribers: Subscribers, existing: set[TopicPartition]) -> Assignments:
    """What each member has, where that is so: the latest generation counts, and of two with the same neither."""
    latest: dict[TopicPartition, int] = {}
    for subscriber in subscribers.values():
        for place in subscriber.owned:
            latest[place] = max(latest.get(place, subscriber.generation), subscriber.generation)
    claims = Counter(
        place
        for subscriber in subscribers.values()
        for place in subscriber.owned
        if latest[place] == subscriber.generation
    )
    return {
        member: {
            place
            for place in subscriber.owned
            if place in existing
            and place.topic in subscriber.topics
            and latest[place] == subscriber.generation
            and claims[place] == 1
        }
        for member, subscriber in subscribers.items()
    }


def _balance(assignments: Assignments, readers: Mapping[str, list[str]]) -> None:
    """Move one partition after the other from whom has most to whom has at least two fewer."""
    while move := _next_move(assignments, readers):
        place, giver, taker = move
        assignments[giver].discard(place)
        assignments[taker].add(place)


def _next_move(assignments: Assignments, readers: Mapping[str, list[str]]) -> tuple[TopicPartition, str, str] | None:
    for giver in sorted(assignments, key=lambda member: len(assignments[member]), reverse=True):
        by_name = by_topic(assignments[giver])
        for topic, indexes in by_name.items():
            taker = min(readers[topic], key=lambda member: len(assignments[member]))
            if len(assignments[giver]) - len(assignments[taker]) >= 2:
                return TopicPartition(topic, indexes[0]), giver, taker
    return None


def _in_order(subscribers: Subscribers) -> list[str]:
    """Static members by their instance id, so that they get the same again under another member id."""
    return sorted(
        subscribers,
        key=lambda member: (subscribers[member].instance_id is None, subscribers[member].instance_id or member, member),
    )


def _all_places(partition_counts: PartitionCounts) -> Iterable[TopicPartition]:
    for topic in sorted(partition_counts):
        for index in range(partition_counts[topic]):
            yield TopicPartition(topic, index)


class Assignor(NamedTuple):
    """`is_cooperative`: members keep what they have while a new assignment is made."""

    name: str
    assign: Callable[[Subscribers, PartitionCounts], Assignments]
    is_cooperative: bool = False
    tells_owned: bool = False
    """Members say what they had, although they have given it up."""


ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_ranges),
        Assignor("roundrobin", assign_round_robin),
        Assignor("sticky", assign_sticky, tells_owned=True),
        Assignor("cooperative-sticky", assign_cooperatively, is_cooperative=True),
    )
}


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for place in sorted(places):
        found[place.topic].append(place.partition)
    return dict(found)
