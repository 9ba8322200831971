"""A short chaos with each store. OTTLA_CHAOS_SECONDS makes it longer; `python -m tests.chaos` runs it by hand."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.zookeeper.servers import missing

SECONDS = float(os.environ.get("OTTLA_CHAOS_SECONDS", "12"))
SETTLED_SECONDS = 400.0


@pytest.mark.parametrize("store", ["local", "zookeeper"])
def test_nothing_is_lost_doubled_or_torn(tmp_path: Path, store: str) -> None:
    if store == "zookeeper" and (reason := missing()) is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.chaos", "--minutes", str(SECONDS / 60), "--store", store]
    command += ["--seed", str(random.randrange(1 << 32)), "--folder", str(tmp_path)]
    if store == "local" and random.random() < 0.5:
        command.append("--proxies")  # what there is where no namespaces are allowed
    # Where the program has namespaces of its own, all that it started ends with it.
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + SETTLED_SECONDS, check=False)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    print(ended.stdout)
