"""Runners as real processes, killed and stopped in the middle, on Ottla. Apache Kafka has the same contract."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla.testing
from ottla.testing import LocalBroker
from tests.connect.kills_contract import KillsContract
from tests.connect.running import RunnerProcess, until, values_of, write_file
from tests.connect.test_source import counting, expected


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ottla.testing.broker() as broker:
        yield broker.bootstrap


class TestKills(KillsContract):
    session_timeout_ms = 1_500


def first_said(runner: RunnerProcess) -> dict[str, Any]:
    said: list[dict[str, Any]] = until(runner.said)
    return said[0]


def test_a_runner_waits_for_its_broker_and_says_so(tmp_path: Path) -> None:
    nobody = socket.socket()
    nobody.bind(("127.0.0.1", 0))  # without listening, so that nobody else gets the port
    port = nobody.getsockname()[1]
    file = write_file(tmp_path / "shop.toml", f"127.0.0.1:{port}", counting())
    with RunnerProcess(file) as runner, RunnerProcess(file) as stopped:
        for each in (runner, stopped):
            line = first_said(each)
            told = f"cannot reach a broker at 127.0.0.1:{port}: connection refused"
            assert (line["task"], line["state"], line["error"]) == ("-", "waiting", told)
        stopped.stop()
        nobody.close()
        broker = LocalBroker(str(tmp_path / "broker"), port=port)
        try:
            until(lambda: len(values_of(broker.bootstrap, "numbers")) >= 100)
            runner.stop()
            assert values_of(broker.bootstrap, "numbers") == expected(0)
        finally:
            broker.stop()


def test_what_waiting_does_not_mend_ends_a_runner(tmp_path: Path) -> None:
    """A server that speaks another protocol."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        file = write_file(tmp_path / "shop.toml", f"127.0.0.1:{server.getsockname()[1]}", counting())
        with RunnerProcess(file) as runner:
            connection, _ = server.accept()
            connection.sendall(b"\0\0\0\x10" + b"x" * 16)
            assert runner.process.wait(60) == 1
            connection.close()
