"""The commands on the pages of the command line, and what each is said to print."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGES_OF_KAFKA = (DOCS / "command-line.md", DOCS / "groups.md")
"""Their commands work with any Kafka."""
PAGES = (*PAGES_OF_KAFKA, DOCS / "growing-partitions.md")
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def commands(page: Path) -> list[tuple[str, str]]:
    """In their order: each finds what those before it have left."""
    found = []
    for block in _BLOCK.findall(page.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output.rstrip("\n")))
    return found


def runnable_commands(page: Path, bootstrap: str, folder: Path) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Each command, what it is said to print, and what runs it and tells what it prints."""
    program = folder / "ottla"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "OTTLA_BOOTSTRAP": bootstrap}
    for command, output in commands(page):
        yield command, output, partial(_run, command, environment, folder)


def _run(command: str, environment: dict[str, str], folder: Path) -> str:
    ended = subprocess.run(
        command, shell=True, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
    )
    return ended.stdout.decode().rstrip("\n")
