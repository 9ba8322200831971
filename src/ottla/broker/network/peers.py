"""The connections of this broker to all others: one for each of them and each lane.

Answers come in the order of their requests. What waits long for its answer has a lane of its own, so that nothing
waits behind it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ottla.broker.loop.loop import Loop
from ottla.broker.network.listeners import Endpoint
from ottla.broker.network.peer import Peer, PeerSettings

EndpointOf = Callable[[int], Endpoint | None]


class Peers:
    def __init__(
        self,
        loop: Loop,
        client_id: str,
        endpoint_of: EndpointOf,
        settings: PeerSettings | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """`endpoint_of`: where a broker can be reached; None if nobody knows."""
        self._loop = loop
        self._client_id = client_id
        self._endpoint_of = endpoint_of
        self._settings = settings
        self._chance = chance
        self._peers: dict[tuple[int, str], Peer] = {}
        self._is_closed = False

    def to(self, node_id: int, lane: str = "") -> Peer:
        """The connection to a broker. One that nobody knows cannot be reached, and who asks it is told so."""
        endpoint = None if self._is_closed else self._endpoint_of(node_id)
        peer = self._peers.get((node_id, lane))
        if peer is not None and endpoint == (peer.host, peer.port):
            return peer
        if peer is not None:
            self._peers.pop((node_id, lane)).close("the broker has moved")
        if endpoint is None:
            unknown = Peer(self._loop, f"broker {node_id}", 0, self._client_id, self._settings, self._chance)
            unknown.close("nobody knows where it is")
            return unknown
        peer = Peer(self._loop, endpoint.host, endpoint.port, self._client_id, self._settings, self._chance)
        self._peers[node_id, lane] = peer
        return peer

    def brokers_changed(self) -> None:
        """Let go of those that went or moved: who waits for their answers is told."""
        for (node_id, lane), peer in list(self._peers.items()):
            if self._endpoint_of(node_id) != (peer.host, peer.port):
                del self._peers[node_id, lane]
                peer.close("the broker has gone")

    def close(self) -> None:
        self._is_closed = True
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.close()
