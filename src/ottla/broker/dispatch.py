"""From a frame to its handler and from its answer to the connection.

A handler is a function `handle(broker, request, context)`, found in the table of APIs (api_table.py). It returns the
answer, or None when the answer comes later through `context.reply`. A handler that may have much to do is a generator:
it yields between small steps, and returns the same. What takes longer than a moment goes on in slices between the
rounds of the loop. Until then nothing more is read from the connection, so that requests stay in order. Large requests
are read, and large answers written, in steps too.

Before its handler sees it, every request passes one step: `Context.authorize`, with the permissions of its row.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol, cast

from ottla.broker.access.authorizer import NotAuthorized, Principal, check
from ottla.broker.access.permissions import Permissions
from ottla.broker.api_table import BY_KEY, Route
from ottla.broker.controller.forwarding import at_controller
from ottla.broker.loop.slices import Slices, Steps, begin
from ottla.broker.network.connection import Slot
from ottla.broker.quotas.quotas import REQUEST_PERCENTAGE
from ottla.wire import apis
from ottla.wire.apis import PRODUCE
from ottla.wire.fast_path import read_header
from ottla.wire.frames import (
    decode_request_body_in_steps,
    encode_response,
    encode_response_in_steps,
)
from ottla.wire.header import RequestHeader
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.registry import REQUESTS
from ottla.wire.schema import Reader, Response

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.network.connection import Connection

MOST_FRAME_BYTES = 16 << 20  # of a request without records
STEPS_FROM_BYTES = 1 << 14  # larger ones are read in steps
COPIED_AT_ONCE_BYTES = 1 << 20


class Handler(Protocol):
    def __call__(self, broker: Broker, request: Any, context: Context, /) -> Response | Steps | None: ...


Served = tuple[Handler, Route, Reader]


class Context(Slot):
    """One request under way: who asked, how, and the place of the answer."""

    __slots__ = (
        "header",
        "own_memory",
        "size_bytes",
        "slices",
        "spent_seconds",
        "writes_in_steps",
    )

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        size_bytes: int,
        slices: Slices,
    ) -> None:
        self.connection = connection
        self.parts = None
        self.header = header
        self.size_bytes = size_bytes
        self.spent_seconds = 0.0  # in its steps
        self.writes_in_steps = False  # for the answer may be a large one
        self.own_memory: Callable[[], None] | None = None  # called before a handler's steps outlive the frame
        self.slices = slices  # where its steps run

    @property
    def version(self) -> int:
        return self.header.version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    @property
    def origin(self) -> int | None:
        """The broker that the request came to, if it is not this one."""
        return None

    @property
    def listener(self) -> str:
        """The name of the one the client came through."""
        return self.connection.listener

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.connection.principal

    def authorize(self, broker: Broker, permissions: Permissions, request: Any) -> None:
        """NotAuthorized where the principal lacks one of the permissions that the request takes."""
        authorizer = broker.authorizer
        if not authorizer.allows_everything:
            check(authorizer, self.principal, self.listener, permissions(request, broker.topics.name_of))

    def reply(self, response: Response) -> None:
        header = self.header
        if self.writes_in_steps:
            steps = encode_response_in_steps(header.correlation_id, response, header.version)
            self.slices.run(steps, self._written)
            return
        try:
            parts = encode_response(header.correlation_id, response, header.version)
        except Exception:
            self.connection.close("the broker failed")  # whoever gives the answer may be busy with that of another
            raise
        self.parts = parts
        self.connection.answered()

    def _written(self, parts: Any, failure: Exception | None) -> None:
        if failure is not None:
            self.connection.close("the broker failed")
            raise failure
        self.answer(parts)

    def reply_in_version(self, response: Response, version: int) -> None:
        """For ApiVersions, whose asker may not know yet which versions there are."""
        self.answer(encode_response(self.header.correlation_id, response, version))

    def no_reply(self) -> None:
        """The client does not wait for an answer."""
        self.answer([])

    def close(self, reason: str) -> None:
        """Refuse in the one way that is left where no answer is expected."""
        self.connection.refuse(reason)


class MeasuredContext(Context):
    """One whose time counts against a quota: its answer tells for how long the client is held back.

    An answer that is given while the time is still being measured waits for that.
    """

    __slots__ = ("_response", "_throttle_ms")

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        size_bytes: int,
        slices: Slices,
    ) -> None:
        super().__init__(connection, header, size_bytes, slices)
        self._response: Response | None = None
        self._throttle_ms: int | None = None

    def reply(self, response: Response) -> None:
        if self._throttle_ms is None:
            self._response = response
            return
        if self._throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, self._throttle_ms)
        super().reply(response)

    def measured(self, throttle_ms: int) -> None:
        self._throttle_ms = throttle_ms
        if self._response is not None:
            self.reply(self._response)


class Dispatch:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routes: dict[tuple[int, int], Served] = {}  # by API and version: those asked for so far

    def handle(self, connection: Connection, frame: memoryview) -> None:
        """Called by a connection for each frame."""
        broker = self._broker
        size_bytes = len(frame)
        request: Any = None
        is_large = False
        try:
            header = read_header(frame)
            api = header.api
            handler, route, read = self._routes.get((api.key, header.version)) or self._first_of_its_kind(header)
            if api is PRODUCE:
                request, _ = read(frame, header.body_position)
            else:
                is_large = size_bytes > STEPS_FROM_BYTES
                if is_large:
                    _check_size(header, size_bytes)
                else:
                    request, _ = read(frame, header.body_position)
                if broker.rounds.touched:
                    broker.rounds.write()
        except ProtocolError as error:
            connection.refuse(str(error))
            return
        is_measured = broker.quotas.are_set
        make_context = MeasuredContext if is_measured else Context
        context = make_context(connection, header, size_bytes, broker.request_slices)
        connection.expect_answer(context)
        connection.acquaintance.uses |= route.use
        metrics = broker.metrics
        metrics.requests[api.name] += 1
        metrics.received_bytes += size_bytes
        if is_large:
            answer_in_steps(broker, context, self._large(handler, route, frame, context))
            return
        try:
            context.authorize(broker, route.permissions, request)
            started = broker.loop.now() if is_measured else 0.0
            answered = handler(broker, request, context)
            if is_measured and not isinstance(answered, GeneratorType):
                _charge(broker, cast(MeasuredContext, context), broker.loop.now() - started)
            if answered is None:
                return
            if isinstance(answered, GeneratorType):
                answer_in_steps(broker, context, answered)
            else:
                context.reply(cast("Response", answered))
        except NotAuthorized as refusal:
            connection.refuse(str(refusal))
        except Exception:
            broker.report_bug(header)
            connection.close("the broker failed")

    def _large(self, handler: Handler, route: Route, frame: memoryview, context: Context) -> Steps:
        """Read and handle a request of many elements."""
        request = yield from decode_request_body_in_steps(context.header, frame)
        if context.size_bytes > COPIED_AT_ONCE_BYTES:
            yield None  # long texts were copied, and may be copied again
        context.authorize(self._broker, route.permissions, request)
        answered = handler(self._broker, request, context)
        if isinstance(answered, GeneratorType):
            answered = yield from answered
        return answered

    def _first_of_its_kind(self, header: RequestHeader) -> Served:
        """Find what serves a version that was not asked for before, and remember it if it is served."""
        api, version = header.api, header.version
        route = BY_KEY.get(api.key)
        if route is None:
            raise ProtocolError(f"{api.name} is not served")
        handler = route.load()
        if route.is_at_controller:
            handler = at_controller(handler)
        if not api.serves(version):
            if api is not apis.API_VERSIONS:
                raise ProtocolError(f"{api.name} has no version {version}")
            return handler, route, lambda _frame, position: (ApiVersionsRequest(), position)  # told what there is
        found = self._routes[api.key, version] = handler, route, REQUESTS[api.key].readers[version]
        return found


def _check_size(header: RequestHeader, size_bytes: int) -> None:
    if size_bytes > MOST_FRAME_BYTES:
        raise ProtocolError(f"{header.api.name}: {size_bytes} bytes, {MOST_FRAME_BYTES} at most are allowed")


def _raise(failure: Exception | None) -> None:
    if failure is not None:
        raise failure


def _charge(broker: Broker, context: MeasuredContext, seconds: float) -> None:
    """Count the time a request took against the client's quota, in percent of the broker's one thread."""
    context.measured(broker.throttle(REQUEST_PERCENTAGE, context, seconds * 100))


def answer_in_steps(broker: Broker, context: Context, steps: Steps) -> None:
    """Handle a request in steps: at once if that takes but a moment, or else with its connection held."""
    connection = context.connection
    context.writes_in_steps = True

    def done(response: Any, failure: Exception | None) -> None:
        if isinstance(failure, ProtocolError):
            connection.refuse(str(failure))
            return
        try:
            _raise(failure)
            if connection.is_open:
                if isinstance(context, MeasuredContext):
                    _charge(broker, context, context.spent_seconds)
                if response is not None:
                    context.reply(response)
        except Exception:
            broker.report_bug(context.header)
            connection.close("the broker failed")

    _run_steps(steps, done, context)


def _run_steps(steps: Steps, done: Callable[[Any, Exception | None], None], context: Context) -> None:
    """Run steps for a moment, and what is left in slices, with the connection of `context` held meanwhile."""
    slices = context.slices
    now = slices.loop.now
    started = now()
    begun = begin(slices.loop, steps)  # the first step takes the frame out of the memory that the next one comes into
    context.spent_seconds = spent_seconds = now() - started
    own_memory, context.own_memory = context.own_memory, None  # whose it is knows the context, too
    if begun.is_over:
        done(begun.result, begun.failure)
        return
    if own_memory is not None:
        own_memory()
    connection = context.connection
    connection.hold()

    def ended(result: Any, failure: Exception | None) -> None:
        context.spent_seconds = spent_seconds + task.spent_seconds
        connection.forget_call(task.cancel)
        connection.release()
        done(result, failure)

    task = slices.start(steps, ended, begun.job)
    connection.call_when_closed(task.cancel)
