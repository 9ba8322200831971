"""The page on the test kit, and the example with tests, run as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "testing.md"
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def run_pytest(folder: Path, target: Path) -> str:
    """As a user would, in a project of their own; what it says in the end."""
    # Not what the other clients do themselves.
    warnings = ["-W", "error", "-W", "ignore::DeprecationWarning"]
    command = [sys.executable, "-m", "pytest", "-q", *warnings, "-p", "no:cacheprovider", str(target)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_examples_of_the_page(tmp_path: Path) -> None:
    blocks = _BLOCK.findall(PAGE.read_text())
    target = tmp_path / "test_page.py"
    target.write_text("\n\n".join(blocks))
    names = re.findall(r"^def (test_\w+)", target.read_text(), re.MULTILINE)
    assert len(set(names)) == len(names)
    assert f"{len(names) + 1} passed" in run_pytest(tmp_path, target)  # one of them has two cases


def test_the_example_with_tests(tmp_path: Path) -> None:
    assert "7 passed" in run_pytest(tmp_path, REPOSITORY / "examples" / "test_billing.py")
