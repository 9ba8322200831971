"""Who coordinates a group or a transactional id, and asking it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from ottla.client.errors import ClientError, MalformedAnswer, ServerError, UnsupportedByBroker
from ottla.client.network.address import Address
from ottla.client.network.cluster import Cluster, Line
from ottla.client.network.connection import Connection
from ottla.wire.apis import FIND_COORDINATOR
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)

_LEAST_VERSION = 4  # asks by a list of keys; came with Kafka 3.0, as did all else that groups here need
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinator:
    """Finds the broker that coordinates, and finds it again where it has moved."""

    def __init__(self, cluster: Cluster, kind: CoordinatorKind, key: str) -> None:
        self.cluster = cluster
        self._kind = kind
        self._key = key
        self._node_id: int | None = None

    @property
    def about(self) -> str:
        return f"group {self._key}" if self._kind is CoordinatorKind.GROUP else f"transactional id {self._key}"

    def forget(self) -> None:
        self._node_id = None

    async def ask_to_park(self, request: Request, answer: type[R], *, wait_ms: int, look_every_ms: int) -> R:
        """One attempt at what a coordinator answers when others are there, too. Whether it is still alive is looked at
        meanwhile: one that is stopped would be waited for as long as one that is patient."""
        node_id = await self.find()
        try:
            connection = await self.cluster.connection(node_id, Line.JOINING)
            watching = asyncio.create_task(self._watch(node_id, connection, look_every_ms))
            try:
                timeout_ms = self.cluster.options.request_timeout_ms
                return await connection.ask(request, answer, timeout_ms=timeout_ms, wait_ms=wait_ms)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        except ClientError:
            self.forget()
            raise

    async def _watch(self, node_id: int, connection: Connection, look_every_ms: int) -> None:
        """Any answer will do. Without one, nobody waits on the connection any longer."""
        while True:
            await asyncio.sleep(look_every_ms / 1000)
            try:
                await self.cluster.ask(node_id, self._question(), FindCoordinatorResponse)
            except ClientError as error:
                connection.give_up(error)
                return

    async def ask(self, request: Request, answer: type[R], *, at_most: int | None = None) -> R:
        """One attempt. After any trouble with the connection the coordinator is looked for anew."""
        node_id = await self.find()
        try:
            return await self.cluster.ask(node_id, request, answer, at_most=at_most)
        except ClientError:
            self.forget()
            raise

    async def ask_patiently(
        self, request: Request, answer: type[R], code: Callable[[R], int], *, at_most: int | None = None
    ) -> R:
        """An answer whose code is none that trying again may change; ServerError if it stays."""

        async def attempt() -> R:
            answered = await self.ask(request, answer, at_most=at_most)
            error = self.error(code(answered))
            if error is not None and error.is_retriable:
                raise error
            return answered

        return await self.cluster.retry(attempt)

    def error(self, code: int, message: str | None = None) -> ServerError | None:
        """The error that a code means, None for none. One that says the coordinator has moved is acted on."""
        if not code:
            return None
        if code in _MOVED:
            self.forget()
        return ServerError(code, message, about=self.about)

    async def find(self) -> int:
        if self._node_id is None:
            self._node_id = await self.cluster.retry(self._find)
        return self._node_id

    async def _find(self) -> int:
        if await self.cluster.highest_version(FIND_COORDINATOR) < _LEAST_VERSION:
            raise UnsupportedByBroker("groups and transactions need a broker as of Kafka 3.0 or later")
        answer = await self.cluster.ask_any(self._question(), FindCoordinatorResponse)
        found = next((one for one in answer.coordinators if one.key == self._key), None)
        if found is None:
            raise MalformedAnswer(f"{self.about}: the answer to FindCoordinator leaves it out")
        error = self.error(found.error_code, found.error_message)
        if error is not None:
            raise error
        self.cluster.meet(found.node_id, Address(found.host, found.port))
        return found.node_id

    def _question(self) -> FindCoordinatorRequest:
        return FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[self._key])
