"""Producers, transactions and readers on a broker that is killed as they are: nothing that must not happen happens.

OTTLA_CHECKER_SECONDS is how long they are disturbed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.checker.run import Run
from tests.compat.killable import killable_broker

SECONDS = float(os.environ.get("OTTLA_CHECKER_SECONDS", "10"))


def test_a_run_with_kills_has_no_anomalies(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    with killable_broker(tmp_path / "broker") as broker:
        report = Run(broker, tmp_path, seed).execute(SECONDS)
    print(f"seed {seed}\n{report}")
    assert report.anomalies == []
    assert report.complaints == []
    assert report.event_counts["Polled"] > 0
    assert report.event_counts["SendEnded"] > 0
