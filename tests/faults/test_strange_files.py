"""What somebody else puts into a data folder, or takes out of it, stops nobody."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.log.files import DiskFiles
from ottla.log.manager import CLEAN_SHUTDOWN, LogManager
from ottla.log.recovery import Recovered, open_log
from ottla.log.segment import LOG
from ottla.log.topic_config import TopicConfig
from tests.faults.broker_process import BrokerProcess
from tests.log.writing import SMALL, append

WAIT_S = 20.0
NAMES = (
    "notes.log",
    "x.snapshot",
    "old.log.swap",
    "mine.tmp",
    "12.index",
    f"{'9' * 20}.log",
    f"{chr(0x663) * 20}.log",  # which are digits, too
    "folder.log/",
)


def write(broker: BrokerProcess, topic: str) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": int(WAIT_S * 1000)})
    producer.produce(topic, b"a record", on_delivery=lambda error, _message: errors.append(error))
    producer.flush(WAIT_S)
    assert errors == [None]


def make_topics(admin: AdminClient, *names: str) -> None:
    topics = [NewTopic(name, 1, config={"file.delete.delay.ms": "1000"}) for name in names]
    for made in admin.create_topics(topics).values():
        made.result(WAIT_S)


def test_files_that_are_not_of_a_log_stay_where_they_are(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        make_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), "t")
        write(broker, "t")
        broker.errors()
    folder = tmp_path / "data" / "t-0"
    for name in NAMES:
        (folder / name).mkdir() if name.endswith("/") else (folder / name).write_bytes(b"not a log")
    with BrokerProcess(tmp_path / "data") as broker:
        write(broker, "t")
        assert broker.errors() == ""
    assert all((folder / name).exists() for name in NAMES)


@pytest.mark.parametrize("what", ["it is gone", "there is more in it", "it is elsewhere"])
def test_the_folder_of_a_deleted_partition(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "data" / "deleted-0"
    with BrokerProcess(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        make_topics(admin, "deleted", "kept")
        write(broker, "deleted")
        write(broker, "kept")
        if what == "it is elsewhere":
            shutil.move(folder, tmp_path / "elsewhere")
            folder.symlink_to(tmp_path / "elsewhere")
        if what == "there is more in it":
            (folder / "mine").mkdir()
            (folder / "mine" / "notes").write_bytes(b"")
        admin.delete_topics(["deleted"])["deleted"].result(WAIT_S)
        (doomed,) = (tmp_path / "data").glob("deleted-0*")
        if what == "it is gone":
            shutil.rmtree(doomed)
            time.sleep(2.0)  # until it would be removed
        deadline = time.monotonic() + WAIT_S
        while doomed.is_symlink() or doomed.exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        write(broker, "kept")
        assert broker.errors() == ""


FILES = (
    "recovery-point-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".boot_id",
    "t-0/partition.metadata",
    "t-0/leader-epoch-checkpoint",
    f"t-0/{0:020d}.log",
    f"t-0/{0:020d}.timeindex",
)
KINDS: dict[str, Callable[[Path], None]] = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a record in it."""
    folder = tmp_path_factory.mktemp("written") / "data"
    with BrokerProcess(folder) as broker:
        make_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), "t")
        write(broker, "t")
        broker.errors()
    (folder / CLEAN_SHUTDOWN).unlink()  # so that all is looked at
    return folder


def open_data(folder: Path) -> None:
    manager = LogManager(DiskFiles(), str(folder))
    manager.loss(None)
    manager.open(lambda _topic: TopicConfig(), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_in_the_place_of_a_file_is_named(written: Path, tmp_path: Path, kind: str) -> None:
    """Whoever opens the folder reads it, and waits for nobody; no log is taken for an empty one."""
    for number, name in enumerate([*FILES, "t-0"]):
        folder = tmp_path / str(number)
        shutil.copytree(written, folder)
        place = folder / name
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        if (kind, name) == ("a folder", "t-0"):
            continue  # as it should be
        KINDS[kind](place)
        with pytest.raises(OSError, match=re.escape(str(place))):
            open_data(folder)


def test_a_broker_says_what_lies_in_the_place_of_a_file(written: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(written, folder)
    checkpoint = folder / FILES[0]
    checkpoint.unlink()
    os.mkfifo(checkpoint)
    with pytest.raises(RuntimeError, match=re.escape(f"this is no file ({checkpoint})")):
        BrokerProcess(folder)


def test_a_log_that_has_lost_its_files_is_told(written: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(written, folder)
    (folder / "t-0" / f"{0:020d}.log").unlink()
    with BrokerProcess(folder, "--log-level", "warning") as broker:
        assert "what was on the disk from offset 0 to 1 is gone" in broker.errors()


def test_a_few_bytes_too_many_between_batches(tmp_path: Path) -> None:
    files, folder = DiskFiles(), str(tmp_path / "topic-0")
    log = open_log(files, folder, SMALL, now_ms=0)
    for _ in range(8):
        append(log)
    path, position = Path(log.active.path(LOG)), log.active.position_of(4)
    log.segments.close()
    data = path.read_bytes()
    path.write_bytes(data[:position] + b"12345" + data[position:])
    recovered = Recovered()
    again = open_log(files, folder, SMALL, now_ms=0, recovery_point=8, recovered=recovered)
    assert (again.end_offset, recovered.rotten_bytes) == (8, 5)
    assert path.read_bytes() == data
