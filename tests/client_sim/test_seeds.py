"""Some of the seeds of each scenario; `python -m tests.client_sim --seeds 0-2000` for as many as one likes."""

from __future__ import annotations

import importlib
import os

import pytest

from tests.client_sim.__main__ import names

ASKED = os.environ.get("OTTLA_SIM_SEEDS")
SEEDS = {"consumer": 40, "exactly_once": 20}
"""Of those that take long; of others so many:"""
MANY_SEEDS = 100
FOUND = [("consumer", 1719)]
"""Seeds that found something."""
STEPS = 5
"""In so many portions, that several processes can share."""


@pytest.mark.parametrize("first", range(STEPS))
@pytest.mark.parametrize("name", names())
def test_nothing_is_lost_doubled_hidden_or_left(name: str, first: int) -> None:
    scenario = importlib.import_module(f"tests.client_sim.scenario_{name}")
    for seed in range(first, int(ASKED or SEEDS.get(name, MANY_SEEDS)), STEPS):
        scenario.run(seed)


@pytest.mark.parametrize(("name", "seed"), FOUND)
def test_what_was_found_once_is_not_found_again(name: str, seed: int) -> None:
    importlib.import_module(f"tests.client_sim.scenario_{name}").run(seed)
