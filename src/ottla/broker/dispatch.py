"""From a frame to its handler and from its answer to the connection.

A handler is a function `handle(broker, request, context)` in the module of handlers/ that is named after its API. It
returns the answer, or None when the answer comes later through `context.reply`. Modules are imported when their API
is first asked for, so that a broker starts without them.
"""

from __future__ import annotations

import functools
import importlib
import re
from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker import handlers
from ottla.broker.quotas import REQUEST_PERCENTAGE
from ottla.wire import apis
from ottla.wire.apis import Api
from ottla.wire.frames import decode_request_body, encode_response
from ottla.wire.header import RequestHeader, read_request_header
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.schema import Request, Response

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.connection import Connection, Slot
    from ottla.broker.produce_runs import ProduceRuns


class Handler(Protocol):
    def __call__(self, broker: Broker, request: Any, context: Context, /) -> Response | None: ...


class Context:
    """One request under way: who asked, how, and the place of the answer."""

    __slots__ = ("_slot", "connection", "header", "size_bytes")

    def __init__(self, connection: Connection, slot: Slot, header: RequestHeader, size_bytes: int) -> None:
        self.connection = connection
        self.header = header
        self.size_bytes = size_bytes
        self._slot = slot

    @property
    def version(self) -> int:
        return self.header.version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    def reply(self, response: Response) -> None:
        header = self.header
        try:
            parts = encode_response(header.correlation_id, response, header.version)
        except Exception:
            self.connection.close("the broker failed")  # whoever gives the answer may be busy with that of another
            raise
        self._slot.answer(parts)

    def reply_in_version(self, response: Response, version: int) -> None:
        """For ApiVersions, whose asker may not know yet which versions there are."""
        self._slot.answer(encode_response(self.header.correlation_id, response, version))

    def no_reply(self) -> None:
        """The client does not wait for an answer."""
        self._slot.answer([])

    def close(self, reason: str) -> None:
        """Refuse in the one way that is left where no answer is expected."""
        self.connection.refuse(reason)


class MeasuredContext(Context):
    """One whose time counts against a quota: its answer tells for how long the client is held back.

    An answer that is given while the time is still being measured waits for that.
    """

    __slots__ = ("_response", "_throttle_ms")

    def __init__(self, connection: Connection, slot: Slot, header: RequestHeader, size_bytes: int) -> None:
        super().__init__(connection, slot, header, size_bytes)
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
        self._routes: dict[tuple[int, int], Handler] = {}  # by API and version: those asked for so far
        self._runs: ProduceRuns | None = None  # from the first Produce request on

    def handle(self, connection: Connection, frame: memoryview) -> None:
        """Called by a connection for each frame."""
        runs = self._runs
        if runs is not None:
            if runs.take(connection, frame):
                return
            runs.end()
        try:
            header = read_request_header(frame)
            handler = self._routes.get((header.api.key, header.version))
            if handler is not None:
                request = decode_request_body(header, frame)
            else:
                handler, request = self._first_of_its_kind(header, frame)
        except ProtocolError as error:
            connection.refuse(str(error))
            return
        broker = self._broker
        make_context = MeasuredContext if broker.quotas.are_set else Context
        context = make_context(connection, connection.expect_answer(), header, len(frame))
        broker.metrics.requests[header.api.name] += 1
        broker.metrics.received_bytes += len(frame)
        try:
            if isinstance(context, MeasuredContext):
                response = self._handle_measured(handler, request, context)
            else:
                response = handler(broker, request, context)
            if response is not None:
                context.reply(response)
                if header.api is apis.PRODUCE:
                    self._learn(header, request, response)
        except Exception:
            broker.report_bug(header)
            connection.close("the broker failed")

    def forget_short_ways(self) -> None:
        """End what is under way on them, and let the next requests go the long way."""
        if self._runs is not None:
            self._runs.end()
            self._runs = None

    def _handle_measured(self, handler: Handler, request: Request, context: MeasuredContext) -> Response | None:
        """Count the time it takes against the client's quota."""
        now = self._broker.loop.now
        started = now()
        response = handler(self._broker, request, context)
        # In percent of the broker's one thread.
        context.measured(self._broker.throttle(REQUEST_PERCENTAGE, context, (now() - started) * 100))
        return response

    def _learn(self, header: RequestHeader, request: Any, response: Any) -> None:
        """The next request like this one may go a shorter way."""
        if self._runs is None:
            from ottla.broker.produce_runs import ProduceRuns

            self._runs = ProduceRuns(self._broker)
        self._runs.learn(header, request, response)

    def _first_of_its_kind(self, header: RequestHeader, frame: memoryview) -> tuple[Handler, Request]:
        """Find the handler of a version that was not asked for before, and remember it if it is served."""
        api = header.api
        handler = _find_handler(api)
        if handler is None:
            raise ProtocolError(f"{api.name} is not served")
        if api.serves(header.version):
            self._routes[api.key, header.version] = handler
            return handler, decode_request_body(header, frame)
        if api is apis.API_VERSIONS:
            return handler, ApiVersionsRequest()  # answered in version 0, with what there is
        raise ProtocolError(f"{api.name} has no version {header.version}")


@functools.cache
def served_apis() -> list[Api]:
    """The APIs that have a handler, without importing any."""
    import pkgutil  # only ApiVersions asks

    modules = {module.name for module in pkgutil.iter_modules(handlers.__path__)}
    return [api for api in apis.APIS if module_name(api) in modules]


def module_name(api: Api) -> str:
    """DescribeLogDirs is handled in describe_log_dirs."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api.name).lower()


def _find_handler(api: Api) -> Handler | None:
    try:
        module = importlib.import_module(f"ottla.broker.handlers.{module_name(api)}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("ottla.broker.handlers."):
            return None
        raise
    handler: Handler = module.handle
    return handler
