"""ListTransactions (66), versions 0 to 2: the transactional ids that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps
from ottla.coordinator.consumer.regex import compile_regex
from ottla.coordinator.transactions.transaction import Transaction, TransactionState
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.messages.list_transactions import TransactionState as ListedTransaction

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

LABELS = frozenset(state.label for state in TransactionState)


def handle(broker: Broker, request: ListTransactionsRequest, context: Context) -> Steps:
    if broker.transactions.is_loading:
        return _response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    pattern = request.transactional_id_pattern
    try:
        matches = compile_regex(pattern) if pattern else None
    except ApiError as refusal:
        return _response(refusal.code)
    now_ms = broker.clock_ms()

    def is_wanted(transaction: Transaction) -> bool:
        return (
            (not request.state_filters or transaction.state.label in labels)
            and (not request.producer_id_filters or transaction.producer_id in producer_ids)
            and (request.duration_filter < 0 or now_ms - transaction.started_ms > request.duration_filter)
            and (matches is None or matches(transaction.transactional_id))
        )

    shards = broker.transactions.shards()
    labels, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    wanted = []
    for shard in shards:
        for each in list(shard.machine.transactions.values()):
            if is_wanted(each):
                wanted.append(each)
            yield None
    unknown = [label for label in request.state_filters if label not in LABELS]
    return _response(ErrorCode.NONE, wanted, unknown)


def _response(
    code: ErrorCode, transactions: list[Transaction] | None = None, unknown: list[str] | None = None
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=code,
        unknown_state_filters=unknown or [],
        transaction_states=[
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            )
            for transaction in transactions or ()
        ],
    )
