"""docs/command-line.md shows what the commands really print."""

from pathlib import Path

from ottla.testing.broker import running_broker
from tests.cli.command_line_page import runnable_commands


def test_the_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    with running_broker() as broker:
        for command, output, run in runnable_commands(broker.bootstrap, tmp_path):
            assert run() == output, command
