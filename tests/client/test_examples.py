"""The examples do what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

import ottla.testing

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("first_program.py", "Brno\nOslo\nPorto\n"),
        (
            "exactly_once.py",
            "crashed after more than 100, in the middle of a transaction\n"
            "crashed after more than 300, in the middle of a transaction\n"
            "1000 results, each once: True\n",
        ),
        ("on_an_event_loop.py", "100 visits, the last at offset 99\n100 visits counted\n"),
    ],
)
def test_an_example(name: str, printed: str) -> None:
    with ottla.testing.broker() as broker:
        command = [sys.executable, "-W", "error", str(EXAMPLES / name), broker.bootstrap]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.stderr == ""
    assert ended.stdout == printed
