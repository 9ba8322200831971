"""The pool of connections to other brokers: one for each broker and lane, made anew where a broker has moved."""

from __future__ import annotations

from ottla.broker.loop.loop import Loop
from ottla.broker.network.listeners import Endpoint
from ottla.broker.network.peer import PeerState, PeerUnreachable
from ottla.broker.network.peers import Address, Peers
from ottla.testing.simulated_system import SimulatedSystem
from ottla.wire.messages.api_versions import ApiVersionsRequest


def test_brokers_and_lanes_have_their_own_connections_until_they_move() -> None:
    where = {node_id: Address(Endpoint("127.0.0.1", node_id), 5) for node_id in (1, 2)}
    peers = Peers(Loop(SimulatedSystem(seed=1)), "broker-0", where.get)
    one, lane, two = peers.to(1), peers.to(1, "fetch"), peers.to(2)
    assert len({one, lane, two}) == 3
    assert (peers.to(1), peers.to(1, "fetch"), peers.to(2)) == (one, lane, two)
    where[1] = Address(Endpoint("127.0.0.1", 9), 5)
    assert peers.to(1).port == 9
    assert one.state is PeerState.CLOSED
    assert lane.state is PeerState.IDLE
    del where[2]
    peers.brokers_changed()
    assert (lane.state, two.state) == (PeerState.CLOSED, PeerState.CLOSED)
    moved = peers.to(1)
    peers.close()
    assert moved.state is PeerState.CLOSED
    assert peers.to(1).state is PeerState.CLOSED


def test_a_broker_that_was_started_anew_has_another_connection() -> None:
    """The one before may look alive for long: nobody hears of its end when the network was cut meanwhile."""
    where = {1: Address(Endpoint("127.0.0.1", 1), 5)}
    loop = Loop(SimulatedSystem(seed=1))
    peers = Peers(loop, "broker-0", where.get)
    before, answers = peers.to(1, "fetch"), list[object]()
    before.send(ApiVersionsRequest(), 0, answers.append)
    where[1] = where[1]._replace(broker_epoch=6)
    peers.brokers_changed()
    loop.run_once()
    assert before.state is PeerState.CLOSED
    assert isinstance(answers[0], PeerUnreachable)
    assert peers.to(1, "fetch").state is not PeerState.CLOSED


def test_a_broker_that_nobody_knows_cannot_be_reached() -> None:
    loop = Loop(SimulatedSystem(seed=1))
    peers = Peers(loop, "broker-0", lambda _node_id: None)
    answers: list[object] = []
    peers.to(7).send(ApiVersionsRequest(), 0, answers.append)
    loop.run_once()
    [failure] = answers
    assert isinstance(failure, PeerUnreachable)
    assert "nobody knows where it is" in str(failure)
