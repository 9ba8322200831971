"""Committed offsets of a group: keeping them, and asking for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ottla.client.errors import ServerError
from ottla.client.group.assignors import by_topic
from ottla.client.group.coordinator import Coordinator
from ottla.client.group.offsets import Membership, Offset, TopicPartition
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
)

LAST_VERSION_BY_NAME = 9
_NO_OFFSET = -1


async def ask_to_commit(
    coordinator: Coordinator, membership: Membership, offsets: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, int]:
    """One attempt: an error code, or 0, for each."""
    request = commit_request(membership, offsets)
    answer = await coordinator.ask(request, OffsetCommitResponse, at_most=LAST_VERSION_BY_NAME)
    codes = {
        TopicPartition(topic.name, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }
    for code in set(codes.values()):
        coordinator.error(code)  # a coordinator that has moved is looked for anew
    return codes


def commit_request(membership: Membership, offsets: Mapping[TopicPartition, Offset]) -> OffsetCommitRequest:
    topics: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for place, offset in offsets.items():
        topics[place.topic].append(
            OffsetCommitRequestPartition(
                partition_index=place.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=membership.group_id,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )


async def ask_for_committed(
    coordinator: Coordinator, group_id: str, places: Iterable[TopicPartition] | None, *, must_be_stable: bool = True
) -> dict[TopicPartition, Offset | ServerError | None]:
    """One attempt. The committed offset of each, or that there is none, or what is wrong; None asks for all.

    Stable: a retriable error while a transaction is open that may change one of them.
    """
    topics = None
    if places is not None:
        asked = by_topic(places).items()
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=indexes) for topic, indexes in asked]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)], require_stable=must_be_stable
    )
    answer = await coordinator.ask(request, OffsetFetchResponse, at_most=LAST_VERSION_BY_NAME)
    [group] = answer.groups
    error = coordinator.error(group.error_code)
    if error is not None:
        raise error
    return {
        TopicPartition(topic.name, row.partition_index): _committed(topic.name, row)
        for topic in group.topics
        for row in topic.partitions
    }


def _committed(topic: str, row: OffsetFetchResponsePartitions) -> Offset | ServerError | None:
    if row.error_code:
        return ServerError(row.error_code, topic=topic, partition=row.partition_index)
    if row.committed_offset == _NO_OFFSET:
        return None
    return Offset(row.committed_offset, row.metadata or "", row.committed_leader_epoch)


async def fetch_committed(
    coordinator: Coordinator, group_id: str, places: Iterable[TopicPartition] | None, *, must_be_stable: bool = True
) -> dict[TopicPartition, Offset]:
    """The same, of those that have an offset; the first error, if there is one."""
    found: dict[TopicPartition, Offset] = {}
    asked = await ask_for_committed(coordinator, group_id, places, must_be_stable=must_be_stable)
    for one, offset in asked.items():
        if isinstance(offset, ServerError):
            raise offset
        if offset is not None:
            found[one] = offset
    return found
