"""UnregisterBroker (64), version 0: forgets a broker that will not come back.

As with Apache Kafka, one that runs is taken out, too, and registers again only when it is started anew. The broker that
decides for the cluster cannot be: who asks is told to stop it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.changes import Change, ForgottenBroker
from ottla.controller.leaders import broker_down
from ottla.controller.steps import InSteps
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps


def handle(broker: Broker, request: UnregisterBrokerRequest, context: Context) -> Steps:
    node_id = request.broker_id
    refusals: list[ApiError] = []

    def decide() -> InSteps[list[Change]]:
        cluster = broker.controller.cluster
        if node_id not in cluster.brokers:
            message = f"Broker ID {node_id} is not currently registered"
            refusals.append(ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, message))
        elif node_id == broker.node_id:
            message = f"Broker ID {node_id} is the controller; stop it first."
            refusals.append(ApiError(ErrorCode.INVALID_REQUEST, message))
        if refusals:
            return []
        gone = yield from broker_down(cluster, broker.membership.rules(), node_id, is_registered=True)
        # With its node goes what it may register again by, in the same commit, however many the states are.
        return [*gone[:1], ForgottenBroker(node_id), *gone[1:]]

    outcomes = yield from broker.controller.decided(decide)
    refusals += [refusal for _, refusal in outcomes if refusal is not None]
    if refusals:
        return UnregisterBrokerResponse(error_code=refusals[0].code, error_message=refusals[0].message)
    return UnregisterBrokerResponse(error_code=0, error_message="")  # as Kafka has it
