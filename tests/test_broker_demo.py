"""The demo of the broker alone: it runs, and what it claims is so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[1] / "examples" / "broker_demo.py"


def test_it_shows_a_broker_that_survives_a_kill(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(DEMO)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    told = ended.stdout
    assert "all acknowledged; the last has offset 999" in told
    assert "kafka-python reads 1,000 records, the last with offset 999" in told
    assert "and sends ten more; the last has offset 1009" in told
    assert "  1009  Oslo  28 degrees" in told
    assert "all sound" in told
    assert list(tmp_path.iterdir()) == []
