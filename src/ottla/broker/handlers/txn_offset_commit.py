"""TxnOffsetCommit (28), versions 0 to 5: offsets that count when their transaction is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.group import Committer
from ottla.coordinator.offset_commit import OffsetToCommit, commit
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.coordinator.group_machine import GroupMachine
    from ottla.coordinator.transaction_machine import PartitionCodes

FIRST_VERSION_WITH_ABORTABLE_ERRORS = 4
FIRST_VERSION_WITH_TRANSACTIONS_2 = 5


def handle(broker: Broker, request: TxnOffsetCommitRequest, context: Context) -> TxnOffsetCommitResponse | None:
    asked = _Asked(broker, request)
    if not asked.offsets:
        return asked.response
    committer = Committer(
        request.member_id, request.group_instance_id, request.generation_id, context.version, is_transactional=True
    )

    def run(machine: GroupMachine, operation: Operation) -> None:
        codes = commit(machine, operation, request.group_id, committer, asked.offsets)
        for partition, code in zip(asked.partitions, codes, strict=True):
            # A consumer group's stale epoch is told in the words of older producers.
            partition.error_code = ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.STALE_MEMBER_EPOCH else code
        operation.answer(reply, asked.response)

    reply = Reply(context.reply, asked.refused)
    producer = request.producer_id, request.producer_epoch
    partition = OFFSETS_TOPIC, broker.groups.partition_of(request.group_id)

    def admitted(codes: PartitionCodes) -> None:
        code = _known_code(codes[partition], context.version)
        if code:
            reply.refuse(code)
        else:
            broker.metrics.commits += 1
            broker.groups.submit(request.group_id, reply, run, producer)

    if not request.group_id:
        return asked.refused(ErrorCode.INVALID_GROUP_ID)
    adds = context.version >= FIRST_VERSION_WITH_TRANSACTIONS_2
    offsets = broker.topics.partition(*partition)
    if offsets is not None and offsets.log.producers.is_replaced(*producer):
        return asked.refused(ErrorCode.INVALID_PRODUCER_EPOCH)
    takes_part = offsets is not None and offsets.log.producers.takes_part(*producer)
    if takes_part or not (adds or broker.settings.config.transaction_partition_verification_enable):
        admitted({partition: ErrorCode.NONE})
        return None
    broker.transactions.admit(request.transactional_id, producer, [partition], adds=adds, done=admitted)
    return None


def _known_code(code: ErrorCode, version: int) -> ErrorCode:
    """What the transaction's coordinator said, in words that a producer of this version understands."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return code


class _Asked:
    """The answer to a commit, as it grows: what is not there is refused at once, the rest is for the group."""

    def __init__(self, broker: Broker, request: TxnOffsetCommitRequest) -> None:
        self.response = TxnOffsetCommitResponse(topics=[])
        self.offsets: list[OffsetToCommit] = []
        self.partitions: list[TxnOffsetCommitResponsePartition] = []  # those of the offsets
        for asked in request.topics:
            topic = broker.topics.by_name.get(asked.name)
            answered = []
            for partition in asked.partitions:
                index = partition.partition_index
                answer = TxnOffsetCommitResponsePartition(
                    partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                answered.append(answer)
                if topic is not None and 0 <= index < topic.partition_count:
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
            self.response.topics.append(TxnOffsetCommitResponseTopic(name=asked.name, partitions=answered))

    def refused(self, code: ErrorCode) -> TxnOffsetCommitResponse:
        for partition in self.partitions:
            partition.error_code = code
        return self.response
