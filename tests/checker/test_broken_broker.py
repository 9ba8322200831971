"""The checker finds mistakes that were planted in a broker, from what real clients see of it."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.checker.broken_broker import MISTAKES
from tests.checker.run import Run
from tests.compat.killable import OttlaBroker

SECONDS = 2.0
MOST_SECONDS = 16.0
"""On a slow machine the clients need longer until they have seen enough of a mistake."""
ROLES = {"producer": 1, "transactor": 1, "keeper": 1, "worker": 1, "reader": 1, "follower": 1}


class QuietRun(Run):
    """One restart of the broker and of those in groups: the only cause of trouble is the mistake."""

    def _disturb(self, seconds: float) -> None:
        time.sleep(seconds)
        self._broker.terminate()
        for client in self._clients:
            if client.role in ("worker", "reader"):
                client.kill()
        self._broker.start()
        self._keep_alive(self._clients)
        time.sleep(2 * seconds)  # until those who were killed are missed, and their partitions given anew

    def _settle(self) -> None:
        """A group that was thrown back does not get on, and need not."""
        for client in self._clients:
            client.stop()
        for role in ("transactor", "worker"):
            self._end_transactions(role)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_the_broker_is_found(tmp_path: Path, mistake: str) -> None:
    expected, seconds = MISTAKES[mistake][1], SECONDS
    while True:
        folder = tmp_path / f"{seconds}"
        broker = OttlaBroker(folder / "broker", program=("tests.checker.broken_broker", mistake))
        broker.start()
        try:
            report = QuietRun(broker, folder, random.randrange(1 << 32), roles=ROLES).execute(seconds)
        finally:
            broker.kill()
        print(report)
        is_found = expected <= {anomaly.kind for anomaly in report.anomalies}
        if is_found or seconds >= MOST_SECONDS:
            break
        seconds *= 2
    assert is_found


def test_a_broker_without_a_mistake_has_no_anomalies(tmp_path: Path) -> None:
    broker = OttlaBroker(tmp_path / "broker")
    broker.start()
    try:
        report = QuietRun(broker, tmp_path, random.randrange(1 << 32), roles=ROLES).execute(SECONDS)
    finally:
        broker.kill()
    assert report.anomalies == []
