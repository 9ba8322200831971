"""InitProducerId (22), versions 0 to 5: gives a producer its id and epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.coordinators.transactions import known_code
from ottla.broker.network.acquaintance import COORDINATES
from ottla.coordinator.operation import Reply
from ottla.coordinator.transactions.machine import Identity
from ottla.coordinator.transactions.producer_ids import NoProducerId
from ottla.coordinator.transactions.transaction import NO_EPOCH, NO_ID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps

FIRST_VERSION_WITH_FENCING = 4


def handle(broker: Broker, request: InitProducerIdRequest, context: Context) -> Steps:
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        return _response(Identity(ErrorCode.INVALID_REQUEST))
    yield from broker.transactions.ensure_producer_ids()
    if request.transactional_id is None:
        return _response(_idempotent_only(broker))
    context.connection.acquaintance.uses |= COORDINATES
    transactional_id = request.transactional_id
    expected = None if request.producer_id == NO_ID else (request.producer_id, request.producer_epoch)

    def answered(identity: Identity) -> None:
        code = known_code(identity.code, context.version, FIRST_VERSION_WITH_FENCING)
        context.reply(_response(identity._replace(code=code)))

    reply = Reply(answered, Identity)
    broker.transactions.submit(
        transactional_id,
        reply,
        lambda machine, operation: machine.init_producer_id(
            operation, reply, transactional_id, request.transaction_timeout_ms, expected
        ),
    )
    return None


def _idempotent_only(broker: Broker) -> Identity:
    try:
        return Identity(ErrorCode.NONE, broker.transactions.producer_ids.new(), 0)
    except NoProducerId:
        return Identity(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _response(identity: Identity) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=identity.code, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )
