"""Forward (30001), version 0: the controller answers what came to another broker. Ottla's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.controller.forwarding import serve_forwarded
from ottla.broker.loop.slices import Steps
from ottla.wire.messages.forward import ForwardRequest

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(broker: Broker, request: ForwardRequest, context: Context) -> Steps:
    return (yield from serve_forwarded(broker, request))
