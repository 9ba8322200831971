"""OffsetFetch (9), versions 1 to 10. What older versions ask is a question for one group."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import MOST_REPEATED_GROUPS, parts_by_topic, with_few_repeats
from ottla.coordinator.offsets.fetch import ANSWERED_AT_ONCE, NO_OFFSET, FetchedOffsets, fetch
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps
    from ottla.coordinator.group_machine import GroupMachine

FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10


def handle(broker: Broker, request: OffsetFetchRequest, context: Context) -> Steps:
    version = context.version
    groups = _few(request.groups) if version >= FIRST_VERSION_WITH_SEVERAL_GROUPS else [_only_group(request)]
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS

    def run(machine: GroupMachine, operation: Operation, reply: Reply, place: int) -> None:
        asked = groups[place]
        operation.answer(reply, fetch(machine, asked, by_id=by_id, require_stable=request.require_stable))

    def refusal(place: int, code: ErrorCode) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(group_id=groups[place].group_id, topics=[], error_code=code)

    answers = yield from broker.groups.ask_each([group.group_id for group in groups], run, refusal)
    for place, answer in enumerate(answers):
        if isinstance(answer, FetchedOffsets):
            answers[place] = yield from answer.steps()
        elif not place % ANSWERED_AT_ONCE:
            yield None
    if version >= FIRST_VERSION_WITH_SEVERAL_GROUPS:
        return OffsetFetchResponse(groups=answers)
    return (yield from _older_response(groups[0], answers[0], version))


def _few(groups: list[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Each that names its partitions, and few repeats of those that ask for all of a group, however many that are."""
    places = with_few_repeats(
        [(group.group_id, -1 if group.topics is None else place) for place, group in enumerate(groups)],
        MOST_REPEATED_GROUPS,
    )
    if len(places) == len(groups):
        return groups
    whole = {group.group_id: group for group in groups if group.topics is None}
    return [whole[name] if place < 0 else groups[place] for name, place in places]


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _older_response(
    asked: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup, version: int
) -> Generator[None, None, OffsetFetchResponse]:
    topics: list[OffsetFetchResponseTopic] = []
    for part in parts_by_topic(answer.topics, ANSWERED_AT_ONCE):
        if topics:
            yield
        for topic, some, goes_on in part:
            partitions = [
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in some
            ]
            if goes_on:
                topics[-1].partitions += partitions
            else:
                topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    if answer.error_code != ErrorCode.NONE and version < FIRST_VERSION_WITH_ERROR:
        topics = [_refused(topic, answer.error_code) for topic in asked.topics or ()]
    return OffsetFetchResponse(topics=topics, error_code=answer.error_code)


def _refused(topic: OffsetFetchRequestTopics, code: int) -> OffsetFetchResponseTopic:
    """The first version has a place for an error only in each partition."""
    partitions = [
        OffsetFetchResponsePartition(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code)
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)
