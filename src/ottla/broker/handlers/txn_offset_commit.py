"""TxnOffsetCommit (28), versions 0 to 5: offsets that count when their transaction is committed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.asked_offsets import AskedOffsets
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.group import Committer
from ottla.coordinator.offset_commit import commit
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
    from ottla.broker.slices import Steps
    from ottla.coordinator.group_machine import GroupMachine
    from ottla.coordinator.transaction_machine import PartitionCodes

FIRST_VERSION_WITH_ABORTABLE_ERRORS = 4
FIRST_VERSION_WITH_TRANSACTIONS_2 = 5


def handle(broker: Broker, request: TxnOffsetCommitRequest, context: Context) -> Steps | TxnOffsetCommitResponse | None:
    asked = AskedOffsets()
    response = _first_answer(broker, request, asked)
    if not asked.offsets:
        return response
    if not request.group_id:
        asked.answer_all(ErrorCode.INVALID_GROUP_ID)
        return response
    commit_part = functools.partial(_commit, broker, request, context.version)
    return asked.commit_in_parts(commit_part, lambda: context.reply(response))


def _commit(
    broker: Broker,
    request: TxnOffsetCommitRequest,
    version: int,
    asked: AskedOffsets,
    answered: Callable[[AskedOffsets], None],
) -> None:
    committer = Committer(
        request.member_id, request.group_instance_id, request.generation_id, version, is_transactional=True
    )

    def run(machine: GroupMachine, operation: Operation) -> None:
        codes = commit(machine, operation, request.group_id, committer, asked.offsets)
        # A consumer group's stale epoch is told in the words of older producers.
        asked.answer(ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.STALE_MEMBER_EPOCH else code for code in codes)
        operation.answer(reply, asked)

    def refused(code: ErrorCode) -> AskedOffsets:
        asked.answer_all(code)
        return asked

    reply = Reply(answered, refused)
    producer = request.producer_id, request.producer_epoch
    partition = OFFSETS_TOPIC, broker.groups.partition_of(request.group_id)

    def admitted(codes: PartitionCodes) -> None:
        code = _known_code(codes[partition], version)
        if code:
            reply.refuse(code)
        else:
            broker.metrics.commits += 1
            broker.groups.submit(request.group_id, reply, run, producer)

    adds = version >= FIRST_VERSION_WITH_TRANSACTIONS_2
    offsets = broker.topics.partition(*partition)
    if offsets is not None and offsets.log.producers.is_replaced(*producer):
        reply.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
        return
    takes_part = offsets is not None and offsets.log.producers.takes_part(*producer)
    if takes_part or not (adds or broker.settings.config.transaction_partition_verification_enable):
        admitted({partition: ErrorCode.NONE})
        return
    broker.transactions.admit(request.transactional_id, producer, [partition], adds=adds, done=admitted)


def _known_code(code: ErrorCode, version: int) -> ErrorCode:
    """What the transaction's coordinator said, in words that a producer of this version understands."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _first_answer(broker: Broker, request: TxnOffsetCommitRequest, asked: AskedOffsets) -> TxnOffsetCommitResponse:
    """What is not there is refused at once; the rest is gathered for the group."""
    answered = []
    for each in request.topics:
        partitions = [
            TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for partition in each.partitions
        ]
        asked.add(broker.topics.by_name.get(each.name), each.partitions, partitions)
        answered.append(TxnOffsetCommitResponseTopic(name=each.name, partitions=partitions))
    return TxnOffsetCommitResponse(topics=answered)
