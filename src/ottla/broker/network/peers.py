"""The connections of this broker to all others: one for each of them and each lane.

Answers come in the order of their requests. What waits long for its answer has a lane of its own, so that nothing
waits behind it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.loop.loop import Loop
from ottla.broker.network.listeners import Endpoint
from ottla.broker.network.peer import Peer, PeerSettings


class Address(NamedTuple):
    """Where a broker can be reached, and since which of its starts: a connection to an earlier one leads nowhere.

    That need not show on the connection itself, where the network was cut when the broker ended.
    """

    endpoint: Endpoint
    broker_epoch: int


AddressOf = Callable[[int], Address | None]


class Peers:
    def __init__(
        self,
        loop: Loop,
        client_id: str,
        address_of: AddressOf,
        settings: PeerSettings | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """`address_of`: a broker; None if nobody knows where it is."""
        self._loop = loop
        self._client_id = client_id
        self._address_of = address_of
        self._settings = settings
        self._chance = chance
        self._peers: dict[tuple[int, str], tuple[Peer, Address]] = {}
        self._is_closed = False

    def to(self, node_id: int, lane: str = "") -> Peer:
        """The connection to a broker. One that nobody knows cannot be reached, and who asks it is told so."""
        address = None if self._is_closed else self._address_of(node_id)
        peer, known = self._peers.get((node_id, lane), (None, None))
        if peer is not None and address == known:
            return peer
        if peer is not None:
            del self._peers[node_id, lane]
            peer.close("the broker has moved")
        if address is None:
            unknown = Peer(self._loop, f"broker {node_id}", 0, self._client_id, self._settings, self._chance)
            unknown.close("nobody knows where it is")
            return unknown
        host, port = address.endpoint
        peer = Peer(self._loop, host, port, self._client_id, self._settings, self._chance)
        self._peers[node_id, lane] = peer, address
        return peer

    def brokers_changed(self) -> None:
        """Let go of those that went, moved or were started anew: who waits for their answers is told."""
        for (node_id, lane), (peer, address) in list(self._peers.items()):
            if self._address_of(node_id) != address:
                del self._peers[node_id, lane]
                peer.close("the broker has gone")

    def close(self) -> None:
        self._is_closed = True
        peers, self._peers = self._peers, {}
        for peer, _ in peers.values():
            peer.close()
