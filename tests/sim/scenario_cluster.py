"""Three brokers with three replicas of everything, of which two must have what is acknowledged.

What scenario_broker asks, and the invariants of replicas, through crashes, pauses and partitions of the network, with
sessions of the store that are lost and controllers that change.
"""

from __future__ import annotations

from ottla.testing.simulation.simulation import Simulation
from tests.sim import scenario_broker
from tests.sim.chaos import ClusterChaos
from tests.sim.run import Run

BROKERS = 3
CHAOS_SECONDS = 8.0
SETTINGS = scenario_broker.SETTINGS | {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "log.cleaner.enable": "false",
}
SLOW_COPIES = {"replica.fetch.response.max.bytes": "1"}  # a batch at a time: who was away is behind for a while


def run(seed: int) -> str:
    with Simulation(seed) as simulation:
        syncs = simulation.random.random() < 0.5
        simulation.store.outlives_processes = simulation.random.random() < 0.5
        settings = SETTINGS | (SLOW_COPIES if simulation.random.random() < 0.5 else {})
        brokers = [
            simulation.add_broker(f"10.0.0.{node_id}", settings | {"node.id": str(node_id)}, syncs=syncs)
            for node_id in range(1, BROKERS + 1)
        ]
        Run(simulation, brokers).go(CHAOS_SECONDS, lambda: ClusterChaos(simulation, brokers))
        return simulation.fingerprint
