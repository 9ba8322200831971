"""What members of classic groups tell each other, as far as the coordinator looks into it.

It is for other members, so anything may be in it, and much: a coordinator looks no further than it would at a request.
"""

from __future__ import annotations

from typing import TypeVar

from ottla.wire.errors import ProtocolError
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.parts import Buffer
from ottla.wire.reader import MOST_ELEMENTS, STEP_ELEMENTS
from ottla.wire.schema import Message
from ottla.wire.versioned import decode_versioned_in_steps

M = TypeVar("M", bound=Message)

MOST_BYTES = 1 << 20  # of what one member tells: more could hardly be kept in the record of its group


def told_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """ProtocolError where it is none, or too long."""
    return _told(ConsumerProtocolSubscription, data)


def told_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """Likewise."""
    return _told(ConsumerProtocolAssignment, data)


def _told(message: type[M], data: Buffer) -> M:
    if len(data) > MOST_BYTES:
        raise ProtocolError(f"{message.__name__}: {len(data)} bytes, {MOST_BYTES} at most are looked at")
    steps = decode_versioned_in_steps(message, data)
    try:
        for _ in range(MOST_ELEMENTS // STEP_ELEMENTS):
            next(steps)
    except StopIteration as end:
        told: M = end.value
        return told
    raise ProtocolError(f"{message.__name__}: more than {MOST_ELEMENTS} names, which are not looked at")
