"""One connection to one broker: requests go out as they come, answers come back in their order."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import NamedTuple, TypeVar, cast

from ottla import __version__
from ottla.client.errors import (
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    MalformedAnswer,
    RequestTimedOut,
    UnsupportedByBroker,
    raise_for,
)
from ottla.client.network.address import Address
from ottla.client.network.frame_receiver import FrameReceiver
from ottla.client.network.outgoing import Outgoing
from ottla.wire.apis import API_VERSIONS, EXPAND_IN_ORDER, GROWTH_FEATURE, PRODUCE, Api
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.header import read_correlation_id
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.parts import Buffer, Joined
from ottla.wire.schema import Request, Response
from ottla.wire.versions import Versions
from ottla.wire.writer import VersionTooLow

R = TypeVar("R", bound=Response)

MOST_IN_FLIGHT = 100
LONGEST_THROTTLE_MS = 60_000
_LARGEST_CORRELATION_ID = 0x7FFF_FFFF
CLOCK_SECONDS = 1e-6
"""By so much a timer may be early."""
_ERROR_CODE = struct.Struct(">h")
_ERROR_CODE_AT = 4  # behind the correlation id


class _Pending(NamedTuple):
    """A request that waits for its answer. Where the future is done already, nobody wants the answer any more."""

    correlation_id: int
    api: Api
    version: int
    answer: asyncio.Future[Response]
    due: float
    """When it may be expected: from then on the broker is late."""
    deadline: float
    """When it is too late."""
    limit_ms: int
    """How long that is."""


class Connection(asyncio.BufferedProtocol):
    """Made by `open_connection`. When anything is wrong with it, it closes and is not used again."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._receiver = FrameReceiver()
        self._outgoing = Outgoing()
        self._pending: deque[_Pending] = deque()
        self._turn = asyncio.Lock()
        self._in_line = 0
        """Requests that wait for their turn: nobody overtakes them."""
        self._may_go = asyncio.Event()
        """Something has changed for the first of them."""
        self._look: asyncio.TimerHandle | None = None
        """Whether an answer is too late: one timer for all requests, for one each would cost as much as the rest."""
        self._lost = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._ended: ClientError | None = None
        self._correlation_id = 0
        self._versions: dict[int, Versions] = {}
        self._chosen_versions: dict[tuple[int, int | None], int] = {}
        self.features: dict[str, int] = {}
        """The levels of the features that are in force in the cluster."""
        self._muted_until = 0.0
        self.is_loss_noticed = False
        """Set by who has counted its end."""

    @property
    def is_open(self) -> bool:
        return self._ended is None and self._transport is not None

    @property
    def late_seconds(self) -> float:
        """For how long the broker owes an answer. Answers come in order, so the oldest tells."""
        return max(self._loop.time() - self._pending[0].due, 0.0) if self._pending else 0.0

    def version_of(self, api: Api, at_most: int | None = None) -> int:
        """The highest version that both sides have."""
        chosen = self._chosen_versions.get((api.key, at_most))
        if chosen is None:
            chosen = self._chosen_versions[api.key, at_most] = self._choose_version(api, at_most)
        return chosen

    def _choose_version(self, api: Api, at_most: int | None) -> int:
        theirs = self._versions.get(api.key)
        if theirs is None:
            raise UnsupportedByBroker(f"{self.address}: the broker does not know {api.name}")
        ours = Versions(api.least_served, api.highest if at_most is None else min(api.highest, at_most))
        highest = min(ours.highest, theirs.highest)
        if highest < max(ours.least, theirs.least):
            raise UnsupportedByBroker(
                f"{self.address}: the broker has {api.name} in versions {theirs}, this client can use {ours}"
            )
        return highest

    async def ask(
        self, request: Request, answer: type[R], *, timeout_ms: int, at_most: int | None = None, wait_ms: int = 0
    ) -> R:
        """The answer to a request, in the highest version that both sides have, or `at_most` that one.

        `wait_ms` is what the request itself allows the broker to wait; within `timeout_ms` more it has to answer.
        """
        return await self._ask(request, answer, self.version_of(request.api, at_most), timeout_ms, wait_ms)

    async def tell(self, request: Request, *, timeout_ms: int, at_most: int | None = None) -> None:
        """Send what is never answered: Produce without acknowledgement."""
        await self._send_in_turn(request, self.version_of(request.api, at_most), timeout_ms, 0)

    async def negotiate(self, timeout_ms: int) -> None:
        """Learn which versions the broker has."""
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        answer = await self._ask(request, ApiVersionsResponse, API_VERSIONS.highest, timeout_ms)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = [row.max_version for row in answer.api_keys if row.api_key == API_VERSIONS.key]
            version = min(max(theirs, default=0), API_VERSIONS.highest)
            answer = await self._ask(request, ApiVersionsResponse, max(version, 0), timeout_ms)
        raise_for(answer.error_code, about=str(self.address))
        self._versions = {row.api_key: Versions(row.min_version, row.max_version) for row in answer.api_keys}
        self._chosen_versions.clear()
        self.features = {row.name: row.max_version_level for row in answer.finalized_features}
        if GROWTH_FEATURE in self.features:
            self._versions[EXPAND_IN_ORDER.key] = Versions(EXPAND_IN_ORDER.least, EXPAND_IN_ORDER.highest)

    async def close(self, timeout_ms: int = 5_000) -> None:
        """What was sent without asking for an answer still goes out, if the broker takes it in time."""
        self.begin_to_close()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._lost.wait()
        except TimeoutError:
            self._abort()
        except asyncio.CancelledError:
            self._abort()  # nobody will look after it any more
            raise

    def _abort(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    def give_up(self, reason: ClientError) -> None:
        """Nobody waits for its answers any longer: whoever does is told why."""
        self._end(reason)

    def begin_to_close(self) -> None:
        if self._transport is not None:
            self._outgoing.pour(self._transport)
            self._transport.close()
        self._end(ConnectionLost(f"{self.address}: the connection was closed"), at_once=False)

    # What the caller's side does.

    async def _ask(self, request: Request, answer: type[R], version: int, timeout_ms: int, wait_ms: int = 0) -> R:
        response = await (await self._send_in_turn(request, version, timeout_ms, wait_ms))
        self._obey(getattr(response, "throttle_time_ms", 0))
        assert isinstance(response, answer)
        return response

    async def _send_in_turn(
        self, request: Request, version: int, timeout_ms: int, wait_ms: int
    ) -> asyncio.Future[Response]:
        """Requests go out in the order in which they were given, also when they have to wait."""
        if self._in_line or not self._is_free:
            self._in_line += 1
            try:
                async with self._turn:
                    await self._until_free(request, timeout_ms + wait_ms)
                    return self._send(request, version, timeout_ms, wait_ms)
            finally:
                self._in_line -= 1
        return self._send(request, version, timeout_ms, wait_ms)

    @property
    def _is_free(self) -> bool:
        """Whether a request can go out at once."""
        return (
            self._ended is None
            and self._outgoing.is_open
            and len(self._pending) < MOST_IN_FLIGHT
            and self._muted_until <= self._loop.time()
        )

    async def _until_free(self, request: Request, limit_ms: int) -> None:
        """The time that a broker asks for, and that others take, is not part of the time that it has to answer."""
        while self._ended is None and len(self._pending) >= MOST_IN_FLIGHT:
            await self._changed()
        while self._ended is None and (muted_seconds := self._muted_until - self._loop.time()) > 0:
            await asyncio.sleep(muted_seconds)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while self._ended is None and not self._outgoing.is_open:
                    await self._changed()
        except TimeoutError:
            error = self._too_late(request.api, limit_ms)
            self._end(error)  # it takes nothing any more: another connection may
            raise error from None
        if self._ended is not None:
            # An error of its own for each who asks: tracebacks are not to be shared.
            raise ConnectionLost(str(self._ended))

    async def _changed(self) -> None:
        self._may_go.clear()
        await self._may_go.wait()

    def _send(self, request: Request, version: int, timeout_ms: int, wait_ms: int) -> asyncio.Future[Response]:
        assert self._transport is not None
        self._correlation_id = (self._correlation_id + 1) & _LARGEST_CORRELATION_ID
        try:
            parts = encode_request(self._correlation_id, self._client_id, request, version)
        except VersionTooLow as error:
            raise UnsupportedByBroker(
                f"{self.address}: the broker's version cannot say what is asked for: {error}"
            ) from error
        future: asyncio.Future[Response] = self._loop.create_future()
        if request.api is not PRODUCE or getattr(request, "acks", None) != 0:
            due = self._loop.time() + wait_ms / 1000
            deadline = due + timeout_ms / 1000
            limit_ms = timeout_ms + wait_ms
            self._pending.append(_Pending(self._correlation_id, request.api, version, future, due, deadline, limit_ms))
            if self._look is None or deadline < self._look.when():
                self._look_at(deadline)
        self._outgoing.put(cast(list[Buffer | Joined], parts))
        self._outgoing.pump(self._transport)
        return future

    def _look_at(self, when: float) -> None:
        if self._look is not None:
            self._look.cancel()
        self._look = self._loop.call_at(when, self._look_for_late)

    def _look_for_late(self) -> None:
        self._look = None
        wanted = [pending for pending in self._pending if not pending.answer.done()]
        if not wanted:
            return
        first = min(wanted, key=lambda pending: pending.deadline)
        if first.deadline <= self._loop.time() + CLOCK_SECONDS:
            # Answers come in order: behind one that does not come, none will.
            self._end(self._too_late(first.api, first.limit_ms))
        else:
            self._look_at(first.deadline)

    def _obey(self, throttle_time_ms: int) -> None:
        """A broker that is over its quota for us asks to be left alone for a while."""
        if throttle_time_ms > 0:
            mute_seconds = min(throttle_time_ms, LONGEST_THROTTLE_MS) / 1000
            self._muted_until = max(self._muted_until, self._loop.time() + mute_seconds)

    def _too_late(self, api: Api, timeout_ms: int) -> RequestTimedOut:
        return RequestTimedOut(f"{self.address}: no answer to {api.name} within {timeout_ms / 1000:g} s")

    def _end(self, reason: ClientError, *, at_once: bool = True) -> None:
        if self._ended is not None:
            return
        self._ended = reason
        self._outgoing.clear()
        self._may_go.set()
        if self._look is not None:
            self._look.cancel()
        if self._transport is not None and at_once:
            self._transport.abort()
        for pending in self._pending:
            if not pending.answer.done():
                pending.answer.set_exception(reason.again())
        self._pending.clear()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(0)  # what it does not send at once is more than enough

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        reason = f": {exc}" if exc is not None and str(exc) else ""
        self._end(ConnectionLost(f"{self.address}: the broker closed the connection{reason}"))

    def pause_writing(self) -> None:
        self._outgoing.is_open = False

    def resume_writing(self) -> None:
        self._outgoing.is_open = True
        self._may_go.set()
        if self._ended is None and self._transport is not None:
            self._outgoing.pump(self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._receiver.received(nbytes):
                self._answered(frame)
        except ProtocolError as error:
            self._end(MalformedAnswer(f"{self.address}: the answer is not Kafka's protocol: {error}"))

    def _answered(self, frame: Buffer) -> None:
        correlation_id = read_correlation_id(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise ProtocolError(f"an answer with correlation id {correlation_id}, which is not due")
        pending = self._pending[0]
        version = _version_to_read(frame, pending)
        _, response = decode_response(frame, pending.api, version)
        self._pending.popleft()
        if self._in_line:
            self._may_go.set()
        if not pending.answer.done():
            pending.answer.set_result(response)


def _version_to_read(frame: Buffer, pending: _Pending) -> int:
    """A broker that does not have our version of ApiVersions says so in version 0."""
    if pending.api is API_VERSIONS and len(frame) >= _ERROR_CODE_AT + _ERROR_CODE.size:
        (error_code,) = _ERROR_CODE.unpack_from(frame, _ERROR_CODE_AT)
        if error_code == ErrorCode.UNSUPPORTED_VERSION:
            return 0
    return pending.version


async def open_connection(address: Address, client_id: str, *, timeout_ms: int) -> Connection:
    """A connection that knows which versions the broker has."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, connection = await loop.create_connection(lambda: Connection(address, client_id), *address)
    except TimeoutError:
        raise BrokerUnreachable(f"cannot reach a broker at {address} within {timeout_ms / 1000:g} s") from None
    except OSError as error:
        raise BrokerUnreachable(f"cannot reach a broker at {address}: {_reason(error)}") from error
    try:
        await connection.negotiate(timeout_ms)
    except BaseException:
        await connection.close()
        raise
    return connection


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return (error.strerror or str(error)).lower()
