"""A cluster as a client sees it: connections to its brokers, and who leads what."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol, Self, TypeVar

from ottla.client.checks import check_numbers, check_texts
from ottla.client.errors import (
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    ServerError,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
)
from ottla.client.network.address import Address, parse_addresses
from ottla.client.network.connection import Connection, open_connection
from ottla.client.network.metadata import ClusterMetadata, Partition, Topic, read_metadata
from ottla.client.network.retry import Patience
from ottla.client.network.view import ClusterView
from ottla.wire.apis import Api
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
T = TypeVar("T")

_logger = logging.getLogger("ottla.client")
LATE_SECONDS = 1.0
"""A broker that owes an answer for longer is asked for nothing that others know as well."""
CREATION_PAUSE_MS = 1
"""Before looking for a topic that is being made: it is there in a moment."""


class ClientOptions(NamedTuple):
    """What all clients have in common."""

    client_id: str = "ottla"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    """How long to wait for one answer."""
    retry_timeout_ms: int = 60_000
    """How long to try again what may succeed later."""
    retry_pause_ms: int = 50
    unknown_topic_timeout_ms: int = 1_000
    """How long a topic may be unknown: one that was just created takes a moment to be known everywhere."""
    metadata_age_ms: int = 300_000
    """After which a topic is asked for again even without need: it may have more partitions."""


LEAST = {
    "connect_timeout_ms": 1,
    "request_timeout_ms": 1,
    "retry_timeout_ms": 0,
    "retry_pause_ms": 1,
    "unknown_topic_timeout_ms": 0,
    "metadata_age_ms": 0,
}


class Line(Enum):
    """What a connection is for. Answers come in order, so nothing quick may wait behind what a broker parks."""

    REQUESTS = auto()
    FETCHING = auto()
    FETCHING_TOO = auto()
    JOINING = auto()


class _Failed(NamedTuple):
    at: float
    error: ClientError


class _Opening:
    """Those who wait for a connection, in their order."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.count = 0


class NodeEndpoint(Protocol):
    """Where a broker listens, as answers tell it."""

    node_id: int
    host: str
    port: int


class Leader(Protocol):
    leader_id: int
    leader_epoch: int


