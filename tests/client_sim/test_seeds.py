"""Some of the seeds of each scenario; `python -m tests.client_sim --seeds 0-2000` for as many as one likes."""

from __future__ import annotations

import importlib
import os

import pytest

from tests.client_sim.__main__ import names

SEEDS = int(os.environ.get("OTTLA_SIM_SEEDS", "100"))
STEP = 20


@pytest.mark.parametrize("first", range(0, SEEDS, STEP))
@pytest.mark.parametrize("name", names())
def test_nothing_is_lost_doubled_hidden_or_left(name: str, first: int) -> None:
    scenario = importlib.import_module(f"tests.client_sim.scenario_{name}")
    for seed in range(first, min(first + STEP, SEEDS)):
        scenario.run(seed)
