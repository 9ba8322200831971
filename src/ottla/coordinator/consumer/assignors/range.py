"""The range assignor: each topic is cut into ranges of neighbours, in the same order of members for every topic.

Partitions of the same number come together in one member where topics have as many. What a member had does not count.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinator.consumer.assignors.subscriber import AssignorSteps, Partitions, Pause, Subscriber


def assign_ranges(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> AssignorSteps:
    assigned: dict[str, Partitions] = {member_id: {} for member_id in members}
    ordered = sorted(members, key=lambda member_id: _place(member_id, members[member_id]))
    pause = Pause()
    for topic_id, count in partition_counts.items():
        subscribers = [member_id for member_id in ordered if topic_id in members[member_id].topic_ids]
        if not subscribers:
            continue
        if pause.is_due(len(members) + count):
            yield
        share, extras = divmod(count, len(subscribers))
        first = 0
        for position, member_id in enumerate(subscribers):
            end = first + share + (position < extras)
            if end > first:
                assigned[member_id][topic_id] = frozenset(range(first, end))
            first = end
    return assigned


def _place(member_id: str, member: Subscriber) -> tuple[bool, str]:
    """Static members stand in front: their place outlives their member id."""
    if member.instance_id is None:
        return True, member_id
    return False, member.instance_id
