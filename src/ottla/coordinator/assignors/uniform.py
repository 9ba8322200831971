"""The uniform assignor: as many partitions to each member as possible, and as few as possible that change hands."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinator.assignors.mixed import assign_mixed
from ottla.coordinator.assignors.subscriber import Partitions, Subscriber, frozen


def assign_uniformly(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    if not members:
        return {}
    subscriptions = {member.topic_ids for member in members.values()}
    if len(subscriptions) > 1:
        return assign_mixed(members, partition_counts)
    (topic_ids,) = subscriptions
    return _assign_equal(members, {topic_id: partition_counts[topic_id] for topic_id in topic_ids})


def _assign_equal(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """All members subscribe to the same: each has a quota, within which it keeps what it had."""
    quota, extras = divmod(sum(partition_counts.values()), len(members))
    unassigned = _in_no_target(members, partition_counts)
    assigned: dict[str, dict[bytes, list[int]]] = {}
    hungry: list[tuple[dict[bytes, list[int]], int]] = []  # what they have, and how many more they are to get
    for walked, (member_id, member) in enumerate(members.items()):
        has_extra = extras > 0
        room = quota + has_extra
        kept = assigned[member_id] = {}
        for topic_id, partitions in member.target.items():
            if topic_id in partition_counts:
                numbers = sorted(partitions)
                kept[topic_id] = numbers[:room]
                unassigned += [(topic_id, number) for number in numbers[room:]]
                room -= len(kept[topic_id])
        if room and has_extra and len(members) - walked > extras:
            has_extra = False  # somebody behind may hold one more already
            room -= 1
        extras -= has_extra
        if room:
            hungry.append((kept, room))
    left = iter(unassigned)
    for kept, room in hungry:
        for _, (topic_id, number) in zip(range(room), left, strict=False):
            kept.setdefault(topic_id, []).append(number)
    return {member_id: frozen(kept) for member_id, kept in assigned.items()}


def _in_no_target(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> list[tuple[bytes, int]]:
    held: dict[bytes, set[int]] = {}
    for member in members.values():
        for topic_id, partitions in member.target.items():
            held.setdefault(topic_id, set()).update(partitions)
    return [
        (topic_id, number)
        for topic_id, count in partition_counts.items()
        for number in range(count)
        if number not in held.get(topic_id, ())
    ]
