"""What the README prints runs as printed, and what it links to is there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

from ottla.testing import LocalBroker

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text()


def test_the_first_program_prints_what_the_readme_says() -> None:
    (program,) = re.findall(r"<!-- tested by.*?-->\n```python\n(.*?)```", README, re.DOTALL)
    (promised,) = re.findall(r"It prints `(.*?)`", README)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec"), {})
    assert printed.getvalue().strip() == promised


def test_the_fixture_works_as_the_readme_uses_it(ottla: LocalBroker) -> None:
    (program,) = re.findall(r"<!-- a fixture.*?-->\n```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, "README.md", "exec"), names)
    names["test_an_order_is_sent"](ottla)


def test_every_link_leads_to_a_file() -> None:
    pages = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *REPOSITORY.glob("docs/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_make_targets_it_names_are_there() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_contributing_says_what_every_folder_of_tests_is_for() -> None:
    table = (REPOSITORY / "CONTRIBUTING.md").read_text()
    folders = {path.parent.relative_to(REPOSITORY / "tests").parts[0] for path in REPOSITORY.glob("tests/*/*.py")}
    assert set(re.findall(r"tests/(\w+)\b(?!\.py)", table.partition("## Where a test goes")[2])) >= folders
