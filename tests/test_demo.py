"""`make demo`: it runs, and what it claims is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.pipelines.java import JavaMissing, java_home

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.mark.xdist_group("demos")
def test_table_and_source_are_equal_after_kills(tmp_path: Path) -> None:
    try:
        java_home()
    except JavaMissing as reason:
        pytest.skip(str(reason))
    ended = subprocess.run(
        [sys.executable, str(DEMO)],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^customers: equal: [\d,]+ rows", ended.stdout, re.MULTILINE)
    assert re.search(r"^orders_history: equal: [\d,]+ rows", ended.stdout, re.MULTILINE)
    (picture,) = tmp_path.glob("*/lag.svg")
    assert "kill -9 driver" in picture.read_text()
    assert "kill -9 broker" in picture.read_text()
