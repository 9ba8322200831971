"""Which brokers are there, as the controller sees it.

Brokers ask the controller again and again for what was decided, and that is their sign of life. A broker whose
connection ends and whose port refuses another is dead at once. One that is silent is dead after the time of a session,
and so is one whose node in the store is gone. A wrong guess costs an election: the broker registers again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.controller.registration import endpoint_in, probe
from ottla.broker.events import Events
from ottla.broker.loop.loop import Timer
from ottla.controller import layout
from ottla.controller.changes import Change
from ottla.controller.leaders import broker_down, broker_up
from ottla.controller.steps import InSteps
from ottla.controller.store import Node, NodeMissing, StoreError
from ottla.log.loss import Loss
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.cluster_feed import ClusterFeedRequest, ClusterFeedResponse

if TYPE_CHECKING:
    from ottla.broker.controller.controller import Controller, Outcomes
    from ottla.broker.controller.membership import Membership
    from ottla.broker.loop.loop import Loop
    from ottla.broker.network.connection import Connection
    from ottla.broker.network.peer import Peer
    from ottla.controller.store import Store, Watch

events = Events("ottla.broker")

LOOKS = 8  # in the time of a session
RETRY_SECONDS = 0.1

Reply = Callable[[ClusterFeedResponse], None]


class Liveness:
    def __init__(
        self,
        loop: Loop,
        store: Store,
        membership: Membership,
        controller: Controller,
        session_seconds: float,
        listener: str | None = None,
    ) -> None:
        self._loop = loop
        self._store = store
        self._membership = membership
        self._controller = controller
        self._cluster = controller.cluster
        self._session_seconds = session_seconds
        self._listener = listener
        self._heard_at: dict[int, float] = {}
        self._probes: dict[int, Peer] = {}
        self._connections: dict[int, Connection] = {}
        self._watch: Watch | None = None
        self._timer: Timer | None = None
        self._is_stopped = False

    def start(self) -> None:
        self._watch = self._store.watch(layout.BROKER_IDS, lambda _path: self._look_at_nodes())
        now = self._loop.now()
        for node_id in self._others():
            self._heard_at[node_id] = now
            self.lost(node_id)
        self._look_at_nodes()
        self._set_timer()

    def stop(self) -> None:
        self._is_stopped = True
        if self._watch is not None:
            self._watch.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for peer in self._probes.values():
            peer.close()

    def _others(self) -> list[int]:
        return [node_id for node_id in self._cluster.live if node_id != self._membership.node_id]

    # Signs of life

    def _heard(self, node_id: int, connection: Connection) -> None:
        """A broker of the cluster asks through this connection: when it ends, that says something."""
        self._heard_at[node_id] = self._loop.now()
        if self._connections.get(node_id) is not connection:
            self._connections[node_id] = connection
            connection.call_when_closed(partial(self._closed, node_id, connection))

    def _closed(self, node_id: int, connection: Connection) -> None:
        if self._connections.get(node_id) is connection:
            del self._connections[node_id]
            self._controller.feed.forget(node_id)
            self.lost(node_id)

    def polled(self, request: ClusterFeedRequest, connection: Connection, reply: Reply) -> None:
        """A broker asks for changes. If the cluster knows another start of it, its registration counts."""
        known = self._cluster.brokers.get(request.broker_id)
        is_alive = known is not None and known.is_alive
        is_up = known is not None and is_alive and known.epoch == request.broker_epoch
        if is_up:
            self._heard(request.broker_id, connection)
        if is_up or not (is_alive or request.is_ready):
            self._controller.feed.ask(request, reply)
        else:
            path = layout.broker_path(request.broker_id)
            self._store.get(path, partial(self._take_in, request, connection, reply))

    def _take_in(
        self, request: ClusterFeedRequest, connection: Connection, reply: Reply, node: Node | StoreError
    ) -> None:
        """A broker has its data open: one more of the cluster, if it is the one that registered."""
        if isinstance(node, StoreError) or node.created_in != request.broker_epoch:
            is_gone = not isinstance(node, StoreError) or isinstance(node, NodeMissing)
            code = ErrorCode.STALE_BROKER_EPOCH if is_gone else ErrorCode.KAFKA_STORAGE_ERROR
            reply(ClusterFeedResponse(error_code=code))
            return
        if connection.is_open:
            self._heard(request.broker_id, connection)
        if not request.is_ready:
            self._controller.feed.ask(request, reply)
            return
        found = layout.decode_broker(node.data)
        rotten = {(each.topic_id, each.partition_index) for each in request.rotten}

        def decide() -> InSteps[list[Change]]:
            return broker_up(
                self._cluster,
                self._membership.rules(),
                request.broker_id,
                request.broker_epoch,
                found,
                loss=Loss.NOTHING if rotten else Loss(max(0, min(request.loss, Loss.ALL))),
                rotten=rotten,
            )

        def done(_outcomes: Outcomes, failure: Exception | None) -> None:
            if failure is not None:
                reply(ClusterFeedResponse(error_code=ErrorCode.NOT_CONTROLLER))
            else:
                self._heard_at[request.broker_id] = self._loop.now()
                self._controller.feed.ask(request, reply)

        self._controller.submit(decide, done, is_vital=True)

    def _set_timer(self) -> None:
        self._timer = self._loop.call_later(self._session_seconds / LOOKS, self._look_for_silence)

    def _look_for_silence(self) -> None:
        now = self._loop.now()
        for node_id in self._others():
            if now - self._heard_at.setdefault(node_id, now) > self._session_seconds:
                self._believe_dead(node_id, "nothing is heard of it")
        self._set_timer()

    # Signs of death

    def lost(self, node_id: int) -> None:
        """The connection of a broker has ended: does it take another?"""
        if self._is_stopped or node_id in self._probes or not self._cluster.is_alive(node_id):
            return
        endpoint = endpoint_in(self._cluster.brokers[node_id].node, self._listener)
        if endpoint is not None and node_id != self._membership.node_id:
            self._probes[node_id] = probe(self._loop, endpoint, partial(self._probed, node_id))

    def _probed(self, node_id: int, is_there: bool | None) -> None:
        self._probes.pop(node_id, None)
        if self._is_stopped:
            return
        if is_there is False:
            self._believe_dead(node_id, "its port is refused")
        elif is_there is None:
            self._loop.call_later(RETRY_SECONDS, lambda: self.lost(node_id))

    def _look_at_nodes(self) -> None:
        for node_id in self._others():
            self._store.get(layout.broker_path(node_id), partial(self._looked_at, node_id))

    def _looked_at(self, node_id: int, node: Node | StoreError) -> None:
        broker = self._cluster.brokers.get(node_id)
        if broker is None:
            return  # it was unregistered since
        if isinstance(node, NodeMissing) or (isinstance(node, Node) and node.created_in != broker.epoch):
            self._decide_down(node_id, broker.epoch, "its registration is gone", is_registered=False)

    def _believe_dead(self, node_id: int, why: str) -> None:
        """Its node goes with the decision, unless it is that of another start."""
        broker = self._cluster.brokers.get(node_id)
        if broker is None:
            return
        epoch = broker.epoch

        def found(node: Node | StoreError) -> None:
            is_registered = isinstance(node, Node) and node.created_in == epoch
            if isinstance(node, Node | NodeMissing):
                self._decide_down(node_id, epoch, why, is_registered=is_registered)

        self._store.get(layout.broker_path(node_id), found)

    def _decide_down(self, node_id: int, epoch: int, why: str, *, is_registered: bool) -> None:
        def decide() -> InSteps[list[Change]]:
            broker = self._cluster.brokers.get(node_id)
            if broker is None or broker.epoch != epoch:
                return []  # it has come back
            changes = yield from broker_down(
                self._cluster, self._membership.rules(), node_id, is_registered=is_registered
            )
            if changes:
                events.warning("a broker is gone", broker=node_id, reason=why)
            return changes

        def done(outcomes: Outcomes, failure: Exception | None) -> None:
            if failure is None and any(refusal is not None for _, refusal in outcomes) and not self._is_stopped:
                # The store was quicker to remove the node; or it cannot be written.
                self._loop.call_later(0.0 if is_registered else RETRY_SECONDS, self._look_at_nodes)

        self._controller.submit(decide, done, is_vital=True)
