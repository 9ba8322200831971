"""docs/cluster.md, followed line by line on three real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.command_line_page import DOCS, commands

PAGE = DOCS / "cluster.md"
FIRST_PORT = 9092
SECONDS = 60.0


class Cluster:
    """`ottla cluster up`, and what its output tells of ports and processes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.lines = []
        for line in process.stdout:
            self.lines.append(line.rstrip("\n"))
            if "brokers are up" in line:
                break
        addresses = self.lines[-1].rpartition(" ")[2].split(",")
        self.ports = {FIRST_PORT + index: address.rpartition(":")[2] for index, address in enumerate(addresses)}
        told = "\n".join(self.lines)
        self.processes = {int(number): int(pid) for number, pid in re.findall(r"broker (\d) is process (\d+)", told)}

    def real(self, command: str) -> str:
        """A command of the page, with the ports and processes that there are."""
        for shown, port in self.ports.items():
            command = command.replace(f":{shown}", f":{port}")
        return re.sub(r"\b471(\d)\b", lambda found: str(self.processes[int(found[1])]), command)

    def shown(self, output: str) -> str:
        for shown, port in self.ports.items():
            output = output.replace(f":{port}", f":{shown}")
        return shape(output)


def shape(output: str) -> str:
    """What is the same each time: not who leads what, which is drawn by lot, nor who was the first to be there."""
    output = re.sub(" +", " ", re.sub(r"cluster [\w-]{22}", "cluster ID", output))
    output = re.sub(r"(127\.0\.0\.1:\d+ -) \d (\d)(?: controller)?", r"\1 LEADS \2", output)
    output = re.sub(r"orders-\d: has another leader(\norders-\d: has another leader)*", "ELECTED", output)
    return re.sub(r"(moved to) [\d, ]+", r"\1 BROKERS", output).rstrip()


@contextmanager
def cluster(command: str, folder: Path, environment: dict[str, str]) -> Iterator[Cluster]:
    arguments = [sys.executable, "-m", "ottla", *command.split()[1:], "--port", "0"]
    process = subprocess.Popen(arguments, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield Cluster(process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def end(pid: int, number: int) -> None:
    """Wait until the process is gone: the page's reader takes a while for the next line."""
    os.kill(pid, number)
    deadline = time.monotonic() + SECONDS
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_the_page_line_by_line(tmp_path: Path) -> None:
    program = tmp_path / "ottla"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    (up, said), *others = commands(PAGE)
    started: list[subprocess.Popen[str]] = []
    with cluster(up, tmp_path, environment) as running:
        assert sorted(map(shape, said.splitlines())) == sorted(
            re.sub(r"process \d+", f"process 471{line[7]}", running.shown(line)) for line in running.lines
        )
        try:
            for command, output in others:
                real = running.real(command)
                if real.startswith("export "):
                    name, _, value = real.removeprefix("export ").partition("=")
                    environment[name] = value
                elif real.startswith("kill "):
                    *_, pid = real.split()
                    end(int(pid), signal.SIGKILL if "-9" in real else signal.SIGTERM)
                elif real.endswith(" &"):
                    arguments = [sys.executable, "-m", "ottla", *real.removesuffix(" &").split()[1:]]
                    started.append(
                        subprocess.Popen(arguments, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
                    )
                    stdout = started[-1].stdout
                    assert stdout is not None
                    assert " serves on " in stdout.readline()
                else:
                    ended = subprocess.run(
                        real, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS
                    )
                    assert running.shown(ended.stdout + ended.stderr) == shape(output), command
        finally:
            for process in started:
                process.terminate()
                process.communicate(timeout=SECONDS)


def test_the_page_links_to_what_is_there() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", PAGE.read_text()):
        assert (DOCS / target).exists(), target
