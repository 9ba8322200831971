"""The pool of connections to other brokers: one for each broker and lane, made anew where a broker has moved."""

from __future__ import annotations

from ottla.broker.loop.loop import Loop
from ottla.broker.network.listeners import Endpoint
from ottla.broker.network.peer import PeerUnreachable, State
from ottla.broker.network.peers import Peers
from ottla.testing.simulated_system import SimulatedSystem
from ottla.wire.messages.api_versions import ApiVersionsRequest


def test_brokers_and_lanes_have_their_own_connections_until_they_move() -> None:
    where = {1: Endpoint("127.0.0.1", 1), 2: Endpoint("127.0.0.1", 2)}
    peers = Peers(Loop(SimulatedSystem(seed=1)), "broker-0", where.get)
    one, lane, two = peers.to(1), peers.to(1, "fetch"), peers.to(2)
    assert len({one, lane, two}) == 3
    assert (peers.to(1), peers.to(1, "fetch"), peers.to(2)) == (one, lane, two)
    where[1] = Endpoint("127.0.0.1", 9)
    assert peers.to(1).port == 9
    assert one.state is State.CLOSED
    assert lane.state is State.IDLE
    del where[2]
    peers.brokers_changed()
    assert (lane.state, two.state) == (State.CLOSED, State.CLOSED)
    moved = peers.to(1)
    peers.close()
    assert moved.state is State.CLOSED
    assert peers.to(1).state is State.CLOSED


def test_a_broker_that_nobody_knows_cannot_be_reached() -> None:
    loop = Loop(SimulatedSystem(seed=1))
    peers = Peers(loop, "broker-0", lambda _node_id: None)
    answers: list[object] = []
    peers.to(7).send(ApiVersionsRequest(), 0, answers.append)
    loop.run_once()
    [failure] = answers
    assert isinstance(failure, PeerUnreachable)
    assert "nobody knows where it is" in str(failure)
