"""Some seeds of simulated brokers; `python -m tests.sim [--cluster] --seeds 1000` for as many as one likes."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

from tests.sim import scenario_broker, scenario_cluster, scenario_growing, scenario_in_sync
from tests.sim.mistakes import MISTAKES, OF_CLUSTERS, OF_GROWING

SEEDS = int(os.environ.get("OTTLA_SIM_SEEDS", "100"))
CLUSTER_SEEDS = int(os.environ.get("OTTLA_SIM_SEEDS", "60"))
IN_SYNC_SEEDS = int(os.environ.get("OTTLA_SIM_SEEDS", "20"))
GROWING_SEEDS = int(os.environ.get("OTTLA_SIM_SEEDS", "4"))
STEPS = 10
"""In so many portions, that several processes can share."""
MOST_SEEDS = 40
"""Within which a mistake must be found."""
FIRST_SEEDS = {"forget offsets": 190}
"""Few runs have a member that asks for its offsets again: the first in which a forgotten one shows is 196."""


@pytest.mark.parametrize("first", range(STEPS))
def test_nothing_acknowledged_is_lost_whatever_happens_to_a_broker(first: int) -> None:
    for seed in range(first, SEEDS, STEPS):
        scenario_broker.run(seed)


@pytest.mark.parametrize("first", range(STEPS))
def test_nothing_committed_is_lost_whatever_happens_to_a_cluster(first: int) -> None:
    for seed in range(first, CLUSTER_SEEDS, STEPS):
        scenario_cluster.run(seed)


@pytest.mark.parametrize("first", range(2))
def test_nothing_committed_is_lost_whatever_happens_to_who_is_in_sync(first: int) -> None:
    for seed in range(first, IN_SYNC_SEEDS, 2):
        scenario_in_sync.run(seed)


def test_a_leader_that_was_replaced_calls_no_sequence_wrong() -> None:
    """The seed in which one that no other replica had asked for a second did so, and its producer took it for loss."""
    scenario_in_sync.run(30849)


@pytest.mark.parametrize("first", range(2))
def test_every_key_is_read_in_order_whatever_happens_while_its_topic_grows(first: int) -> None:
    for seed in range(first, GROWING_SEEDS, 2):
        scenario_growing.run(seed)


@pytest.mark.parametrize("name", [*MISTAKES, *OF_CLUSTERS, *OF_GROWING])
def test_a_mistake_is_found(name: str) -> None:
    run = scenario_broker.run if name in MISTAKES else scenario_cluster.run
    run = scenario_growing.run if name in OF_GROWING else run
    mistake, first = (MISTAKES | OF_CLUSTERS | OF_GROWING)[name], FIRST_SEEDS.get(name, 0)
    for seed in range(first, first + MOST_SEEDS):
        try:
            with mistake():  # planted anew: whether a seed finds it does not depend on those before
                run(seed)
        except AssertionError:
            return
    pytest.fail(f"not found within {MOST_SEEDS} seeds")


@pytest.mark.parametrize("scenario", [scenario_broker, scenario_cluster])
def test_a_seed_is_the_same_run_in_every_process(scenario: ModuleType) -> None:
    """Whatever the addresses of objects and the hashes of texts are."""
    command = [sys.executable, "-c", f"from {scenario.__name__} import run; print(run(5))"]
    found = {
        subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": hash_seed}, check=True, capture_output=True, text=True
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert found == {scenario.run(5) + "\n"}
    assert scenario.run(6) + "\n" not in found
