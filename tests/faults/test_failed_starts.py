"""A start that fails leaves the data as it was found: it did not open all of it, so it cannot know that it is sound."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.log.manager import CHECKPOINTS, CLEAN_SHUTDOWN
from tests.faults.broker_process import BrokerProcess

WAIT_S = 20.0
TOPIC = "torn"
PARTITIONS = 3
TORN_BYTES = 20

# Something happens when the second of several logs is to be opened.
INTERRUPTED_START = """
import os, signal, sys
import ottla.log.manager as manager

real_open_log, opened = manager.open_log, []

def open_log(files, folder, *arguments, **options):
    if len(opened) == 1:
        {event}
    opened.append(folder)
    return real_open_log(files, folder, *arguments, **options)

manager.open_log = open_log
from ottla.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
EVENTS = {
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT)", 130),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "an error of the disk": ("raise OSError(5, 'Input/output error')", 1),
    "a bug": ("raise AssertionError('nobody thought of this')", 1),
}


def produce(broker: BrokerProcess, *values: bytes) -> None:
    """One record of each value to each partition, in a batch of its own; returns when all are acknowledged."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1, "log_level": 0})
    for value in values:
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, value, partition=partition, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    assert failed == []


def consume(broker: BrokerProcess) -> list[list[bytes]]:
    """All values of each partition."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 0})
    places = [TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
    count = sum(consumer.get_watermark_offsets(place, WAIT_S)[1] for place in places)
    consumer.assign(places)
    found: list[list[bytes]] = [[] for _ in places]
    while sum(map(len, found)) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"of {count} records only {found} come"
        assert message.error() is None
        found[message.partition() or 0].append(message.value() or b"")
    consumer.close()
    return found


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a broker that was stopped, started again, and killed while it wrote."""
    folder = tmp_path_factory.mktemp("torn") / "data"
    with BrokerProcess(folder) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(WAIT_S)
        produce(broker, b"0")
        broker.errors()
    with BrokerProcess(folder) as broker:
        produce(broker, b"1", b"2")
        broker.kill()
    for path in folder.glob("*/*.log"):
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - TORN_BYTES)
    assert len(list(folder.glob("*/*.log"))) == PARTITIONS
    return folder


@pytest.fixture
def folder(torn: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(torn, tmp_path / "data"))


def marks(folder: Path) -> dict[str, bytes]:
    """What the next start will go by."""
    return {name: (folder / name).read_bytes() for name in (*CHECKPOINTS, CLEAN_SHUTDOWN) if (folder / name).exists()}


def serve(folder: Path, *command: str, listen: str = "127.0.0.1:0") -> subprocess.CompletedProcess[str]:
    """Run a broker that ends by itself."""
    options = ("serve", "--listen", listen, "--data", str(folder))
    return subprocess.run([sys.executable, *command, *options], capture_output=True, text=True, timeout=60, check=False)


def check_recovers(folder: Path) -> None:
    """The torn batch of each partition is cut, and what is acknowledged from then on can be read."""
    with BrokerProcess(folder) as broker:
        produce(broker, b"next")
        assert consume(broker) == [[b"0", b"1", b"next"]] * PARTITIONS


@pytest.mark.parametrize("event", EVENTS)
def test_a_start_that_is_interrupted_says_nothing_of_the_data(folder: Path, event: str) -> None:
    before = marks(folder)
    assert CLEAN_SHUTDOWN not in before
    code, returned = EVENTS[event]
    ended = serve(folder, "-c", INTERRUPTED_START.format(event=code))
    assert ended.returncode == returned
    assert ("Traceback" in ended.stderr) == (event == "a bug")
    assert marks(folder) == before
    check_recovers(folder)


def test_a_broker_that_is_refused_a_folder_writes_nothing_to_it(folder: Path) -> None:
    with BrokerProcess(folder) as running:
        before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
        ended = serve(folder, "-m", "ottla")
        assert ended.returncode == 1
        assert ended.stderr.endswith("another broker uses this data; stop it, or give --data another folder\n")
        after = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
        assert after == before
        running.kill()
    assert CLEAN_SHUTDOWN not in marks(folder)


def test_a_broker_whose_port_is_taken_says_nothing_of_the_data(folder: Path) -> None:
    """It takes its port first, so that it can tell others where it is: no log was opened."""
    before = marks(folder)
    with BrokerProcess(folder.parent / "other") as other:
        ended = serve(folder, "-m", "ottla", listen=other.bootstrap)
    assert ended.returncode == 1
    assert ended.stderr.endswith("give --listen another port, or port 0 for a free one\n")
    assert marks(folder) == before
    check_recovers(folder)
