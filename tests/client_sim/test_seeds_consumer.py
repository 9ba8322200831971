"""Some seeds of the consumers' scenarios; thousands by hand: `python -m tests.client_sim consumer --seeds 0-5000`."""

from __future__ import annotations

import pytest

from tests.client_sim import scenario_consumer


@pytest.mark.parametrize("seed", range(40))
def test_a_group_on_a_bad_network(seed: int) -> None:
    scenario_consumer.run(seed)
