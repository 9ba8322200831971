"""Committed offsets of a group: keeping them, and asking for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ottla.client.errors import ClientError, CommitFailed, ServerError
from ottla.client.group.assignors import by_topic
from ottla.client.group.coordinator import Coordinator
from ottla.client.group.offsets import Membership, Offset, TopicPartition
from ottla.wire.errors import ErrorCode
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
)

LAST_VERSION_BY_NAME = 9
_NO_OFFSET = -1
_LOST = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
)


async def commit_offsets(
    coordinator: Coordinator, membership: Membership, offsets: Mapping[TopicPartition, Offset]
) -> None:
    """One attempt. CommitFailed if the member has not the partitions any more."""
    request = commit_request(membership, offsets)
    answer = await coordinator.ask(request, OffsetCommitResponse, at_most=LAST_VERSION_BY_NAME)
    for topic in answer.topics:
        for row in topic.partitions:
            error = coordinator.error(row.error_code)
            if error is not None:
                raise _commit_error(error, membership.group_id, topic.name, row.partition_index)


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


def _commit_error(error: ServerError, group_id: str, topic: str, partition: int) -> ClientError:
    if error.code in _LOST:
        return CommitFailed(
            f"group {group_id} has given the partitions to another member, for this one did not poll in time or was "
            "cut off: what was read since the last commit will be read again",
            topic=topic,
            partition=partition,
        )
    return ServerError(error.code, error.message, topic=topic, partition=partition)


async def fetch_committed(
    coordinator: Coordinator, group_id: str, places: Iterable[TopicPartition] | None, *, must_be_stable: bool = True
) -> dict[TopicPartition, Offset]:
    """One attempt. Those that have a committed offset, with it; None asks for all.

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
    found: dict[TopicPartition, Offset] = {}
    for topic in group.topics:
        for row in topic.partitions:
            if row.error_code:
                raise ServerError(row.error_code, topic=topic.name, partition=row.partition_index)
            if row.committed_offset != _NO_OFFSET:
                found[TopicPartition(topic.name, row.partition_index)] = Offset(
                    row.committed_offset, row.metadata or "", row.committed_leader_epoch
                )
    return found
