"""Committed offsets of a group: keeping them, and asking for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ottla.client.errors import ClientError, MalformedAnswer, ServerError
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
    OffsetFetchResponsePartitions,
)
from ottla.wire.uuids import ZERO_UUID

LAST_VERSION_BY_NAME = 9
_NO_OFFSET = -1


TopicIds: TypeAlias = Mapping[str, bytes]
"""By name. A commit with an id is for that topic, and not for a later one of the same name."""


async def ask_to_commit(
    coordinator: Coordinator, membership: Membership, offsets: Mapping[TopicPartition, Offset], topic_ids: TopicIds
) -> dict[TopicPartition, int]:
    """One attempt: an error code, or 0, for each. By ids, where those of all topics are known."""
    request = commit_request(membership, offsets, topic_ids)
    answer = await coordinator.ask(
        request, OffsetCommitResponse, at_most=_highest_version({one.topic for one in offsets}, topic_ids)
    )
    names = _names(topic_ids)
    codes = {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }
    for code in set(codes.values()):
        coordinator.error(code)  # a coordinator that has moved is looked for anew
    _doubt_unknown(coordinator, topic_ids, codes)
    return codes


def commit_request(
    membership: Membership, offsets: Mapping[TopicPartition, Offset], topic_ids: TopicIds
) -> OffsetCommitRequest:
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
        topics=[
            OffsetCommitRequestTopic(name=name, topic_id=topic_ids.get(name, ZERO_UUID), partitions=rows)
            for name, rows in topics.items()
        ],
    )


def _highest_version(topics: Iterable[str], topic_ids: TopicIds) -> int | None:
    return None if all(topic in topic_ids for topic in topics) else LAST_VERSION_BY_NAME


def _names(topic_ids: TopicIds) -> dict[bytes, str]:
    return {topic_id: name for name, topic_id in topic_ids.items()}


def _doubt_unknown(coordinator: Coordinator, topic_ids: TopicIds, codes: Mapping[TopicPartition, int]) -> None:
    """What is known of a topic whose id the coordinator does not know is old."""
    for topic in {one.topic for one, code in codes.items() if code == ErrorCode.UNKNOWN_TOPIC_ID}:
        coordinator.cluster.doubt_id(topic, topic_ids.get(topic, ZERO_UUID))


async def ask_for_committed(
    coordinator: Coordinator, group_id: str, places: Iterable[TopicPartition] | None, *, must_be_stable: bool = True
) -> dict[TopicPartition, Offset | ClientError | None]:
    """One attempt. The committed offset of each, or that there is none, or what is wrong; None asks for all.

    Stable: a retriable error while a transaction is open that may change one of them.
    """
    topics = None
    topic_ids: dict[str, bytes] = {}
    at_most: int | None = LAST_VERSION_BY_NAME
    if places is not None:
        asked = by_topic(places)
        topic_ids = _known_ids(coordinator, asked)
        topics = [
            OffsetFetchRequestTopics(name=topic, topic_id=topic_ids.get(topic, ZERO_UUID), partition_indexes=indexes)
            for topic, indexes in asked.items()
        ]
        at_most = _highest_version(asked, topic_ids)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)], require_stable=must_be_stable
    )
    answer = await coordinator.ask(request, OffsetFetchResponse, at_most=at_most)
    group = next((one for one in answer.groups if one.group_id == group_id), None)
    if group is None:
        raise MalformedAnswer(f"group {group_id}: the answer to OffsetFetch leaves it out")
    error = coordinator.error(group.error_code)
    if error is not None:
        raise error
    names = _names(topic_ids)
    rows = {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), row.partition_index): row
        for topic in group.topics
        for row in topic.partitions
    }
    _doubt_unknown(coordinator, topic_ids, {one: row.error_code for one, row in rows.items()})
    found: dict[TopicPartition, Offset | ClientError | None] = {
        one: _committed(one.topic, row) for one, row in rows.items()
    }
    # One that is left out is not one without an offset: it would be read from another place.
    return found if places is None else {one: found.get(one, _left_out(one)) for one in places}


def _known_ids(coordinator: Coordinator, topics: Iterable[str]) -> dict[str, bytes]:
    known = {name: coordinator.cluster.known_topic(name) for name in topics}
    return {name: topic.topic_id for name, topic in known.items() if topic is not None and topic.has_id}


def _left_out(one: TopicPartition) -> MalformedAnswer:
    return MalformedAnswer("the answer to OffsetFetch leaves out a partition", topic=one.topic, partition=one.partition)


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
        if isinstance(offset, ClientError):
            raise offset
        if offset is not None:
            found[one] = offset
    return found
