"""The page on delivery: its example runs, and each of its sentences has tests that are there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import LocalBroker
from tests.modes.delivery_sentences import EXPLAINS, SENTENCES

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


def sentences(page: str) -> list[str]:
    """Those of paragraphs and lists, and the rows of tables."""
    text = re.sub(r"```.*?```|^#.*?$", "\n", page, flags=re.DOTALL | re.MULTILINE)
    found: list[str] = []
    for block in re.split(r"\n\s*\n|\n(?=\s*[-|])|(?<=\|)\n", text):
        line = re.sub(r"\s+", " ", block).strip().removeprefix("- ")
        if line.startswith("|"):
            found += [] if set(line) <= set("|-: ") else [line]
        elif line:
            found += re.split(r"(?<=[.:;])\s+(?=[A-Z`\"*\[])", line)
    return found


def test_each_sentence_has_its_test() -> None:
    said = sentences(PAGE)
    assert len(said) > 50
    for sentence in said:
        known = [beginning for beginning in SENTENCES if sentence.startswith(beginning)]
        assert len(known) == 1, f"{known} for: {sentence}"
    for beginning in SENTENCES:
        assert any(sentence.startswith(beginning) for sentence in said), f"nothing begins with: {beginning}"


def test_the_tests_of_the_sentences_are_there() -> None:
    for beginning, tests in SENTENCES.items():
        if tests is EXPLAINS:
            continue
        for named in tests:
            file, _, function = named.partition("::")
            assert f"def {function}(" in (TESTS.parent / file).read_text(), f"{named}, for: {beginning}"
