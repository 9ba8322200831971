"""DescribeTransactions (65), version 0: the state of transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps, mapped, with_few_repeats
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(broker: Broker, request: DescribeTransactionsRequest, context: Context) -> Steps:
    states = yield from mapped(lambda each: _describe(broker, each), with_few_repeats(request.transactional_ids))
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(broker: Broker, transactional_id: str) -> TransactionState:
    found = broker.transactions.find(transactional_id)
    if isinstance(found, ErrorCode):
        return TransactionState(
            error_code=found,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        topics.setdefault(topic, []).append(index)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )
