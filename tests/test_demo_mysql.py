"""`make demo-mysql`: MariaDB, runner, broker, Spark and its Java side are killed, and the tables equal their source."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ottla.pipelines.java import JavaMissing, java_home
from tests.connect.mariadb import why_missing

ROOT = Path(__file__).parents[1]


@pytest.mark.xdist_group("demos")
def test_tables_and_mariadb_are_equal_after_kills() -> None:
    if (reason := why_missing()) is not None:
        pytest.skip(reason)
    try:
        java_home()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    with tempfile.TemporaryDirectory(prefix="ottla-") as folder:  # short: the path of a socket is limited
        ended = subprocess.run(
            [sys.executable, "examples/demo_mysql.py"],
            capture_output=True,
            text=True,
            timeout=1_200,
            cwd=ROOT,
            env=os.environ | {"TMPDIR": folder, "PYTHONPATH": str(ROOT)},
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^customers: equal: [\d,]+ rows in shop.customers", ended.stdout, re.MULTILINE)
    assert re.search(r"^orders_history: equal: [\d,]+ rows in shop.orders", ended.stdout, re.MULTILINE)
