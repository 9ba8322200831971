"""A driver is killed in the middle: the topic has every record once, in order."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.client import NewRecord, Producer
from ottla.testing import LocalBroker
from tests.pipelines.cluster import end_with_parent
from tests.pipelines.topics import read_values

COUNT = 400
DRIVER_SECONDS = 300
pytestmark = pytest.mark.ottla(topics={"in": 2, "out": 1})


def fill(broker: LocalBroker) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_many("in", [NewRecord(b"%d" % n, b"%d" % (n % 7), partition=n % 2) for n in range(COUNT)])


@contextmanager
def driver(broker: LocalBroker, folder: Path, master: str) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own, with its JVM and its workers, so that they can be killed together."""
    command = [
        sys.executable,
        "-m",
        "tests.pipelines.copy_driver",
        broker.bootstrap,
        str(folder / "checkpoint"),
        master,
    ]
    with open(folder / "driver.log", "ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=end_with_parent
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DRIVER_SECONDS
    while not is_so():
        assert process.poll() is None, "the driver ended early"
        assert time.monotonic() < deadline
        time.sleep(0.1)


def check_copy(broker: LocalBroker) -> None:
    """Every record once, and those of a partition in its order, for each batch takes them in order."""
    numbers = [int(value) for value in read_values(broker.bootstrap, "out")]
    assert sorted(numbers) == list(range(COUNT))
    for parity in (0, 1):
        of_one = [number for number in numbers if number % 2 == parity]
        assert of_one == sorted(of_one)


def test_a_driver_killed_with_9_and_started_again_copies_every_record_once(
    ottla: LocalBroker, spark: object, tmp_path: Path
) -> None:
    fill(ottla)
    with driver(ottla, tmp_path, "local[1]") as first:
        wait_until(lambda: len(read_values(ottla.bootstrap, "out")) >= 40, first)
        kill(first)
    assert 40 <= len(read_values(ottla.bootstrap, "out")) < COUNT
    with driver(ottla, tmp_path, "local[1]") as second:
        assert second.wait(DRIVER_SECONDS) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    check_copy(ottla)
