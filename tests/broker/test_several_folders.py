"""Several data folders: partitions are spread over them, and move between them while they are written to."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker.broker import Broker
from ottla.broker.dispatch import Context
from ottla.broker.handlers import alter_replica_log_dirs, delete_topics, describe_log_dirs, offset_commit
from ottla.broker.loop import slices
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import run_to_end
from ottla.broker.network.listeners import Endpoint
from ottla.log import moving
from ottla.log.files import DiskFiles
from ottla.log.retention import apply_retention
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.records.read import read_batches
from ottla.replica.partition import Partition
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.schema import Response
from tests.broker.opened_broker import OpenBroker, topic
from tests.conformance import requests
from tests.conformance.cluster_requests import move_logs
from tests.conformance.group_requests import commit
from tests.conformance.script import Topic


class Folders(OpenBroker):
    """A broker with two data folders."""

    def start(self) -> None:
        self.paths = [str(self.folder / "first"), str(self.folder / "second")]
        self.loop = Loop()
        self.broker = Broker(self.loop, DiskFiles(), self.paths[0], more_folders=self.paths[1:])
        self.broker.open()
        self.broker.frontend.endpoints["PLAINTEXT"] = Endpoint("here", 9092)

    def partition(self, index: int = 0) -> Partition:
        found = self.broker.topics.partition("t", index)
        assert found is not None
        return found

    def write(self, *values: bytes, index: int = 0) -> None:
        for value in values:
            batch = build_batch([value], timestamp=1)
            self.partition(index).writer.append(batch, read_header(batch), 1)

    def values(self, index: int = 0) -> list[bytes | None]:
        log = self.partition(index).log
        found = log.read(log.log_start_offset, 1 << 24, log.end_offset)
        batches = [] if found is None else read_batches(found.read())
        return [record.value for batch in batches for record in batch.records()]

    def place(self, index: int = 0) -> str:
        return self.partition(index).log.folder.rpartition("/")[0]

    def other(self, index: int = 0) -> str:
        [other] = [path for path in self.paths if path != self.place(index)]
        return other

    def move(self, folder: str, index: int = 0) -> int:
        [result] = self.ask(alter_replica_log_dirs, move_logs(folder, {"t": [index]})).results
        return int(result.partitions[0].error_code)

    def await_move(self) -> None:
        moves = self.broker.replica_moves
        self.loop.run_until(lambda: not any(moves.to(manager) for manager in self.broker.logs.managers))

    def described(self) -> dict[str, list[tuple[int, bool]]]:
        """The partitions in each folder, and whether they are on their way there."""
        answer: DescribeLogDirsResponse = self.ask(describe_log_dirs, DescribeLogDirsRequest(topics=None))
        return {
            found.log_dir: sorted(
                (partition.partition_index, partition.is_future_key)
                for each in found.topics
                for partition in each.partitions
            )
            for found in answer.results
        }


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Folders]:
    folders = Folders(tmp_path)
    folders.create(topic("t", 4))
    yield folders
    folders.stop()


def test_partitions_are_spread_over_the_folders_and_found_again(folders: Folders) -> None:
    for index in range(4):
        folders.write(b"%d" % index, index=index)
    assert sorted(folders.place(index) for index in range(4)) == sorted(folders.paths * 2)
    before = folders.described()
    folders.stop()
    folders.start()
    assert folders.described() == before
    assert [folders.values(index) for index in range(4)] == [[b"0"], [b"1"], [b"2"], [b"3"]]
    assert not folders.broker.logs.recovered


def test_a_partition_moves_while_it_is_written_to(folders: Folders) -> None:
    written = [b"%d" % number * 1000 for number in range(3000)]
    folders.write(*written)
    target = folders.other()
    assert folders.move(target) == 0
    steps = 0
    while folders.broker.replica_moves.to(next(m for m in folders.broker.logs.managers if m.folder == target)):
        if folders.place() != target and (0, True) in folders.described()[target]:
            written.append(b"while it moves %d" % steps)
            folders.write(written[-1])
        folders.loop.run_once()
        steps += 1
        assert steps < 10_000
    folders.write(b"behind")
    assert folders.place() == target
    assert folders.values() == [*written, b"behind"]
    assert len(written) > 3000
    assert (0, False) in folders.described()[target]
    folders.stop()
    folders.start()
    assert folders.values() == [*written, b"behind"]
    assert (Path(target) / "t-0").is_dir()


def test_a_partition_without_records_moves(folders: Folders) -> None:
    target = folders.other()
    assert folders.move(target) == 0
    folders.await_move()
    assert folders.place() == target
    folders.write(b"first")
    folders.stop()
    folders.start()
    assert (folders.place(), folders.values()) == (target, [b"first"])


def test_it_starts_where_records_were_deleted(folders: Folders) -> None:
    folders.write(b"a", b"b", b"c")
    folders.partition().delete_records(2, 1)
    target = folders.other()
    folders.move(target)
    folders.await_move()
    log = folders.partition().log
    assert (log.log_start_offset, log.end_offset, folders.values()) == (2, 3, [b"c"])
    folders.stop()
    folders.start()
    assert (folders.place(), folders.partition().log.log_start_offset, folders.values()) == (target, 2, [b"c"])


def test_it_may_start_within_a_batch(folders: Folders) -> None:
    batch = build_batch([b"%d" % number for number in range(10)], timestamp=1)
    folders.partition().writer.append(batch, read_header(batch), 1)
    folders.write(b"10")
    folders.partition().delete_records(5, 1)
    target = folders.other()
    assert folders.move(target) == 0
    folders.await_move()
    for _ in range(2):
        log = folders.partition().log
        assert (folders.place(), log.log_start_offset, log.end_offset) == (target, 5, 11)
        assert folders.values() == [b"%d" % number for number in range(11)]
        folders.stop()
        folders.start()


def test_a_producer_whose_records_are_gone_is_known_after_the_move(folders: Folders) -> None:
    def write(sequence: int) -> bool:
        batch = build_batch([b"v"], timestamp=1, producer_id=5, producer_epoch=0, base_sequence=sequence)
        return folders.partition().writer.append(batch, read_header(batch), 1).duplicate

    assert [write(0), write(1)] == [False, False]
    folders.partition().delete_records(2, 1)
    folders.partition().log.roll(1)
    apply_retention(folders.partition().log, 1)
    target = folders.other()
    assert folders.move(target) == 0
    folders.await_move()
    assert folders.place() == target
    assert [write(0), write(1), write(2)] == [True, True, False]


def test_a_move_back_ends_the_move(folders: Folders) -> None:
    folders.write(b"a")
    before, target = folders.place(), folders.other()
    assert folders.move(target) == 0
    assert folders.move(before) == 0
    folders.await_move()
    assert folders.place() == before
    assert folders.described()[target].count((0, True)) == 0
    assert not list(Path(target).glob("*-future"))


@pytest.mark.parametrize("is_crash", [False, True])
def test_a_move_goes_on_after_a_restart(folders: Folders, is_crash: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)  # a step a round, of which there are some ninety
    monkeypatch.setattr(moving, "COPIED_IN_A_STEP_BYTES", 100_000)
    values = [b"%d" % number * 100_000 for number in range(50)]
    folders.write(*values)
    before, target = folders.place(), folders.other()
    assert folders.move(target) == 0
    for _ in range(3):
        folders.loop.run_once()
    if is_crash:
        folders.crash()
    else:
        folders.stop()
    monkeypatch.undo()
    folders.start()
    assert folders.place() == before
    folders.broker.replica_moves.resume()
    manager = folders.broker.logs.manager_at(target)
    assert manager is not None
    assert list(folders.broker.replica_moves.to(manager)) == [("t", 0)]
    folders.await_move()
    assert (folders.place(), folders.values()) == (target, values)
    folders.write(b"more")
    folders.stop()
    folders.start()
    folders.broker.replica_moves.resume()
    assert not any(folders.broker.replica_moves.to(manager) for manager in folders.broker.logs.managers)
    assert (folders.place(), folders.values()) == (target, [*values, b"more"])


def test_a_move_that_was_asked_for_and_not_begun_goes_on_after_a_crash(folders: Folders) -> None:
    folders.write(b"a")
    target = folders.other()
    assert folders.move(target) == 0
    folders.crash()
    folders.start()
    folders.broker.replica_moves.resume()
    folders.await_move()
    assert (folders.place(), folders.values()) == (target, [b"a"])


def test_a_move_that_was_taken_back_does_not_go_on_after_a_restart(folders: Folders) -> None:
    folders.write(b"a")
    before, target = folders.place(), folders.other()
    assert folders.move(target) == 0
    assert folders.move(before) == 0
    folders.crash()
    folders.start()
    folders.broker.replica_moves.resume()
    folders.await_move()
    assert folders.place() == before


def test_a_move_that_was_taken_back_before_its_turn_leaves_nothing(folders: Folders) -> None:
    folders.write(*[b"x" * 100_000] * 50)
    folders.write(b"a", index=1)
    before, target = folders.place(1), folders.other(1)
    assert folders.move(folders.other()) == 0
    assert folders.move(target, 1) == 0
    assert folders.move(before, 1) == 0
    assert not list(Path(target).glob("t-1.*-future"))
    folders.crash()
    folders.start()
    folders.broker.replica_moves.resume()
    folders.await_move()
    assert folders.place(1) == before


def test_a_topic_that_is_deleted_moves_no_more(folders: Folders) -> None:
    folders.write(*[b"x" * 100_000] * 50)
    target = folders.other()
    folders.move(target)
    folders.loop.run_once()
    folders.broker.logs.delete("t", 0, 1)
    folders.await_move()
    assert not list(Path(target).glob("t-0"))
    assert not list(Path(target).glob("*-future"))


@pytest.mark.parametrize(("folder", "code"), [("nowhere", 57), ("", 57)])
def test_a_folder_that_is_not_there(folders: Folders, folder: str, code: int) -> None:
    assert folders.move(folder) == code


def test_a_partition_that_is_not_there(folders: Folders) -> None:
    assert folders.move(folders.paths[0], 9) == 3


def test_a_crash_within_the_exchange_keeps_the_log_that_ends_later(folders: Folders) -> None:
    """The copy has its name already, and what it was made of has still its own."""
    folders.write(b"a", b"b")
    before, target = folders.place(), folders.other()
    folders.stop()
    shutil.copytree(f"{before}/t-0", f"{target}/t-0")
    folders.start()
    folders.write(b"c")
    kept = folders.place()
    assert folders.values() == [b"a", b"b", b"c"]
    folders.stop()
    folders.start()
    assert (folders.place(), folders.values()) == (kept, [b"a", b"b", b"c"])


def test_what_stayed_of_a_deleted_topic_does_not_replace_the_next_of_its_name(folders: Folders) -> None:
    """Its folder could not be removed. It ends later, but is no copy."""
    folders.write(b"old", b"old", b"old")
    left = folders.folder / "left"
    shutil.copytree(f"{folders.place()}/t-0", left)
    folders.ask(delete_topics, requests.delete_topics("t"))
    folders.create(topic("t", 4))
    folders.write(b"new")
    place, other = folders.place(), folders.other()
    folders.stop()
    shutil.copytree(left, f"{other}/t-0")
    folders.start()
    assert (folders.place(), folders.values()) == (place, [b"new"])
    [aside] = Path(other).glob("t-0.*-stray")
    assert list(aside.glob("*.log"))


def test_a_move_that_fails_at_its_end_leaves_nothing(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.write(b"a")
    place, target = folders.place(), folders.other()
    manager = next(each for each in folders.broker.logs.managers if each.folder == target)

    def fail(_name: str) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(manager, "write_checkpoint", fail)
        folders.move(target)
        folders.await_move()
    assert (folders.place(), folders.values()) == (place, [b"a"])
    assert ("t", 0) not in manager.logs
    assert not Path(target, "t-0").exists()
    folders.write(b"b")
    folders.move(target)
    folders.await_move()
    assert (folders.place(), folders.values()) == (target, [b"a", b"b"])


def test_what_a_crash_left_of_a_copy_is_removed(folders: Folders) -> None:
    folders.write(b"a")
    before, target = folders.place(), folders.other()
    folders.stop()
    shutil.copytree(f"{before}/t-0", f"{target}/t-0.{'0' * 32}-future")
    folders.start()
    assert (folders.place(), folders.values()) == (before, [b"a"])
    manager = next(each for each in folders.broker.logs.managers if each.folder == target)
    manager.remove_folders(manager.due_folders(1 << 62))
    assert not list(Path(target).glob("*-future"))


def test_a_truncation_reaches_the_copy(folders: Folders) -> None:
    folders.write(*[b"%d" % number * 200_000 for number in range(9)])
    partition, target = folders.partition(), folders.other()
    folders.move(target)
    [move] = folders.broker.replica_moves.to(
        next(each for each in folders.broker.logs.managers if each.folder == target)
    ).values()
    folders.loop.run_until(lambda: move.copy is not None and move.copy.end_offset > 5)
    partition.log.truncate_to(4, 1)
    partition.machine.truncated(4)
    folders.write(b"new", b"newer", b"newest")
    folders.await_move()
    assert folders.place() == target
    assert folders.values()[4:] == [b"new", b"newer", b"newest"]


def test_the_lag_of_a_group_is_counted_where_the_log_is_now(folders: Folders) -> None:
    folders.write(b"a", b"b", b"c")
    committed = commit("g", Topic("t", folders.partition().topic_id), (0, 1))
    run_to_end(folders.loop, folders.broker.groups.ensure_topic())
    answers: list[Response] = []
    context = SimpleNamespace(version=10, reply=answers.append)
    offset_commit.handle(folders.broker, committed, cast(Context, context))
    folders.loop.run_until(lambda: bool(answers))

    def lag() -> list[int]:
        run_to_end(folders.loop, folders.broker.lags.refresh())
        return [each.records for each in folders.broker.lags.known()]

    assert lag() == [2]
    folders.move(folders.other())
    folders.await_move()
    folders.write(b"d")
    assert lag() == [3]
