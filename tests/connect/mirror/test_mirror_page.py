"""docs/mirror.md says what is so: its commands print what it shows."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from ottla import testing
from ottla.connect.mirror.source import MirrorSource
from tests.cli.command_line_page import DOCS, runnable_commands
from tests.connect.running import RunnerProcess, until, values_of

PAGE = DOCS / "mirror.md"


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    with testing.broker() as source, testing.broker() as target:
        page = tmp_path / "mirror.md"
        page.write_text(PAGE.read_text().replace("localhost:9192", target.bootstrap))
        [file_text] = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
        file = tmp_path / "eu.toml"
        file.write_text(file_text.replace("localhost:9092", source.bootstrap))
        for command, output, run in runnable_commands(page, source.bootstrap, tmp_path):
            if " mirror run " in command:  # as long as it takes, in place of some seconds
                with RunnerProcess(file, "mirror") as runner:
                    until(lambda: values_of(target.bootstrap, "orders"))
                    runner.stop()
            else:
                assert run() == output, command


def test_all_settings_are_on_the_page() -> None:
    table = PAGE.read_text().partition("## Settings")[2].partition("##")[0]
    named = set(re.findall(r"`([a-z_]+)`", table))
    assert set(inspect.signature(MirrorSource).parameters) <= named
