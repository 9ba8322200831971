"""A short soak. OTTLA_SOAK_SECONDS makes it longer; `python -m tests.soak --seconds 3600` runs it by hand."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.soak.run import soak

SECONDS = float(os.environ.get("OTTLA_SOAK_SECONDS", "8"))


def test_nothing_is_lost_and_nothing_left_behind(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    report, growth = soak(tmp_path, SECONDS, seed)
    print(f"seed {seed}\n{report}\n{growth}")
    assert report.anomalies == []
    assert growth.complaints == []
    assert not [line for line in report.complaints if "Traceback" in line]