class Cluster:
    """Connections are opened when they are needed. A context manager: `async with Cluster("localhost:9092")`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        options: ClientOptions = ClientOptions(),  # noqa: B008 - immutable
    ) -> None:
        if not isinstance(options, ClientOptions):
            raise TypeError(f"options are ClientOptions, not {options!r}")
        check_numbers(options._asdict(), LEAST)
        check_texts(client_id=options.client_id)
        self.options = options
        self._bootstrap = parse_addresses(bootstrap)
        self._view = ClusterView()
        self._connections: dict[tuple[Address, Line], Connection] = {}
        self._opening: dict[tuple[Address, Line], _Opening] = {}
        self._failed: dict[tuple[Address, Line], _Failed] = {}
        """The last attempts that failed."""
        self._away_since: dict[Address, float] = {}
        """Brokers that cannot be reached."""
        self._losses = 0
        """How many connections were found ended by their brokers."""
        self._losses_known: dict[str, int] = {}
        """How many of them when a topic was asked for last."""
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        connections = self.begin_to_close()
        await asyncio.gather(*(connection.close() for connection in connections))

    def begin_to_close(self) -> list[Connection]:
        """All connections, at once: what follows may be cancelled. Nobody gets a new one."""
        self._is_closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.begin_to_close()
        return connections

    # Asking brokers.

    async def ask(
        self, node_id: int, request: Request, answer: type[R], *, at_most: int | None = None, wait_ms: int = 0,
        line: Line = Line.REQUESTS,
    ) -> R:  # fmt: skip
        """One attempt at one broker. `wait_ms` is what the request itself allows it to wait before it answers."""
        connection = await self.connection(node_id, line)
        timeout_ms = self.options.request_timeout_ms
        return await connection.ask(request, answer, timeout_ms=timeout_ms, at_most=at_most, wait_ms=wait_ms)

    async def ask_any(self, request: Request, answer: type[R]) -> R:
        """One attempt at any broker that can be reached."""
        connection = await self._any_connection()
        return await connection.ask(request, answer, timeout_ms=self.options.request_timeout_ms)

    async def ask_controller(self, request: Request, answer: type[R]) -> R:
        """One attempt at the controller, or where that stays hidden, at the broker that forwards to it."""
        view = self._view
        if view.controller_id not in view.brokers:
            await self.refresh([])
        if view.controller_id not in view.brokers:
            return await self.ask_any(request, answer)
        try:
            return await self.ask(view.controller_id, request, answer)
        except ClientError:
            self.forget_controller()  # another may be it by now, or have its address
            raise

    def forget_controller(self) -> None:
        self._view.controller_id = -1

    async def connection(self, node_id: int, line: Line = Line.REQUESTS) -> Connection:
        address = self._view.brokers.get(node_id)
        if address is None:
            raise BrokerUnreachable(f"broker {node_id} is not in the cluster")
        return await self._connect(address, line)

    async def features(self) -> Mapping[str, int]:
        """The levels of the features that are in force."""
        return (await self._any_connection()).features

    async def highest_version(self, api: Api) -> int:
        """Of a request, as brokers and this client know it; -1 if there is none."""
        try:
            return (await self._any_connection()).version_of(api)
        except UnsupportedByBroker:
            return -1

    async def _any_connection(self) -> Connection:
        """An open one, or a new one to a known broker or, when none of those can be reached, to a first one.

        Brokers that were last heard of too long ago, for what they owe, come last: they may be stopped.
        """
        late = {one.address for one in self._connections.values() if one.is_open and one.late_seconds > LATE_SECONDS}
        usable = [
            one
            for (address, line), one in self._connections.items()
            if line is Line.REQUESTS and one.is_open and address not in late
        ]
        of_cluster = [one for one in usable if one.address in self._view.brokers.values()]
        if usable:
            # Any of them: one that knows less than the others is not asked again and again.
            return random.choice(of_cluster or usable)
        errors: list[ClientError] = []
        for address in self._by_hope(late):
            try:
                return await self._connect(address)
            except ClientError as error:
                errors.append(error)
        if len(errors) == 1 or not all(isinstance(error, BrokerUnreachable) for error in errors):
            raise errors[-1]
        raise BrokerUnreachable("; ".join(map(str, errors)))

    def _by_hope(self, late: set[Address]) -> list[Address]:
        """All addresses; brokers that are known and were never in trouble first."""
        known = list(self._view.brokers.values())
        random.shuffle(known)
        lists = (
            [one for one in known if one not in late and one not in self._away_since],
            [one for one in known if one in late],
            [one for one in self._bootstrap if one not in self._away_since],
            [*known, *self._bootstrap],
        )
        return list(dict.fromkeys(one for addresses in lists for one in addresses))

    async def _connect(self, address: Address, line: Line = Line.REQUESTS) -> Connection:
        place = address, line
        connection = self._connections.get(place)
        opening = self._opening.get(place)
        if connection is not None and connection.is_open and opening is None:
            return connection
        if opening is None:
            opening = self._opening[place] = _Opening()
        opening.count += 1
        asked_at = asyncio.get_running_loop().time()
        try:
            async with opening.turn:
                return await self._connect_in_turn(place, asked_at)
        finally:
            opening.count -= 1
            if not opening.count:
                del self._opening[place]

    async def _connect_in_turn(self, place: tuple[Address, Line], asked_at: float) -> Connection:
        self._check_open()
        self._notice_losses()
        connection = self._connections.get(place)
        if connection is None or not connection.is_open:
            failed = self._failed.get(place)
            if failed is not None and failed.at > asked_at:  # while this one waited for its turn
                raise failed.error.again()
            connection = await self._open_connection(place)
            if self._is_closed:  # while it was made
                await connection.close()
            self._check_open()
            self._connections[place] = connection
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this client is closed")

    async def _open_connection(self, place: tuple[Address, Line]) -> Connection:
        """An outage is told once, and its end."""
        address, _ = place
        options, now = self.options, asyncio.get_running_loop().time
        try:
            connection = await open_connection(address, options.client_id, timeout_ms=options.connect_timeout_ms)
        except ClientError as error:
            self._failed[place] = _Failed(now(), error.again())
            if address not in self._away_since:
                self._away_since[address] = now()
                _logger.info("%s", error)
            raise
        self._failed.pop(place, None)
        if (since := self._away_since.pop(address, None)) is not None:
            _logger.info("%s: the broker can be reached again, after %.1f s", address, now() - since)
        return connection

    # Knowing the cluster.

    async def open(self) -> None:
        """Ask who is in the cluster, before all else. What does not open is closed.

        Who is cut off tries again; that nobody listens there is told at once, for the address may be wrong.
        """
        self._is_closed = False
        try:
            await self._meet_brokers()
        except BaseException:
            await self.close()
            raise

    async def _meet_brokers(self) -> None:
        patience = Patience(self.options.retry_timeout_ms, self.options.retry_pause_ms)
        while True:
            try:
                await self.refresh([])
            except ConnectionLost:
                if not await patience.pause():
                    raise
            else:
                return

    async def refresh(self, topics: Iterable[str] | None, *, allow_creation: bool = False) -> ClusterMetadata:
        """Ask for the brokers and for topics: None for all of them."""
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=allow_creation,
        )
        self._notice_losses()
        losses = self._losses
        metadata = read_metadata(await self.ask_any(request, MetadataResponse))
        found = [name for name, topic in metadata.topics.items() if isinstance(topic, Topic)]
        self._losses_known.update(dict.fromkeys(found, losses))
        return self._view.take(metadata, asyncio.get_running_loop().time())

    async def topic(self, name: str, *, allow_creation: bool = False) -> Topic:
        """What is known of a topic, asked for when it is not known. Waits a moment for one that does not exist."""
        known = self.known_topic(name)
        return await self.renew(name, allow_creation=allow_creation) if known is None else known

    async def renew(self, name: str, *, allow_creation: bool = False, patience: Patience | None = None) -> Topic:
        """Ask for a topic although something is known of it; that stays in use until the answer is here."""
        options = self.options
        if patience is None:
            patience = Patience(options.retry_timeout_ms, options.retry_pause_ms)
        unknown = (
            Patience(options.retry_timeout_ms, CREATION_PAUSE_MS)
            if allow_creation
            else Patience(options.unknown_topic_timeout_ms, options.retry_pause_ms)
        )
        while True:
            try:
                found = (await self.refresh([name], allow_creation=allow_creation)).topics.get(name)
            except ClientError as error:
                if not error.is_retriable or not await patience.pause():
                    raise
                continue
            if isinstance(found, Topic):
                return found
            if found is None or found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if not await unknown.pause():
                    raise UnknownTopicOrPartition("there is no such topic", topic=name)
            elif not found.is_retriable or not await patience.pause():
                raise found

    def known_topic(self, name: str) -> Topic | None:
        """What is known of a topic, without asking anybody. None if that is nothing, or too old."""
        now = asyncio.get_running_loop().time()
        return self._view.topic_since(name, now - self.options.metadata_age_ms / 1000)

    def is_doubtful(self, name: str) -> bool:
        """Whether a connection was ended since the topic was asked for.

        So brokers tell clients at rest that something has changed: a topic that grows in order has more partitions.
        """
        self._notice_losses()
        return self._losses_known.get(name, 0) < self._losses

    def _notice_losses(self) -> None:
        for connection in self._connections.values():
            if not connection.is_open and not connection.is_loss_noticed:
                connection.is_loss_noticed = True
                self._losses += 1

    def last_known(self, name: str) -> Topic | None:
        """The same, however old it is."""
        return self._view.topic(name)

    def is_gone(self, name: str) -> bool:
        """Whether the cluster has said that there is no such topic."""
        return self._view.is_gone(name)

    def is_replaced(self, name: str, topic_id: bytes | None) -> bool:
        """Whether the topic of this name is known to be another than the one with this id."""
        known = self._view.topic(name)
        return topic_id is not None and known is not None and known.has_id and known.topic_id != topic_id

    def leader(self, topic: str, index: int) -> Partition | None:
        """A partition that somebody leads, as far as is known, without asking anybody."""
        return self._view.leader(topic, index)

    def leader_id(self, topic: str, index: int) -> int | None:
        leader = self._view.leader(topic, index)
        return None if leader is None else leader.leader_id

    def meet(self, node_id: int, address: Address) -> None:
        """A broker that another has named: it may be newer than what is known of the cluster."""
        self._view.meet(node_id, address)

    def take_hints(self, endpoints: Iterable[NodeEndpoint], leaders: Iterable[tuple[str, int, Leader | None]]) -> None:
        """Who leads partitions, by the broker that was asked for them and does not (KIP-951), and where those are."""
        for endpoint in endpoints:
            self._view.meet(endpoint.node_id, Address(endpoint.host, endpoint.port))
        for topic, index, leader in leaders:
            if leader is not None and leader.leader_id in self._view.brokers:
                self._view.lead(topic, index, leader.leader_id, leader.leader_epoch)

    async def partition(self, topic: str, index: int) -> Partition:
        """A partition that has a leader to speak to; a retriable error where it has none at the moment."""
        partitions = (await self.topic(topic)).partitions
        if not 0 <= index < len(partitions):
            raise UnknownTopicOrPartition(f"the topic has {len(partitions)} partitions", topic=topic, partition=index)
        partition = partitions[index]
        if not partition.has_leader or partition.leader_id not in self._view.brokers:
            self.forget(topic)
            raise ServerError(ErrorCode.LEADER_NOT_AVAILABLE, topic=topic, partition=index)
        return partition

    def forget(self, topic: str) -> None:
        """What is known of the topic is old: it is asked for anew when it is needed."""
        self._view.forget(topic)

    def doubt_id(self, topic: str, topic_id: bytes) -> None:
        """A broker that was asked for the topic by this id does not know it."""
        self._view.doubt_id(topic, topic_id)

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of an attempt that is made again as long as that may help."""
        patience = Patience(self.options.retry_timeout_ms, self.options.retry_pause_ms)
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if not error.is_retriable or not await patience.pause():
                    raise
