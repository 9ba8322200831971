"""AddPartitionsToTxn (24), versions 0 to 5: lets partitions take part in a transaction, or tells whether they do.

Clients use versions up to 3, brokers those from 4 on, for several transactions at once. One bad partition keeps the
others of its transaction from being tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.transactions import known_code
from ottla.controller.topic_names import INTERNAL
from ottla.coordinator.operation import Reply
from ottla.coordinator.transaction import VERSION_1
from ottla.coordinator.transaction_machine import PartitionCodes
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.slices import Steps

FIRST_VERSION_WITH_FENCING = 2
FIRST_VERSION_OF_BROKERS = 4


def handle(broker: Broker, request: AddPartitionsToTxnRequest, context: Context) -> Steps | None:
    if context.version < FIRST_VERSION_OF_BROKERS:
        _add_for_client(broker, request, context)
        return None
    return _add_for_broker(broker, request, context)


def _add_for_client(broker: Broker, request: AddPartitionsToTxnRequest, context: Context) -> None:
    transactional_id = request.v3_and_below_transactional_id
    producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    topics = request.v3_and_below_topics

    def answered(codes: PartitionCodes) -> None:
        known = {
            partition: known_code(code, context.version, FIRST_VERSION_WITH_FENCING)
            for partition, code in codes.items()
        }
        context.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, known)))

    codes = _existing(broker, topics, is_for_client=True)
    if any(codes.values()):
        answered(_not_attempted(codes))
        return
    reply = Reply(answered, lambda code: dict.fromkeys(codes, code))
    broker.transactions.submit(
        transactional_id,
        reply,
        lambda machine, operation: machine.add_partitions(
            operation, reply, transactional_id, producer, list(codes), VERSION_1
        ),
    )


def _add_for_broker(broker: Broker, request: AddPartitionsToTxnRequest, context: Context) -> Steps:
    response = AddPartitionsToTxnResponse(results_by_transaction=[])
    unanswered = len(request.transactions)
    if not unanswered:
        return response

    def answer(transactional_id: str, topics: list[AddPartitionsToTxnTopic]) -> Callable[[PartitionCodes], None]:
        def answered(codes: PartitionCodes) -> None:
            nonlocal unanswered
            unanswered -= 1
            result = AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=_results(topics, codes))
            response.results_by_transaction.append(result)
            if not unanswered:
                context.reply(response)

        return answered

    for asked in request.transactions:
        yield None
        done = answer(asked.transactional_id, asked.topics)
        codes = _existing(broker, asked.topics, is_for_client=False)
        if any(codes.values()):
            done(_not_attempted(codes))
            continue
        producer = asked.producer_id, asked.producer_epoch
        broker.transactions.admit(asked.transactional_id, producer, list(codes), adds=not asked.verify_only, done=done)
    return None


def _existing(broker: Broker, topics: list[AddPartitionsToTxnTopic], *, is_for_client: bool) -> PartitionCodes:
    codes: PartitionCodes = {}
    for topic in topics:
        for index in topic.partitions:
            code = ErrorCode.NONE
            if is_for_client and topic.name in INTERNAL:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # there is another way to those
            elif broker.topics.partition(topic.name, index) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            codes[topic.name, index] = code
    return codes


def _not_attempted(codes: PartitionCodes) -> PartitionCodes:
    return {partition: code or ErrorCode.OPERATION_NOT_ATTEMPTED for partition, code in codes.items()}


def _results(topics: list[AddPartitionsToTxnTopic], codes: PartitionCodes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
