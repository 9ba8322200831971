"""One broker, two producers and a group on a bad network, with a bad disk, crashed and started again at any moment.

Nothing acknowledged is lost, nothing aborted is read, order is kept, offsets of the group never go back behind what
was committed, and when all have gone nothing is left of them.
"""

from __future__ import annotations

from ottla.testing.local_broker import QUICK_SETTINGS
from ottla.testing.simulation.simulation import Simulation
from tests.sim.chaos import Chaos
from tests.sim.run import Run

CHAOS_SECONDS = 6.0
SETTINGS = QUICK_SETTINGS | {
    "group.consumer.session.timeout.ms": "3000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.roll.ms": "1500",
}


def run(seed: int) -> str:
    """The fingerprint of what happened; AssertionError where something was wrong."""
    with Simulation(seed) as simulation:
        syncs = simulation.random.random() < 0.7
        broker = simulation.add_broker("10.0.0.1", SETTINGS, syncs=syncs)
        Run(simulation, [broker]).go(CHAOS_SECONDS, lambda: Chaos(simulation, [broker]))
        return simulation.fingerprint
