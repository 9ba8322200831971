"""The node by which a broker is known to be there, and its epoch: the number of the change that made the node."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from ottla.broker.controller.asking import committed, node_at
from ottla.broker.events import Events
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import Finished, Waiting
from ottla.broker.network.listeners import Endpoint
from ottla.broker.network.peer import Peer, PeerFailure, PeerRefused, PeerSettings
from ottla.config import ConfigError
from ottla.controller.layout import BrokerNode, broker_epoch_path, broker_path, decode_broker, encode_broker
from ottla.controller.store import (
    Create,
    Delete,
    Node,
    NodeExists,
    NodeMissing,
    Operation,
    Store,
    StoreError,
    VersionChanged,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

events = Events("ottla.broker")

PROBE_SECONDS = 1.0
MOST_WRITTEN = 8  # nodes, of which the last or the one before may be there
Probed = Callable[[bool | None], None]


def endpoint_in(node: BrokerNode, listener: str | None) -> Endpoint | None:
    """Where other brokers reach one: through a listener that is named, or else the first."""
    found = node.endpoints.get(listener or "") or next(iter(node.endpoints.values()), None)
    return None if found is None else Endpoint(*found)


def probe(loop: Loop, endpoint: Endpoint, done: Probed) -> Peer:
    """Whether a broker is there: True if it answers, False if its port is refused, None if nobody knows."""
    settings = PeerSettings(connect_seconds=PROBE_SECONDS, request_seconds=PROBE_SECONDS)
    peer = Peer(loop, endpoint.host, endpoint.port, "probe", settings)

    def answered(answer: object) -> None:
        peer.close()
        if isinstance(answer, PeerFailure):
            done(False if isinstance(answer, PeerRefused) else None)
        else:
            done(True)

    peer.send(ApiVersionsRequest(), 0, answered)
    return peer


def controllers_told(loop: Loop, endpoints: Sequence[Endpoint]) -> Generator[Waiting, None, tuple[list[int], bool]]:
    """Who decides, as other brokers say (-1: one hears nobody); and whether each of them answers or is dead."""
    settings = PeerSettings(connect_seconds=PROBE_SECONDS, request_seconds=PROBE_SECONDS)
    peers = [Peer(loop, endpoint.host, endpoint.port, "probe", settings) for endpoint in endpoints]
    answers: list[object] = []

    def begin(finished: Finished) -> None:
        def answered(answer: object) -> None:
            answers.append(answer)
            if len(answers) == len(peers):
                finished(None)

        for peer in peers:
            peer.send(DescribeClusterRequest(include_cluster_authorized_operations=False), 0, answered)

    try:
        if peers:
            yield Waiting(begin)
    finally:
        for peer in peers:
            peer.close()
    told = [answer.controller_id for answer in answers if isinstance(answer, DescribeClusterResponse)]
    return told, all(isinstance(answer, DescribeClusterResponse | PeerRefused) for answer in answers)


class Superseded(ConfigError):
    """Another broker of the same id was started, and has taken the place of this one."""


class Registration:
    def __init__(
        self,
        loop: Loop,
        store: Store,
        node_id: int,
        node: Callable[[], BrokerNode],
        listener: str | None,
        note: Callable[[int], None],
    ) -> None:
        """`node`: what is registered. `listener`: through which brokers talk to each other.

        `note`: is told of each epoch before anybody else can be.
        """
        self.epoch = -1
        self.is_touched = True  # the node may have changed
        self.was_taken_in = False  # the cluster has known of the broker
        self.is_unwanted = False  # somebody has unregistered it: it comes back when it is started anew
        self._loop = loop
        self._store = store
        self._node_id = node_id
        self._node = node
        self._listener = listener
        self._note = note
        self._written: list[bytes] = []  # what it has registered as, and nobody else
        self._path = broker_path(node_id)

    def watch(self, touched: Callable[[], None]) -> None:
        """Call back when somebody may have removed the node."""

        def changed(_path: str) -> None:
            self.is_touched = True
            touched()

        self._store.watch(self._path, changed)

    def endpoint_in(self, node: BrokerNode) -> Endpoint | None:
        return endpoint_in(node, self._listener)

    def operations(self) -> list[Operation]:
        """What registers this broker for the first time."""
        return [] if self.epoch >= 0 else [self._registering()]

    def _registering(self) -> Create:
        data = encode_broker(self._node())  # with the time
        self._written = [*self._written[-MOST_WRITTEN:], data]
        return Create(self._path, data, is_ephemeral=True)

    def found(self, node: Node | None) -> None:
        """The node that was made with those."""
        if self.epoch < 0 and node is not None:
            self._become(node.created_in)

    def _become(self, epoch: int) -> None:
        try:
            self._note(epoch)
        except OSError as error:
            raise StoreError(f"the data folder cannot be written: {error}") from error
        self.epoch = epoch

    def ensure(self) -> Generator[Waiting, None, None]:
        """Have the node there; ConfigError where another broker of this id is."""
        while (self.is_touched or self.epoch < 0) and not self.is_unwanted:
            self.is_touched = False
            try:
                node = yield from node_at(self._store, self._path)
                if node is not None and node.created_in == self.epoch:
                    return
                if node is None:
                    yield from self._create()
                else:
                    yield from self._replace(node)
            except BaseException:
                self.is_touched = True  # nobody knows whether it is there
                raise

    def _create(self) -> Generator[Waiting, None, None]:
        if self.was_taken_in and (yield from node_at(self._store, broker_epoch_path(self._node_id))) is None:
            events.warning("the broker was unregistered, and takes no part until it is started anew")
            self.is_unwanted = True
            return
        if self.epoch >= 0:
            events.warning("the broker registers again: others believed that it was gone", broker=self._node_id)
        try:
            yield from committed(self._store, [self._registering()], is_vital=True)
        except NodeExists:
            self.is_touched = True
            return
        made = yield from node_at(self._store, self._path)
        self.epoch = -1
        if made is not None:
            self._become(made.created_in)

    def _replace(self, node: Node) -> Generator[Waiting, None, None]:
        """One of this id is registered: is it there, or has the store not seen yet that it is gone?

        A broker that was taken in already, and finds another in its place, stops: two would lead the same partitions.
        """
        if self.was_taken_in and node.data not in self._written:
            raise Superseded(f"node.id {self._node_id}: another broker of this id was started")
        endpoint = endpoint_in(decode_broker(node.data), self._listener)
        own = endpoint_in(self._node(), self._listener)
        is_there = endpoint is None or (endpoint != own and (yield from self._probed(endpoint)) is not False)
        if is_there:
            where = "" if endpoint is None else f" at {endpoint}"
            raise ConfigError(f"node.id {self._node_id}: another broker of this id is running{where}")
        try:
            yield from committed(self._store, [Delete(self._path, node.version)], is_vital=True)
        except (NodeMissing, VersionChanged):
            pass  # the store was quicker
        self.is_touched = True

    def _probed(self, endpoint: Endpoint) -> Generator[Waiting, None, bool | None]:
        found: list[bool | None] = []

        def begin(finished: Finished) -> None:
            def done(is_there: bool | None) -> None:
                found.append(is_there)
                finished(None)

            probe(self._loop, endpoint, done)

        yield Waiting(begin)
        return found[0]
