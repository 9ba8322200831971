"""OffsetCommit (8), versions 2 to 10."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ottla.broker.coordinators.asked_offsets import AskedOffsets, commit_in_parts
from ottla.coordinator.group import Committer
from ottla.coordinator.offsets.commit import commit
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps, TopicPart
    from ottla.coordinator.group_machine import GroupMachine

FIRST_VERSION_WITH_TOPIC_IDS = 10
UNKNOWN_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # an enum's member takes a while to be looked up


def handle(broker: Broker, request: OffsetCommitRequest, context: Context) -> Steps | None:
    response = OffsetCommitResponse(topics=[])
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    look = functools.partial(_look, broker, response.topics, by_id)
    commit_part = functools.partial(_commit, broker, request, context.version)
    return commit_in_parts(request.topics, look, commit_part, context, response)


def _commit(
    broker: Broker,
    request: OffsetCommitRequest,
    version: int,
    asked: AskedOffsets,
    answered: Callable[[AskedOffsets], None],
) -> None:
    committer = Committer(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch, version)

    def run(machine: GroupMachine, operation: Operation) -> None:
        asked.answer(commit(machine, operation, request.group_id, committer, asked.offsets, request.retention_time_ms))
        operation.answer(reply, asked)

    def refused(code: ErrorCode) -> AskedOffsets:
        asked.answer_all(code)
        return asked

    reply = Reply(answered, refused)
    broker.metrics.commits += 1
    broker.groups.submit(request.group_id, reply, run)


def _look(
    broker: Broker,
    answered: list[OffsetCommitResponseTopic],
    by_id: bool,
    part: Iterable[TopicPart],
) -> AskedOffsets:
    """What is not there is refused at once; the rest is for the group. A topic may go on from the part before."""
    topics = broker.topics
    asked = AskedOffsets()
    for each, partitions, goes_on in part:
        if not partitions:
            continue
        topic = topics.by_id.get(each.topic_id) if by_id else topics.by_name.get(each.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else UNKNOWN_TOPIC
        answers = [
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=unknown)
            for partition in partitions
        ]
        asked.add(topic, partitions, answers)
        if goes_on:
            answered[-1].partitions += answers
        else:
            answered.append(OffsetCommitResponseTopic(name=each.name, topic_id=each.topic_id, partitions=answers))
    return asked
