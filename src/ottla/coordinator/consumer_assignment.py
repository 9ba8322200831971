"""Assignments in the form that members of the classic protocol read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.coordinator.consumer_member import ClassicSide
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.versioned import encode_versioned, read_int16


def encoded_assignment(topics: TopicsView, classic: ClassicSide, partitions: Mapping[bytes, Iterable[int]]) -> bytes:
    """Partitions for a classic member, in the version that it speaks itself."""
    by_id = topics.by_id
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=by_id[topic_id].name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in by_id
        ]
    )
    spoken = read_int16(classic.protocols[0][1], "subscription")
    return encode_versioned(assignment, min(spoken, ConsumerProtocolAssignment.versions.highest))
