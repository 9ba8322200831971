"""Requests that take more than a moment: they are handled in steps, in slices between the rounds of the loop.

Until such a request has ended, nothing more is read from its connection, so that requests stay in order. Large requests
are read, and large answers written, in steps too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.loop.slices import Slices, Steps, begin
from ottla.wire.errors import ProtocolError
from ottla.wire.frames import decode_request_body_in_steps
from ottla.wire.schema import Response

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context, Served
    from ottla.broker.network.connection import Connection

COPIED_AT_ONCE_BYTES = 1 << 20


class InSteps:
    """What a request needs that is handled in steps."""

    __slots__ = ("own_memory", "slices", "spent_seconds")

    def __init__(self, slices: Slices, own_memory: Callable[[], None] | None = None) -> None:
        """`own_memory`: called before the steps outlive the frame."""
        self.slices = slices
        self.own_memory = own_memory
        self.spent_seconds = 0.0


def read_and_handle(broker: Broker, served: Served, frame: memoryview, context: Context) -> Steps:
    """The steps of a request of many elements."""
    request = yield from decode_request_body_in_steps(context.header, frame)
    if context.size_bytes > COPIED_AT_ONCE_BYTES:
        yield None  # long texts were copied, and may be copied again
    context.authorize(broker, served.permissions, request)
    answered = served.handler(broker, request, context)
    if answered is None or isinstance(answered, Response):
        return answered
    return (yield from answered)


def answer_in_steps(broker: Broker, context: Context, steps: Steps) -> None:
    """Handle a request in steps: at once if that takes but a moment, or else with its connection held."""
    connection = context.connection
    in_steps = context.in_steps = context.in_steps or InSteps(broker.request_slices)

    def done(response: Any, failure: Exception | None) -> None:
        if isinstance(failure, ProtocolError):
            connection.refuse(str(failure))
            return
        try:
            _raise(failure)
            if connection.is_open:
                context.spent(broker, in_steps.spent_seconds)
                if response is not None:
                    context.reply(response)
        except Exception:
            broker.report_bug(context.header)
            connection.close("the broker failed")

    _run_steps(steps, done, connection, in_steps, context.size_bytes)


def _raise(failure: Exception | None) -> None:
    if failure is not None:
        raise failure


def _run_steps(
    steps: Steps,
    done: Callable[[Any, Exception | None], None],
    connection: Connection,
    in_steps: InSteps,
    size_bytes: int,
) -> None:
    """Run steps for a moment, and what is left in slices, with their connection held meanwhile."""
    slices = in_steps.slices
    now = slices.loop.now
    started = now()
    begun = begin(slices.loop, steps)  # the first step takes the frame out of the memory that the next one comes into
    in_steps.spent_seconds = spent_seconds = now() - started
    own_memory, in_steps.own_memory = in_steps.own_memory, None  # whose it is knows the context, too
    if begun.is_over:
        done(begun.result, begun.failure)
        return
    if own_memory is not None:
        own_memory()
    connection.hold(size_bytes)

    def ended(result: Any, failure: Exception | None) -> None:
        in_steps.spent_seconds = spent_seconds + task.spent_seconds
        connection.forget_call(task.cancel)
        connection.release()
        done(result, failure)

    task = slices.start(steps, ended, begun.job)
    connection.call_when_closed(task.cancel)
