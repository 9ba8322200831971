"""The page on delivery: its example runs, and names tests that are there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import LocalBroker

TESTS = Path(__file__).parent
PAGE = (TESTS.parents[1] / "docs" / "delivery.md").read_text()


@pytest.mark.ottla(topics={"orders": 1, "copies": 1})
def test_the_example_copies_everything_once(ottla: LocalBroker) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, "delivery.md", "exec"), names)
    copy: Callable[..., None] = names["copy"]
    values = [b"%d" % number for number in range(100)]
    ottla.put("orders", *values)
    ottla.faults.lose_answer("EndTxn")
    copy(ottla.bootstrap, lambda: len(ottla.values("copies")) < len(values))
    assert ottla.values("copies") == values


def test_the_tests_that_it_names_are_there() -> None:
    for name in re.findall(r"`(test_\w+\.py)`", PAGE):
        assert (TESTS / name).exists(), name
    everything = "".join(path.read_text() for path in TESTS.glob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", PAGE):
        assert f"def {name}(" in everything, name
