"""A data folder whose disk fails takes its partitions offline, and the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.handlers import alter_replica_log_dirs, describe_log_dirs, fetch, list_offsets
from ottla.broker.loop.loop import Loop
from ottla.broker.network.listeners import Endpoint
from ottla.controller.layout import NOBODY
from ottla.log.errors import StorageFailed
from ottla.records.build import build_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.metadata import MetadataRequestTopic
from tests.broker.failing_disk import FailingDisk
from tests.broker.opened_broker import topic
from tests.broker.test_several_folders import Folders
from tests.conformance import requests
from tests.conformance.cluster_requests import move_logs
from tests.conformance.script import Topic

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class OnDisks(Folders):
    """Two data folders, each on a disk of its own. Partitions 0 and 2 are in one, 1 and 3 in the other."""

    def __init__(self, folder: Path) -> None:
        self.disk = FailingDisk()
        super().__init__(folder)

    def start(self) -> None:
        self.paths = [str(self.folder / "first"), str(self.folder / "second")]
        self.loop = Loop()
        self.broker = Broker(self.loop, self.disk, self.paths[0], more_folders=self.paths[1:])
        self.broker.open()
        self.broker.frontend.endpoints["PLAINTEXT"] = Endpoint("here", 9092)

    def fail(self) -> list[int]:
        """The disk of one folder fails, which is noticed when something is written; its partitions."""
        folder = self.place(0)
        self.disk.failed.append(folder)
        with pytest.raises(StorageFailed):
            self.write(b"lost")
        self.loop.run_until(lambda: self.is_told)
        return [index for index in range(4) if self.place(index) == folder]

    @property
    def is_told(self) -> bool:
        return bool(self.broker.cluster.failing) and self.broker.membership.is_idle


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[OnDisks]:
    disks = OnDisks(tmp_path)
    disks.create(topic("t", 4))
    for index in range(4):
        disks.write(b"%d" % index, index=index)
    yield disks
    disks.stop()


def test_all_partitions_of_the_folder_are_offline_and_the_others_go_on(disks: OnDisks) -> None:
    failed = disks.fail()
    assert len(failed) == 2
    for index in range(4):
        partition = disks.partition(index)
        if index not in failed:
            disks.write(b"more", index=index)
            assert disks.values(index) == [b"%d" % index, b"more"]
            continue
        with pytest.raises(StorageFailed):
            disks.write(b"more", index=index)
        with pytest.raises(StorageFailed):
            partition.writer.produce(build_batch([b"more"], timestamp=1), 12, 1)
        with pytest.raises(StorageFailed):
            partition.check_leader()
        assert not partition.is_leader
    states = disks.broker.cluster.states["t"]
    assert [index for index in range(4) if states[index].leader_id == NOBODY] == failed
    assert all(states[index].in_sync == (1,) for index in range(4)), "it has what is committed, if anybody has"
    [found] = disks.metadata(MetadataRequestTopic(name="t")).topics
    offline = {partition.partition_index: partition.offline_replicas for partition in found.partitions}
    assert offline == {index: [1] if index in failed else [] for index in range(4)}


def test_clients_are_told_that_the_disk_failed(disks: OnDisks) -> None:
    index = disks.fail()[0]
    found = Topic("t", disks.partition().topic_id)
    answer = disks.ask(list_offsets, requests.list_offsets(found, -1, partitions=[index]), 7)
    assert answer.topics[0].partitions[0].error_code == STORAGE_ERROR
    answer = disks.ask(fetch, requests.fetch({found: [requests.fetch_partition(partition=index)]}), 12)
    assert answer.responses[0].partitions[0].error_code == STORAGE_ERROR


def test_the_folder_is_described_with_its_error_and_takes_nothing_more(disks: OnDisks) -> None:
    disks.fail()
    failed, sound = disks.place(0), disks.other(0)
    answer = disks.ask(describe_log_dirs, DescribeLogDirsRequest(topics=None))
    assert {each.log_dir: (each.error_code, bool(each.topics)) for each in answer.results} == {
        failed: (STORAGE_ERROR, False),
        sound: (0, True),
    }
    disks.create(topic("new", 6))
    new = disks.broker.topics.by_name["new"]
    assert {partition.log.folder.rpartition("/")[0] for partition in new.partitions} == {sound}
    [good] = [index for index in range(2) if disks.place(index) == sound]
    assert disks.move(failed, good) == STORAGE_ERROR
    [result] = disks.ask(alter_replica_log_dirs, move_logs(sound, {"t": [0]})).results
    assert result.partitions[0].error_code == STORAGE_ERROR


def test_a_folder_that_failed_is_used_again_after_the_next_start(disks: OnDisks) -> None:
    disks.fail()
    disks.stop()
    disks.disk.failed.clear()
    disks.start()
    assert [disks.values(index) for index in range(4)] == [[b"0"], [b"1"], [b"2"], [b"3"]]
    assert not disks.broker.cluster.failing
    assert all(state.leader_id == 1 for state in disks.broker.cluster.states["t"])


def test_a_broker_starts_without_a_folder_that_cannot_be_read(disks: OnDisks) -> None:
    """What may lie there is not begun anew, or an empty log would take its place."""
    failed = [index for index in range(4) if disks.place(index) == disks.place(0)]
    folder = disks.place(0)
    disks.stop()
    disks.disk.failed.append(folder)
    disks.start()
    disks.broker.failed_disks.look()
    disks.loop.run_until(lambda: disks.is_told)
    states = disks.broker.cluster.states["t"]
    assert [index for index in range(4) if states[index].leader_id == NOBODY] == failed
    for index in set(range(4)) - set(failed):
        disks.write(b"more", index=index)
    disks.stop()
    disks.disk.failed.clear()
    disks.start()
    assert [len(disks.values(index)) for index in range(4)] == [1 if index in failed else 2 for index in range(4)]


def test_a_broker_whose_last_folder_fails_stops(disks: OnDisks) -> None:
    disks.fail()
    assert disks.broker.halted is None
    disks.disk.failed += disks.paths
    [good] = [index for index in range(2) if disks.partition(index).is_leader]
    with pytest.raises(StorageFailed):
        disks.write(b"lost", index=good)
    disks.loop.run_until(lambda: disks.broker.halted is not None)
    assert "all data folders failed" in str(disks.broker.halted)
