"""What a broker imports when it has started: in a process of its own, for here everything is imported already."""

from __future__ import annotations

import subprocess
import sys

from ottla.broker.load_ahead import MODULES

PROGRAM = """
import sys
from ottla.broker import broker, load_ahead
from ottla.broker.loop.loop import Loop

load_ahead.FIRST_SECONDS = load_ahead.PAUSE_SECONDS = 0.001
assert not set(load_ahead.MODULES) & set(sys.modules), "a broker starts without them"
loop = Loop()
ahead = load_ahead.LoadAhead(loop)
if sys.argv[1] == "stopped":
    ahead.stop()
loop.run_until(lambda: ahead.is_over)
loop.close()
print(*[module for module in load_ahead.MODULES if module in sys.modules])
"""


def loaded(how: str) -> list[str]:
    ended = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=False)
    assert not ended.stderr
    return ended.stdout.split()


def test_what_takes_long_to_import_is_imported_ahead() -> None:
    assert loaded("to its end") == list(MODULES)


def test_a_broker_that_stops_imports_nothing_more() -> None:
    assert loaded("stopped") == []
