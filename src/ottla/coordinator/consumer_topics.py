"""What a consumer group knows of the topics that its members subscribe to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.topics_view import TopicsView

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine

NO_TOPICS_HASH = 0


def note_changed_topics(machine: GroupMachine, names: set[str], group_ids: Iterable[str]) -> None:
    """Topics have come, gone or grown: those of the groups that it concerns look at them with their next heartbeat."""
    have_come = any(name in machine.topics.by_name for name in names)
    for group_id in group_ids:
        group = machine.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            if not group.topic_names.isdisjoint(names):
                group.are_topics_changed = True
            if have_come:
                group.are_topics_new = True


def existing_ids(topics: TopicsView, names: Iterable[str]) -> frozenset[bytes]:
    by_name = topics.by_name
    return frozenset(by_name[name].topic_id for name in names if name in by_name)


def partition_counts(topics: TopicsView, names: Iterable[str]) -> dict[bytes, int]:
    """Of those topics that exist, in the order of their names: whoever computes it gets the same."""
    by_name = topics.by_name
    found = (by_name[name] for name in sorted(names) if name in by_name)
    return {topic.topic_id: topic.partition_count for topic in found}


def topics_hash(topics: TopicsView, names: Iterable[str]) -> int:
    """A number that is another one when topics have come, gone, been made anew or grown."""
    counts = partition_counts(topics, names)
    if not counts:
        return NO_TOPICS_HASH
    digest = hashlib.blake2b(digest_size=8)
    for topic_id, count in counts.items():
        digest.update(topic_id + count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
