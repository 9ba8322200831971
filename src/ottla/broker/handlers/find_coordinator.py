"""FindCoordinator (10), versions 0 to 6: which broker looks after a group (0) or a transactional id (1).

It is the leader of the partition that remembers them. The topic is made at once if it is not there, so the first
answer is good already. Share groups (2) are not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps, mapped
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.brokers import ReachableBroker
    from ottla.broker.dispatch import Context

FIRST_VERSION_WITH_SEVERAL_KEYS = 4
GROUP, TRANSACTION, SHARE = 0, 1, 2
NO_NODE = -1


def handle(broker: Broker, request: FindCoordinatorRequest, context: Context) -> Steps:
    if request.key_type in (GROUP, TRANSACTION):
        coordinator = broker.groups if request.key_type == GROUP else broker.transactions
        yield from coordinator.ensure_topic()
    reachable = {each.node_id: each for each in broker.brokers.of_listener(context.listener)}
    if context.version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        keys = request.coordinator_keys
        found = yield from mapped(lambda key: _find(broker, reachable, request.key_type, key), keys)
        return FindCoordinatorResponse(coordinators=found)
    return _older_answer(broker, reachable, request)


def _older_answer(
    broker: Broker, reachable: dict[int, ReachableBroker], request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    found = _find(broker, reachable, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=_older_text(ErrorCode(found.error_code)),
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(broker: Broker, reachable: dict[int, ReachableBroker], key_type: int, key: str) -> Coordinator:
    if key_type not in (GROUP, TRANSACTION):
        return _none(key, ErrorCode.INVALID_REQUEST, "" if key_type == SHARE else _malformed())
    coordinator = broker.groups if key_type == GROUP else broker.transactions
    found = reachable.get(coordinator.coordinator_id(key))
    if found is None:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    return Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _none(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=message)


def _older_text(code: ErrorCode) -> str:
    """What versions before 4 say about each outcome."""
    if code is ErrorCode.NONE:
        return "NONE"
    return _malformed() if code is ErrorCode.INVALID_REQUEST else "The coordinator is not available."


def _malformed() -> str:
    from ottla.broker.handlers.describe_configs import MALFORMED  # which brings all settings with it

    return MALFORMED
