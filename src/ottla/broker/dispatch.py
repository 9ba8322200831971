"""From a frame to its handler and from its answer to the connection.

A handler is a function `handle(broker, request, context)`, found in the table of APIs (api_table.py). It returns the
answer, or None when the answer comes later through `context.reply`. A handler that may have much to do is a generator:
it yields between small steps, and returns the same (in_steps.py).

Before its handler sees it, every request passes one step: `Context.authorize`, with the permissions of its row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker.access.authorizer import NotAuthorized, Principal, check
from ottla.broker.access.permissions import Permissions
from ottla.broker.api_table import BY_KEY, Route
from ottla.broker.controller.forwarding import at_controller
from ottla.broker.in_steps import InSteps, answer_in_steps, read_and_handle
from ottla.broker.network.slot import Slot
from ottla.broker.quotas.quotas import REQUEST_PERCENTAGE
from ottla.wire import apis
from ottla.wire.apis import PRODUCE, Api
from ottla.wire.errors import ProtocolError
from ottla.wire.fast_path import encode_usual, read_header
from ottla.wire.frames import encode_response, encode_response_in_steps
from ottla.wire.header import RequestHeader
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.registry import REQUESTS
from ottla.wire.schema import Reader, Response

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.loop.slices import Steps
    from ottla.broker.network.connection import Connection

MOST_FRAME_BYTES = 16 << 20  # of a request without records
STEPS_FROM_BYTES = 1 << 14  # larger ones are read in steps


class Handler(Protocol):
    def __call__(self, broker: Broker, request: Any, context: Context, /) -> Response | Steps | None: ...


class Served:
    """What serves one version of an API."""

    def __init__(self, api: Api, version: int, route: Route, handler: Handler, read: Reader) -> None:
        self.api = api
        self.version = version
        self.name = api.name
        self.permissions = route.permissions
        self.use = route.use
        self.handler = handler
        self.read = read


class Context(Slot):
    """One request under way: who asked, how, and the place of the answer."""

    def __init__(self, connection: Connection, header: RequestHeader, size_bytes: int) -> None:
        self.connection = connection
        self.parts = None
        self.header = header
        self.size_bytes = size_bytes
        self.in_steps: InSteps | None = None  # it is handled at once

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

    def spent(self, broker: Broker, seconds: float) -> None:
        """So much of the broker's time was spent on it."""

    def reply(self, response: Response) -> None:
        _, version, correlation_id, _, _ = self.header
        if self.in_steps is not None:  # then it may be large
            self.in_steps.slices.run(encode_response_in_steps(correlation_id, response, version), self._written)
            return
        try:
            parts = encode_usual(correlation_id, response, version) or encode_response(
                correlation_id, response, version
            )
        except Exception:
            self.connection.close("the broker failed")  # whoever gives the answer may be busy with that of another
            raise
        self.answer(parts)

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

    def __init__(self, connection: Connection, header: RequestHeader, size_bytes: int) -> None:
        Context.__init__(self, connection, header, size_bytes)
        self._response: Response | None = None
        self._throttle_ms: int | None = None

    def reply(self, response: Response) -> None:
        if self._throttle_ms is None:
            self._response = response
            return
        if self._throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, self._throttle_ms)
        Context.reply(self, response)

    def spent(self, broker: Broker, seconds: float) -> None:
        """Count it against the client's quota, in percent of the broker's one thread."""
        self._throttle_ms = broker.throttle(REQUEST_PERCENTAGE, self, seconds * 100)
        if self._response is not None:
            self.reply(self._response)


class Dispatch:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._metrics, self._quotas, self._rounds = broker.metrics, broker.quotas, broker.rounds
        self._served: dict[tuple[Api, int], Served] = {}  # those asked for so far
        self._last = NOTHING_SERVED

    def handle(self, connection: Connection, frame: memoryview) -> None:
        """Called by a connection for each frame."""
        broker = self._broker
        size_bytes = len(frame)
        request: Any = None
        is_large = False
        try:
            header = read_header(frame)
            api, version, _, _, body_position = header
            served = self._last  # clients repeat themselves
            if served.api is not api or served.version != version:
                served = self._last = self._served.get((api, version)) or self._first_of_its_kind(header)
            if api is PRODUCE:
                request, _ = served.read(frame, body_position)
            else:
                is_large = size_bytes > STEPS_FROM_BYTES
                if is_large:
                    _check_size(header, size_bytes)
                else:
                    request, _ = served.read(frame, body_position)
                if self._rounds.touched:
                    self._rounds.write()
        except ProtocolError as error:
            connection.refuse(str(error))
            return
        is_measured = self._quotas.are_set
        make = MeasuredContext if is_measured else Context
        context = make(connection, header, size_bytes)
        connection.expect_answer(context)
        connection.acquaintance.uses |= served.use
        metrics = self._metrics
        metrics.requests[served.name] += 1
        metrics.received_bytes += size_bytes
        if is_large:
            answer_in_steps(broker, context, read_and_handle(broker, served, frame, context))
            return
        try:
            context.authorize(broker, served.permissions, request)
            started = broker.loop.now() if is_measured else 0.0
            answered = served.handler(broker, request, context)
            if answered is not None and not isinstance(answered, Response):
                answer_in_steps(broker, context, answered)
                return
            if is_measured:
                context.spent(broker, broker.loop.now() - started)
            if answered is not None:
                context.reply(answered)
        except NotAuthorized as refusal:
            connection.refuse(str(refusal))
        except Exception:
            broker.report_bug(header)
            connection.close("the broker failed")

    def _first_of_its_kind(self, header: RequestHeader) -> Served:
        """Find what serves a version that was not asked for before, and remember it if it is served."""
        api, version = header.api, header.version
        route = BY_KEY.get(api.key)
        if route is None:
            raise ProtocolError(f"{api.name} is not served")
        handler = route.load()
        if route.is_at_controller:
            handler = at_controller(handler)
        if api.serves(version):
            read = REQUESTS[api.key].readers[version]
            served = self._served[api, version] = Served(api, version, route, handler, read)
            return served
        if api is not apis.API_VERSIONS:
            raise ProtocolError(f"{api.name} has no version {version}")
        return Served(api, version, route, handler, _read_nothing)  # who asks is told what there is


def _read_nothing(_frame: object, position: int) -> tuple[Any, int]:
    return ApiVersionsRequest(), position


def _no_handler(_broker: object, _request: object, _context: object, /) -> None:
    raise AssertionError("no version is less than 0")


NOTHING_SERVED: Any = Served(apis.API_VERSIONS, -1, BY_KEY[apis.API_VERSIONS.key], _no_handler, _read_nothing)


def _check_size(header: RequestHeader, size_bytes: int) -> None:
    if size_bytes > MOST_FRAME_BYTES:
        raise ProtocolError(f"{header.api.name}: {size_bytes} bytes, {MOST_FRAME_BYTES} at most are allowed")
