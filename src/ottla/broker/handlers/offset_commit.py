"""OffsetCommit (8), versions 2 to 10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group import Committer
from ottla.coordinator.offset_commit import OffsetToCommit, commit
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.topics import Topic
    from ottla.coordinator.group_machine import GroupMachine

FIRST_VERSION_WITH_TOPIC_IDS = 10


def handle(broker: Broker, request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse | None:
    asked = _Asked(broker, request, by_id=context.version >= FIRST_VERSION_WITH_TOPIC_IDS)
    if not asked.offsets:
        return asked.response
    committer = Committer(
        request.member_id, request.group_instance_id, request.generation_id_or_member_epoch, context.version
    )

    def run(machine: GroupMachine, operation: Operation) -> None:
        codes = commit(machine, operation, request.group_id, committer, asked.offsets, request.retention_time_ms)
        for partition, code in zip(asked.partitions, codes, strict=True):
            partition.error_code = code
        operation.answer(reply, asked.response)

    reply = Reply(context.reply, asked.refused)
    broker.metrics.commits += 1
    broker.groups.submit(request.group_id, reply, run)
    return None


class _Asked:
    """The answer to a commit, as it grows: what is not there is refused at once, the rest is for the group."""

    def __init__(self, broker: Broker, request: OffsetCommitRequest, *, by_id: bool) -> None:
        self.response = OffsetCommitResponse(topics=[])
        self.offsets: list[OffsetToCommit] = []
        self.partitions: list[OffsetCommitResponsePartition] = []  # those of the offsets
        topics = broker.topics
        for asked in request.topics:
            topic = topics.by_id.get(asked.topic_id) if by_id else topics.by_name.get(asked.name)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._add(asked, topic, unknown)

    def _add(self, asked: OffsetCommitRequestTopic, topic: Topic | None, unknown: ErrorCode) -> None:
        answered = []
        count = 0 if topic is None else len(topic.partitions)
        for partition in asked.partitions:
            index = partition.partition_index
            answer = OffsetCommitResponsePartition(partition_index=index, error_code=unknown)
            answered.append(answer)
            if topic is not None and 0 <= index < count:
                self.offsets.append(
                    OffsetToCommit(
                        topic.name,
                        topic.topic_id,
                        index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                    )
                )
                self.partitions.append(answer)
        if answered:
            self.response.topics.append(
                OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=answered)
            )

    def refused(self, code: ErrorCode) -> OffsetCommitResponse:
        for partition in self.partitions:
            partition.error_code = code
        return self.response
