"""What somebody else puts into a data folder, or takes out of it, stops nobody."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.faults.broker_process import BrokerProcess

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
