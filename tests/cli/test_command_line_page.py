"""docs/command-line.md shows what the commands really print."""

import os
import re
import subprocess
import sys
from pathlib import Path

from ottla.testing.broker import running_broker

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Each command on the page, in its order, and what it is said to print."""
    found = []
    for block in BLOCKS:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def test_the_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    program = tmp_path / "ottla"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n')
    program.chmod(0o755)
    with running_broker() as broker:
        environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "OTTLA_BOOTSTRAP": broker.bootstrap}
        for command, output in commands():
            ended = subprocess.run(
                command, shell=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
            )
            assert ended.stdout.decode().rstrip("\n") == output.rstrip("\n"), command
