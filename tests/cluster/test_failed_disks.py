"""A disk of a broker fails, and others lead what lies there: at once, and whoever decides."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.log.errors import StorageFailed
from ottla.log.manager import LogManager
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.replica.errors import NotLeader
from ottla.replica.partition import Partition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.elect_leaders import ElectLeadersRequest
from tests.broker.failing_disk import FailingDisk
from tests.cluster.one_loop import Brokers

PARTITIONS = range(6)


class OnDisks(Brokers):
    """Broker 2 has two folders, one of which fails."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.disk = self.disks[2] = FailingDisk()
        self.more_folders[2] = [str(folder / "second")]
        self.start(1, 2, 3)
        self.create(1, "t", partitions=len(PARTITIONS))
        self.in_sync()
        for index in PARTITIONS:
            self.write(index)
        self.failed = [index for index in PARTITIONS if self.replica(2, index).log.folder.startswith(str(folder / "2"))]

    def replica(self, node_id: int, index: int) -> Partition:
        found = self[node_id].topics.partition("t", index)
        assert found is not None
        return found

    def leader(self, index: int) -> int:
        return self.states(self.controller_id)[index].leader_id

    def write(self, index: int) -> None:
        """As a client would: again, where another one leads by now."""
        while isinstance(told := self._try_to_write(index), NotLeader):
            pass
        assert told is None

    def _try_to_write(self, index: int) -> object:
        self.wait(lambda: self.leader(index) in self.running and self.replica(self.leader(index), index).is_leader)
        batch = build_batch([b"value"], timestamp=1)
        leader = self.replica(self.leader(index), index)
        told: list[object] = []
        leader.when_committed(leader.writer.append(batch, read_header(batch), 1).last_offset + 1, told.append)
        self.wait(lambda: bool(told))
        return told[0]

    def write_somewhere(self, index: int) -> None:
        """As a client would: again, where the disk of the leader has failed."""
        try:
            self.write(index)
        except StorageFailed:
            self.wait(lambda: self.leader(index) != 2)
            self.write(index)

    def fail(self) -> None:
        self.disk.failed.append(self[2].logs.folder)

    def await_failure(self) -> None:
        """All of the folder is led and kept in sync by others."""

        def is_done() -> bool:
            states = self.states(self.controller_id)
            return all(2 not in (states[index].leader_id, *states[index].in_sync) for index in self.failed)

        self.wait(is_done)
        self.agree()
        for index in set(PARTITIONS) - set(self.failed):
            assert 2 in self.states(1)[index].in_sync, "what lies in the other folder is there as before"
        for index in PARTITIONS:
            self.write(index)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[OnDisks]:
    brokers = OnDisks(tmp_path)
    yield brokers
    brokers.close()


def test_others_lead_what_a_leader_cannot_write(brokers: OnDisks) -> None:
    assert 0 < len(brokers.failed) < len(PARTITIONS)
    [led, *_] = [index for index in brokers.failed if brokers.leader(index) == 2]
    brokers.fail()
    with pytest.raises(StorageFailed):
        brokers.write(led)
    brokers.await_failure()


def test_who_cannot_copy_leaves_the_in_sync_set_at_once(brokers: OnDisks) -> None:
    [followed, *_] = [index for index in brokers.failed if brokers.leader(index) != 2]
    brokers.fail()
    brokers.write(followed)
    brokers.await_failure()


def test_the_next_controller_is_told_too_and_nobody_elects_a_failed_replica(brokers: OnDisks) -> None:
    brokers.fail()
    with contextlib.suppress(StorageFailed):
        for index in brokers.failed:
            brokers.write(index)
    brokers.await_failure()
    brokers.kill(1)
    brokers.wait(lambda: any(broker.membership.is_controller for broker in brokers.running.values()))
    brokers.wait(lambda: all(set(broker.cluster.failing) == {2} for broker in brokers.running.values()))
    brokers.wait(lambda: all(brokers.leader(index) == 3 for index in brokers.failed))
    answer = brokers.ask(3, ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10_000))
    codes = {
        result.partition_id: result.error_code
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }
    first = {index: brokers[3].cluster.topics["t"].replicas[index][0] for index in brokers.failed}
    for index in brokers.failed:
        if first[index] != 3:
            assert codes[index] == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    brokers.start(1)
    brokers.stop(2)
    brokers.disk.failed.clear()
    brokers.start(2)
    brokers.in_sync()
    assert not brokers[3].cluster.failing


def test_a_disk_that_fails_when_the_broker_registers_again_does_not_keep_it_out(brokers: OnDisks) -> None:
    brokers.fail()
    brokers.end_session(2)
    brokers.wait(lambda: brokers[2].logs.managers[0].failure is not None)
    sound = [index for index in PARTITIONS if index not in brokers.failed]
    brokers.wait(lambda: all(2 in brokers.states(brokers.controller_id)[index].in_sync for index in sound))
    for index in PARTITIONS:
        brokers.write_somewhere(index)


def test_a_broker_without_room_to_note_its_registration_does_not_register_all_the_time(
    brokers: OnDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time is a change in the store, of which the store tells this broker, too."""
    tries: list[int] = []
    note, folder = LogManager.note_registration, brokers[2].logs.folder

    def find_no_room(logs: LogManager, broker_epoch: int) -> None:
        if logs.folder == folder:
            tries.append(broker_epoch)
            raise OSError(errno.ENOSPC, "No space left on device")
        note(logs, broker_epoch)

    with monkeypatch.context() as patched:
        patched.setattr(LogManager, "note_registration", find_no_room)
        brokers.end_session(2)
        brokers.wait(lambda: bool(tries))
        passed: list[bool] = []
        brokers.loop.call_later(1.0, lambda: passed.append(True))
        brokers.wait(lambda: bool(passed))
    assert len(tries) < 10
    brokers.in_sync()
