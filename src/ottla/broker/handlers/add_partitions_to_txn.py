"""AddPartitionsToTxn (24), versions 0 to 5: lets partitions take part in a transaction, or tells whether they do.

Clients use versions up to 3, brokers those from 4 on, for several transactions at once. One bad partition keeps the
others of its transaction from being tried.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from ottla.broker.coordinators.transactions import known_code
from ottla.broker.loop.slices import Future, parts_by_topic
from ottla.broker.network.acquaintance import MOST_TOPICS
from ottla.controller.topic_names import INTERNAL
from ottla.coordinator.operation import Reply
from ottla.coordinator.transactions.machine import PartitionCodes
from ottla.coordinator.transactions.transaction import VERSION_1
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps

FIRST_FENCING_VERSION = 2
FIRST_VERSION_OF_BROKERS = 4
NAMED_AT_ONCE = 500


def handle(broker: Broker, request: AddPartitionsToTxnRequest, context: Context) -> Steps:
    if context.version < FIRST_VERSION_OF_BROKERS:
        return _add_for_client(broker, request, context)
    return _add_for_broker(broker, request)


def _add_for_client(broker: Broker, request: AddPartitionsToTxnRequest, context: Context) -> Steps:
    transactional_id = request.v3_and_below_transactional_id
    producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    topics = request.v3_and_below_topics
    _note_topics(broker, topics, context)
    codes = yield from _existing(broker, topics, is_for_client=True)
    if any(codes.values()):
        codes = _not_attempted(codes)
    else:
        added: Future[PartitionCodes] = Future()
        reply = Reply(added.set, lambda code: dict.fromkeys(codes, code))
        partitions = list(codes)
        broker.transactions.submit(
            transactional_id,
            reply,
            lambda machine, operation: machine.add_partitions(
                operation, reply, transactional_id, producer, partitions, VERSION_1
            ),
        )
        codes = yield from added.wait()
    results = yield from _results(topics, codes, lambda code: known_code(code, context.version, FIRST_FENCING_VERSION))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _note_topics(broker: Broker, topics: list[AddPartitionsToTxnTopic], context: Context) -> None:
    acquaintance = context.connection.acquaintance
    if len(topics) > MOST_TOPICS:
        acquaintance.add_all()
    for each in topics[:MOST_TOPICS]:
        known = broker.topics.by_name.get(each.name)
        if known is not None:
            acquaintance.add(known.name)


def _add_for_broker(broker: Broker, request: AddPartitionsToTxnRequest) -> Steps:
    asked: list[tuple[AddPartitionsToTxnTransaction, Future[PartitionCodes]]] = []
    for transaction in request.transactions:
        yield None
        added: Future[PartitionCodes] = Future()
        asked.append((transaction, added))
        codes = yield from _existing(broker, transaction.topics, is_for_client=False)
        if any(codes.values()):
            added.set(_not_attempted(codes))
            continue
        broker.transactions.admit_here(
            transaction.transactional_id,
            (transaction.producer_id, transaction.producer_epoch),
            list(codes),
            adds=not transaction.verify_only,
            done=added.set,
        )
    response = AddPartitionsToTxnResponse(results_by_transaction=[])
    for transaction, added in asked:
        yield None
        codes = yield from added.wait()
        results = yield from _results(transaction.topics, codes, lambda code: code)
        result = AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results)
        response.results_by_transaction.append(result)
    return response


def _existing(
    broker: Broker, topics: list[AddPartitionsToTxnTopic], *, is_for_client: bool
) -> Generator[None, None, PartitionCodes]:
    codes: PartitionCodes = {}
    for part in parts_by_topic(topics, NAMED_AT_ONCE):
        if codes:
            yield
        for topic, partitions, _ in part:
            for index in partitions:
                code = ErrorCode.NONE
                if is_for_client and topic.name in INTERNAL:
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # there is another way to those
                elif broker.cluster.state(topic.name, index) is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                codes[topic.name, index] = code
    return codes


def _not_attempted(codes: PartitionCodes) -> PartitionCodes:
    return {partition: code or ErrorCode.OPERATION_NOT_ATTEMPTED for partition, code in codes.items()}


def _results(
    topics: list[AddPartitionsToTxnTopic], codes: PartitionCodes, known: Callable[[ErrorCode], ErrorCode]
) -> Generator[None, None, list[AddPartitionsToTxnTopicResult]]:
    results: list[AddPartitionsToTxnTopicResult] = []
    for part in parts_by_topic(topics, NAMED_AT_ONCE):
        if results:
            yield
        for topic, partitions, goes_on in part:
            answers = [
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=known(codes[topic.name, index])
                )
                for index in partitions
            ]
            if goes_on:
                results[-1].results_by_partition += answers
            else:
                results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=answers))
    return results
