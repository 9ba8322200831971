"""`ottla cluster up` and `ottla serve --store`: what is told when something goes wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

SECONDS = 60


@contextmanager
def up(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    command = [sys.executable, "-m", "ottla", "cluster", "up", "--data", str(folder), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()


def line_with(output: IO[str], text: str) -> str:
    for line in output:
        if text in line:
            return line
    raise AssertionError(f"nothing was said of {text!r}")


def test_a_dead_broker_is_told_of_and_the_last_one_ends_the_command(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--brokers", "2") as (process, output):
        numbers = [int(line_with(output, "is process").split()[-1]) for _ in range(2)]
        line_with(output, "2 brokers are up")
        os.kill(numbers[1], signal.SIGKILL)
        told = line_with(output, "was ended by SIGKILL")
        assert "broker 2 was ended by SIGKILL; start it again with: ottla serve --store local:" in told
        os.kill(numbers[0], signal.SIGTERM)
        assert "broker 1 ended with exit code 0" in line_with(output, "exit code")
        assert process.wait(SECONDS) == 1


def test_a_dead_broker_is_started_again_where_that_is_wanted(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--brokers", "1", "--restart") as (process, output):
        number = int(line_with(output, "is process").split()[-1])
        address = line_with(output, "1 broker is up").rpartition(" ")[2].strip()
        os.kill(number, signal.SIGKILL)
        line_with(output, "was ended by SIGKILL, and is started again")
        assert address in line_with(output, "serves on")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0


def test_brokers_end_with_a_command_that_is_killed(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--brokers", "1") as (process, output):
        line_with(output, "is up")
        process.kill()
        process.wait()
        output.read()  # until the last process that has it is gone


def taken_before_a_free_port() -> socket.socket:
    """A port that is in use, and behind it one that is not: the second broker is to find its own."""
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", taken.getsockname()[1] + 1)).close()
        except (OSError, OverflowError):
            taken.close()
        else:
            return taken


def test_a_broker_that_cannot_start_ends_them_all(tmp_path: Path) -> None:
    with taken_before_a_free_port() as taken:
        port = taken.getsockname()[1]
        with up(tmp_path / "data", "--brokers", "2", "--port", str(port)) as (process, output):
            said = output.read()
    assert process.returncode == 1
    assert re.search(r"broker 1 \| ottla: .*is in use", said), said
    assert "ottla: broker 1 ended with exit code 1 before all were up; the others are stopped\n" in said


@pytest.mark.parametrize(
    ("store", "code", "says"),
    [
        ("elsewhere", 2, "ottla: --store 'elsewhere' is no store; write local:PATH or zookeeper://HOST:PORT,"),
        ("zookeeper://host:x", 2, "names no server"),
        ("local:/proc/nowhere/store", 1, "ottla: the store of the cluster cannot be used: "),
        ("zookeeper://127.0.0.1:1/x", 1, "no ZooKeeper server answers at 127.0.0.1:1"),
    ],
)
def test_a_store_that_is_not_there(tmp_path: Path, store: str, code: int, says: str) -> None:
    pytest.importorskip("kazoo")
    command = [sys.executable, "-m", "ottla", "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    ended = subprocess.run(
        [*command, "--store", store, "--log-level", "error", "--set", "broker.session.timeout.ms=1000"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ended.returncode == code
    [line] = ended.stderr.splitlines()
    assert says in line
