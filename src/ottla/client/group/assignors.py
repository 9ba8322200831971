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
    _balance(assignments, readers, set(places) - taken)
    _balance(assignments, readers, set(places))
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


class _Move(NamedTuple):
    place: TopicPartition
    giver: str
    taker: str


def _balance(assignments: Assignments, readers: Mapping[str, list[str]], movable: set[TopicPartition]) -> None:
    """Move partitions until it cannot be more even, also by way of others.

    Only then is what members have as even as it was meant when others gave up what they are given now, so that a
    cooperative group rests after its second round.
    """
    while moves := _next_moves(assignments, readers, movable):
        for place, giver, taker in moves:
            assignments[giver].discard(place)
            assignments[taker].add(place)


def _next_moves(
    assignments: Assignments, readers: Mapping[str, list[str]], movable: set[TopicPartition]
) -> list[_Move]:
    """A short way from whom has most to whom has at least two fewer, on which each gives one to the next."""
    seen: set[str] = set()
    seen_topics: set[str] = set()
    for giver in sorted(assignments, key=lambda member: len(assignments[member]), reverse=True):
        if giver in seen:  # and from there no way led to anybody with few
            continue
        seen.add(giver)
        last_moves: dict[str, _Move] = {}
        reached = [giver]
        while reached:
            further = []
            for member in reached:
                for place in _first_of_each_topic(assignments[member] & movable):
                    if place.topic in seen_topics:
                        continue
                    seen_topics.add(place.topic)
                    takers = [taker for taker in readers[place.topic] if taker not in seen]
                    seen.update(takers)
                    last_moves |= {taker: _Move(place, member, taker) for taker in takers}
                    further += takers
            least = min(further, key=lambda member: len(assignments[member]), default=giver)
            if len(assignments[giver]) - len(assignments[least]) >= 2:
                return _way_to(least, last_moves)
            reached = further
    return []


def _first_of_each_topic(places: set[TopicPartition]) -> list[TopicPartition]:
    first: dict[str, int] = {}
    for topic, index in places:
        if index < first.get(topic, index + 1):
            first[topic] = index
    return [TopicPartition(topic, first[topic]) for topic in sorted(first)]


def _way_to(member: str, last_moves: Mapping[str, _Move]) -> list[_Move]:
    moves = []
    while member in last_moves:
        moves.append(last_moves[member])
        member = last_moves[member].giver
    return moves


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
