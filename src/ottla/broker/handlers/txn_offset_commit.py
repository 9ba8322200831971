"""TxnOffsetCommit (28), versions 0 to 5: offsets that count when their transaction is committed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import TYPE_CHECKING

from ottla.broker.coordinators.asked_offsets import AskedOffsets, commit_in_parts
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.group import Committer
from ottla.coordinator.offsets.commit import commit
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
    from ottla.broker.loop.slices import Steps, TopicPart
    from ottla.coordinator.group_machine import GroupMachine
    from ottla.coordinator.transactions.machine import PartitionCodes

FIRST_VERSION_WITH_ABORTABLE_ERRORS = 4
FIRST_VERSION_WITH_TRANSACTIONS_2 = 5


def handle(broker: Broker, request: TxnOffsetCommitRequest, context: Context) -> Steps | None:
    if broker.groups.partition_count:
        return _handle(broker, request, context)
    return _handle_with_topic(broker, request, context)


def _handle_with_topic(broker: Broker, request: TxnOffsetCommitRequest, context: Context) -> Steps:
    """The first commit of all makes the topic that keeps it."""
    yield from broker.groups.ensure_topic()
    answered = _handle(broker, request, context)
    return (yield from answered) if isinstance(answered, GeneratorType) else answered


def _handle(broker: Broker, request: TxnOffsetCommitRequest, context: Context) -> Steps | None:
    response = TxnOffsetCommitResponse(topics=[])
    look = functools.partial(_look, broker, response.topics)
    commit_part = functools.partial(_commit, broker, request, context.version)
    return commit_in_parts(request.topics, look, commit_part, context, response)


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
    if not request.group_id:
        reply.refuse(ErrorCode.INVALID_GROUP_ID)
        return
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
    if offsets is None or not offsets.is_leader:
        is_made = broker.groups.partition_count > 0
        reply.refuse(ErrorCode.NOT_COORDINATOR if is_made else ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    if offsets.log.producers.is_replaced(*producer):
        reply.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
        return
    if offsets.log.producers.takes_part(*producer) or not (
        adds or broker.settings.config.transaction_partition_verification_enable
    ):
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


def _look(
    broker: Broker,
    answered: list[TxnOffsetCommitResponseTopic],
    part: Iterable[TopicPart],
) -> AskedOffsets:
    """What is not there is refused at once; the rest is for the group. A topic may go on from the part before."""
    asked = AskedOffsets()
    for each, partitions, goes_on in part:
        answers = [
            TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for partition in partitions
        ]
        asked.add(broker.topics.by_name.get(each.name), partitions, answers)
        if goes_on:
            answered[-1].partitions += answers
        else:
            answered.append(TxnOffsetCommitResponseTopic(name=each.name, partitions=answers))
    return asked
