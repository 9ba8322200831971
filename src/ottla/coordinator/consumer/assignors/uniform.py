"""The uniform assignor: as many partitions to each member as possible, and as few as possible that change hands."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from ottla.coordinator.consumer.assignors.mixed import assign_mixed
from ottla.coordinator.consumer.assignors.subscriber import AssignorSteps, Partitions, Pause, Subscriber, frozen


def assign_uniformly(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> AssignorSteps:
    if not members:
        return {}
    subscriptions = {member.topic_ids for member in members.values()}
    if len(subscriptions) > 1:
        return (yield from assign_mixed(members, partition_counts))
    (topic_ids,) = subscriptions
    return (yield from _assign_equal(members, {topic_id: partition_counts[topic_id] for topic_id in topic_ids}))


def _assign_equal(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> AssignorSteps:
    """All members subscribe to the same: each has a quota, within which it keeps what it had."""
    quota, extras = divmod(sum(partition_counts.values()), len(members))
    held, unassigned = yield from _held(members, partition_counts)
    pause = Pause()
    assigned: dict[str, dict[bytes, list[int]]] = {}
    hungry: list[tuple[dict[bytes, list[int]], int]] = []  # what they have, and how many more they are to get
    for walked, member_id in enumerate(members):
        if pause.is_due(1 + quota):
            yield
        has_extra = extras > 0
        room = quota + has_extra
        kept = assigned[member_id] = {}
        for topic_id, numbers in held[member_id].items():
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
        if pause.is_due(1 + room):
            yield
        for _, (topic_id, number) in zip(range(room), left, strict=False):
            kept.setdefault(topic_id, []).append(number)
    yield
    result: dict[str, Partitions] = {}
    for member_id, kept in assigned.items():
        result[member_id] = frozen(kept)
        if pause.is_due(1 + quota):
            yield
    return result


def _held(
    members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]
) -> Generator[None, None, tuple[dict[str, dict[bytes, list[int]]], list[tuple[bytes, int]]]]:
    """What each member was to have, in order, and what nobody was.

    A target that was not written to its end gives some partitions to two: the first of them has them.
    """
    held: dict[str, dict[bytes, list[int]]] = {}
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in partition_counts}
    pause = Pause()
    for member_id, member in members.items():
        mine = held[member_id] = {}
        for topic_id, partitions in member.target.items():
            if topic_id in partition_counts:
                mine[topic_id] = sorted(partitions - taken[topic_id])
                taken[topic_id] |= partitions
            if pause.is_due(len(partitions)):
                yield
    unassigned: list[tuple[bytes, int]] = []
    for topic_id, count in partition_counts.items():
        unassigned += [(topic_id, number) for number in range(count) if number not in taken[topic_id]]
        if pause.is_due(count):
            yield
    return held, unassigned
