"""AddOffsetsToTxn (25), versions 0 to 4: lets the offsets of a group take part in a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.coordinators.transactions import known_code
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.operation import Reply
from ottla.coordinator.transactions.machine import PartitionCodes
from ottla.coordinator.transactions.transaction import VERSION_1
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps

FIRST_VERSION_WITH_FENCING = 2


def handle(broker: Broker, request: AddOffsetsToTxnRequest, context: Context) -> Steps:
    yield from broker.groups.ensure_topic()
    index = broker.groups.partition_of(request.group_id)
    if index < 0:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = OFFSETS_TOPIC, index

    def answered(codes: PartitionCodes) -> None:
        code = known_code(codes[partition], context.version, FIRST_VERSION_WITH_FENCING)
        context.reply(AddOffsetsToTxnResponse(error_code=code))

    reply = Reply(answered, lambda code: {partition: code})
    producer = request.producer_id, request.producer_epoch
    broker.transactions.submit(
        request.transactional_id,
        reply,
        lambda machine, operation: machine.add_partitions(
            operation, reply, request.transactional_id, producer, [partition], VERSION_1
        ),
    )
    return None
