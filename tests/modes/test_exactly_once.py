"""Exactly once with ottla.client, while its processes and the broker are killed and the network cuts, delays and loses.

OTTLA_CHECKER_SECONDS is how long they are disturbed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.modes.checked_run import PROTOCOLS, checked_run

SECONDS = float(os.environ.get("OTTLA_CHECKER_SECONDS", "6"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_on_a_bad_network_has_no_anomalies(tmp_path: Path, protocol: str) -> None:
    seed = random.randrange(1 << 32)
    report = checked_run(tmp_path, SECONDS, seed, protocol)
    print(f"seed {seed}\n{report}")
    assert report.anomalies == []
    assert report.event_counts["TransactionStep"] > 0
    assert report.event_counts["Polled"] > 0
