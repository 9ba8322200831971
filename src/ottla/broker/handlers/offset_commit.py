"""OffsetCommit (8), versions 2 to 10."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.asked_offsets import AskedOffsets
from ottla.coordinator.group import Committer
from ottla.coordinator.offset_commit import commit
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
    from ottla.broker.slices import Steps
    from ottla.coordinator.group_machine import GroupMachine

FIRST_VERSION_WITH_TOPIC_IDS = 10


def handle(broker: Broker, request: OffsetCommitRequest, context: Context) -> Steps | OffsetCommitResponse | None:
    asked = AskedOffsets()
    response = _first_answer(broker, request, asked, by_id=context.version >= FIRST_VERSION_WITH_TOPIC_IDS)
    if not asked.offsets:
        return response
    broker.metrics.commits += 1
    commit_part = functools.partial(_commit, broker, request, context.version)
    return asked.commit_in_parts(commit_part, lambda: context.reply(response))


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
    broker.groups.submit(request.group_id, reply, run)


def _first_answer(
    broker: Broker, request: OffsetCommitRequest, asked: AskedOffsets, *, by_id: bool
) -> OffsetCommitResponse:
    """What is not there is refused at once; the rest is gathered for the group."""
    topics = broker.topics
    answered = []
    for each in request.topics:
        topic = topics.by_id.get(each.topic_id) if by_id else topics.by_name.get(each.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = [
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=unknown)
            for partition in each.partitions
        ]
        asked.add(topic, each.partitions, partitions)
        if partitions:
            answered.append(OffsetCommitResponseTopic(name=each.name, topic_id=each.topic_id, partitions=partitions))
    return OffsetCommitResponse(topics=answered)
