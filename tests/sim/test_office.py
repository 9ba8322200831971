"""Who decides when brokers do not hear each other, though all of them reach the store."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.testing.simulation import store
from ottla.testing.simulation.broker_machine import BrokerMachine
from ottla.testing.simulation.simulation import Simulation
from tests.sim.scenario_cluster import SETTINGS

OURS = SETTINGS | {"broker.session.timeout.ms": "6000"}  # longer than the slowest answer takes
LONG_SECONDS = 60.0  # many sessions


def started(simulation: Simulation) -> tuple[BrokerMachine, list[BrokerMachine]]:
    """The one that decides, and the others."""
    brokers = [simulation.add_broker(f"10.0.0.{node_id}", OURS | {"node.id": str(node_id)}) for node_id in (1, 2, 3)]
    for broker in brokers:
        broker.start()
    assert simulation.run_until(lambda: all(broker.is_serving for broker in brokers), 60.0)
    assert simulation.run_until(lambda: all(len(broker.broker.cluster.live) == 3 for broker in brokers), 60.0)
    [decides] = [broker for broker in brokers if broker.broker.membership.is_controller]
    return decides, [broker for broker in brokers if broker is not decides]


def separate(simulation: Simulation, ones: Sequence[BrokerMachine], others: Sequence[BrokerMachine]) -> None:
    for one in ones:
        for other in others:
            simulation.network.block(one.address, other.address)
            simulation.network.block(other.address, one.address)


def office(brokers: Sequence[BrokerMachine]) -> list[int]:
    """The epochs of those who decide."""
    controllers = [broker.broker.membership.controller for broker in brokers]
    return [each.office.epoch for each in controllers if each is not None]


@pytest.mark.parametrize("seed", range(3))
def test_two_that_hear_only_the_third_do_not_take_the_office_from_each_other(seed: int) -> None:
    with Simulation(seed) as simulation:
        decides, others = started(simulation)
        before = office([decides])
        separate(simulation, [decides], others[:1])
        simulation.run_for(LONG_SECONDS)
        assert office([decides, *others]) == before
        assert set(decides.broker.cluster.live) == {decides.broker.node_id, others[1].broker.node_id}
        simulation.network.unblock_all()
        assert simulation.run_until(lambda: decides.broker.cluster.live == [1, 2, 3], 60.0)
        assert office([decides, *others]) == before


@pytest.mark.parametrize("seed", range(3))
def test_one_that_hears_nobody_does_not_decide(seed: int) -> None:
    with Simulation(seed) as simulation:
        decides, others = started(simulation)
        before = office([decides])
        separate(simulation, [others[0]], [decides, others[1]])
        simulation.run_for(LONG_SECONDS)
        assert office([decides, *others]) == before


@pytest.mark.parametrize("seed", range(3))
def test_one_that_is_heard_by_nobody_decides_no_more(seed: int) -> None:
    with Simulation(seed) as simulation:
        decides, others = started(simulation)
        [epoch] = office([decides])
        separate(simulation, [decides], others)
        simulation.run_for(LONG_SECONDS)
        assert (office([decides]), office(others)) == ([], [epoch + 1])
        simulation.network.unblock_all()
        assert simulation.run_until(lambda: decides.broker.membership.controller_id > 0, 60.0)
        assert office([decides, *others]) == [epoch + 1]


def test_one_that_was_cut_off_names_no_controller_before_it_has_heard_it() -> None:
    """It knows from the store who decides, and nothing of what was decided since: what it says may be old."""
    with Simulation(0) as simulation:
        decides, others = started(simulation)
        behind, next_one = others
        separate(simulation, [behind], [decides, next_one])
        for way in ((behind.address, store.ADDRESS), (store.ADDRESS, behind.address)):
            simulation.network.block(*way)
        decides.kill()
        assert simulation.run_until(lambda: next_one.broker.membership.is_controller, 60.0)
        simulation.run_for(LONG_SECONDS)
        assert behind.broker.membership.controller_id == -1
        for way in ((behind.address, store.ADDRESS), (store.ADDRESS, behind.address)):
            simulation.network.unblock(*way)
        assert not simulation.run_until(lambda: behind.broker.membership.controller_id > 0, 4.0)
        simulation.network.unblock_all()
        assert simulation.run_until(lambda: behind.broker.membership.controller_id == next_one.broker.node_id, 60.0)


def test_who_is_told_to_stop_twice_stops_once() -> None:
    """The first time nobody hears that it hands over."""
    with Simulation(0) as simulation:
        decides, others = started(simulation)
        separate(simulation, others[:1], [decides, others[1]])
        others[0].stop()
        simulation.run_for(1.0)
        simulation.network.unblock_all()
        others[0].stop()
        assert simulation.run_until(lambda: not others[0].is_up, 60.0)
