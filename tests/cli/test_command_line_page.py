"""docs/command-line.md shows what the commands really print."""

from pathlib import Path

import ottla.testing
from tests.cli.command_line_page import runnable_commands


def test_the_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    with ottla.testing.broker() as broker:
        for command, output, run in runnable_commands(broker.bootstrap, tmp_path):
            assert run() == output, command
