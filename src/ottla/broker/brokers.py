"""The brokers of the cluster, and where each can be reached: by clients of a listener, and by this broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.config.layers import BrokerSettings
from ottla.broker.controller.registration import endpoint_in
from ottla.broker.network.frontend import Frontend
from ottla.broker.network.peers import Address
from ottla.controller.cluster import Cluster
from ottla.controller.layout import BrokerNode


class ReachableBroker(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False  # it is known, and not there


class Brokers:
    def __init__(self, cluster: Callable[[], Cluster], frontend: Frontend, settings: BrokerSettings) -> None:
        """`cluster`: as this broker knows it now."""
        self._cluster = cluster
        self._frontend = frontend
        self._settings = settings
        self._node_id = settings.config.node_id

    def of_listener(self, listener: str, *, also_fenced: bool = False) -> list[ReachableBroker]:
        """Those that are there, as clients of a listener reach them; `also_fenced`: and those that are not."""
        found = []
        for node_id, broker in sorted(self._cluster().brokers.items()):
            endpoints = self._frontend.endpoints if node_id == self._node_id else broker.node.endpoints
            endpoint = endpoints.get(listener) if broker.is_alive or also_fenced else None
            if endpoint is not None:
                found.append(ReachableBroker(node_id, *endpoint, broker.node.rack, not broker.is_alive))
        return found

    def address_of(self, node_id: int) -> Address | None:
        """Where another broker can be reached, as far as this one knows."""
        broker = self._cluster().brokers.get(node_id)
        if broker is None or not broker.is_alive:
            return None
        endpoint = endpoint_in(broker.node, self.inter_broker_listener)
        return None if endpoint is None else Address(endpoint, broker.epoch)

    @property
    def inter_broker_listener(self) -> str | None:
        """By the name that listeners have here, which is in capitals."""
        name = self._settings.config.inter_broker_listener_name
        return name.upper() if name else None

    def own_node(self, now_ms: int) -> BrokerNode:
        """What others are told of this broker."""
        return BrokerNode(dict(self._frontend.endpoints), self._settings.config.broker_rack, now_ms)
