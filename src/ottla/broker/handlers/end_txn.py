"""EndTxn (26), versions 0 to 5: commits or aborts a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.coordinators.transactions import known_code
from ottla.coordinator.operation import Reply
from ottla.coordinator.transactions.machine import Identity
from ottla.coordinator.transactions.transaction import VERSION_1, VERSION_2
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_VERSION_WITH_FENCING = 2
FIRST_VERSION_WITH_TRANSACTIONS_2 = 5


def handle(broker: Broker, request: EndTxnRequest, context: Context) -> None:
    def answered(identity: Identity) -> None:
        context.reply(
            EndTxnResponse(
                error_code=known_code(identity.code, context.version, FIRST_VERSION_WITH_FENCING),
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
            )
        )

    reply = Reply(answered, Identity)
    broker.transactions.submit(
        request.transactional_id,
        reply,
        lambda machine, operation: machine.end(
            operation,
            reply,
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            version=VERSION_2 if context.version >= FIRST_VERSION_WITH_TRANSACTIONS_2 else VERSION_1,
        ),
    )
