"""Loading coordinators holds nobody up, and one bad record keeps nothing from the others. Nor does a full disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.config.layers import BrokerSettings
from ottla.broker.coordinators.coordinator import MOST_REST_SECONDS, RELOADED_AFTER_SECONDS
from ottla.broker.coordinators.loading import LOADED_IN_A_STEP, Replay
from ottla.broker.coordinators.shard import ShardState
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import SLICE_SECONDS, run_to_end
from ottla.broker.loop.system import LinuxSystem
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.group import Committer, OffsetToCommit
from ottla.coordinator.group_machine import GroupMachine
from ottla.coordinator.offsets.commit import commit
from ottla.coordinator.operation import Operation, Reply
from ottla.log.producers import Origin
from ottla.records.batch import (
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    RECORDS_AT,
    read_header,
    whole_batches,
)
from ottla.records.build import build_batch
from ottla.records.compression import GZIP, compress
from ottla.records.validate import header_of_recompressed, stamped
from ottla.testing.full_disk import FillableDisk
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.group_records import GROUP_RECORDS
from ottla.wire.messages.offset_and_group_records import OffsetCommitKey, OffsetCommitValue
from ottla.wire.uuids import ZERO_UUID
from tests.broker.opened_broker import topic

PARTITIONS = 20
TICK_SECONDS = 0.001
Records = Sequence[tuple[bytes, bytes | None]]


class TickingSystem(LinuxSystem):
    """Time passes when somebody looks at the clock, and when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.now = self._tick

    def _tick(self) -> float:
        self.seconds += TICK_SECONDS
        return self.seconds


class Opened:
    """A broker without network, whose disk can be filled."""

    def __init__(self, folder: Path) -> None:
        self.system = TickingSystem()
        self.loop = Loop(self.system)
        self.disk = FillableDisk(syncs=False)
        settings = BrokerSettings({"offsets.topic.num.partitions": str(PARTITIONS)})
        self.broker = Broker(self.loop, self.disk, str(folder), settings)
        self.broker.open()

    def write(self, index: int, records: Records, codec: int = 0) -> None:
        """Straight into the log of a coordinator."""
        run_to_end(self.loop, self.broker.groups.ensure_topic())
        partition = self.broker.topics.partition(OFFSETS_TOPIC, index)
        assert partition is not None
        batch = build_batch(
            [value for _, value in records], keys=[key for key, _ in records], timestamp=self.broker.clock_ms()
        )
        if codec:
            batch = compressed(batch, codec)
        partition.writer.append(batch, read_header(batch), self.broker.clock_ms(), origin=Origin.COORDINATOR)

    def load(self) -> None:
        while self.broker.groups.is_loading:
            self.round()

    def round(self) -> None:
        self.loop.call_soon(lambda: None)
        self.loop.run_once()

    def submit(self, group_id: str, event: Callable[[GroupMachine, Operation], Any]) -> Any:
        """The answer, after a round; None where there is none."""
        answers: list[Any] = []
        reply = Reply(answers.append, lambda code: code)

        def run(machine: GroupMachine, operation: Operation) -> None:
            operation.answer(reply, event(machine, operation))

        self.broker.groups.submit(group_id, reply, run)
        self.round()
        return answers[0] if answers else None

    def commit(self, group_id: str, offset: int) -> Any:
        asked = [OffsetToCommit("t", ZERO_UUID, 0, offset, -1, "")]
        committer = Committer("", None, -1, 9)
        return self.submit(
            group_id, lambda machine, operation: commit(machine, operation, group_id, committer, asked)[0]
        )

    def committed(self, group_id: str) -> Any:
        def read(machine: GroupMachine, _operation: Operation) -> int:
            found = machine.offsets.of_group(group_id).get(("t", 0))
            return -1 if found is None else found.value.offset

        return self.submit(group_id, read)

    def stop(self) -> None:
        self.broker.stop()
        self.loop.close()


def compressed(batch: bytearray, codec: int) -> bytearray:
    header = read_header(batch)
    area = compress(codec, batch[HEADER_SIZE:])
    made = bytearray(HEADER_SIZE) + area
    return bytearray(stamped(made, header_of_recompressed(header, codec, len(made)), False, header.max_timestamp).batch)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path)
    run_to_end(opened.loop, opened.broker.topic_requests.create([topic("t")]))
    yield opened
    opened.stop()


def committed_offset(group_id: str, offset: int, metadata: str = "") -> tuple[bytes, bytes]:
    key = OffsetCommitKey(group=group_id, topic="t", partition=0)
    value = OffsetCommitValue(offset=offset, leader_epoch=-1, metadata=metadata, commit_timestamp=0, topic_id=ZERO_UUID)
    return GROUP_RECORDS.encode_key(key), GROUP_RECORDS.encode_value(value, 4) or b""


def group_in(opened: Opened, index: int) -> str:
    """A group that a partition keeps."""
    run_to_end(opened.loop, opened.broker.groups.ensure_topic())
    return next(
        name for name in map("group {}".format, range(10_000)) if opened.broker.groups.partition_of(name) == index
    )


def test_all_partitions_together_load_a_small_slice_a_round(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(PARTITIONS):
        for start in range(0, 500, 10):  # in batches smaller than a step
            opened.write(index, [committed_offset(f"{index} {start + number}", 1) for number in range(10)])
    opened.stop()
    replayed = 0
    replay = GroupMachine.replay

    def counted(*arguments: Any) -> Any:
        nonlocal replayed
        replayed += 1
        return replay(*arguments)

    monkeypatch.setattr(GroupMachine, "replay", counted)
    opened.__init__(tmp_path)  # type: ignore[misc]
    groups = opened.broker.groups
    asked = group_in(opened, PARTITIONS - 1)
    assert opened.committed(asked) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rounds, ready = [], []
    while groups.is_loading:
        before = replayed
        opened.round()
        rounds.append(replayed - before)
        ready.append(len(groups.shards()))
    assert replayed == PARTITIONS * 500
    assert max(rounds) <= (SLICE_SECONDS / TICK_SECONDS + 2) * LOADED_IN_A_STEP
    assert {1, PARTITIONS // 2} <= set(ready)  # one after the other, so that the first serves soon
    assert opened.committed(asked) == -1


def test_what_a_batch_decompresses_to_is_not_held_at_once(opened: Opened) -> None:
    """The records of a coordinator that somebody else wrote, or compaction has compressed."""
    records = [committed_offset(f"group {number}", number) for number in range(20_000)]
    opened.write(0, records, codec=GZIP)
    partition = opened.broker.topics.partition(OFFSETS_TOPIC, 0)
    assert partition is not None
    assert partition.log.size_bytes < 700_000
    machine = opened.broker.groups.make_machine(partition)
    counts = [len(machine.groups) for _ in Replay(partition, machine).steps()]
    assert len(machine.groups) == 20_000
    assert max(after - before for before, after in zip([0, *counts], counts, strict=False)) <= LOADED_IN_A_STEP


def test_records_that_make_no_sense_are_told_and_passed_over(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, last = group_in(opened, 0), "another group"
    bad: Records = [(b"\x00\x01\x00\x7f", b""), (b"\x00\x01", b"")]  # keys that end too soon
    key, value = committed_offset("breaks", 1)
    opened.write(0, [committed_offset(first, 5), *bad, (key, value), committed_offset(last, 6)])
    opened.stop()
    replay = GroupMachine.replay

    def breaks(machine: GroupMachine, key: Any, *rest: Any) -> Any:
        if key.group == "breaks":
            raise KeyError("a member that is not there")
        return replay(machine, key, *rest)

    monkeypatch.setattr(GroupMachine, "replay", breaks)
    opened.__init__(tmp_path)  # type: ignore[misc]
    opened.load()
    assert opened.committed(first) == 5
    [shard] = opened.broker.groups.shards()
    assert set(shard.machine.groups) == {first, last}
    told = [record for record in caplog.records if record.getMessage() == "a coordinator passes over a record"]
    assert len(told) == 3


# A full disk


def count_loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    loads: list[int] = []
    steps = Replay.steps

    def counted(replay: Replay) -> Iterator[None]:
        loads.append(1)
        return steps(replay)

    monkeypatch.setattr(Replay, "steps", counted)
    return loads


def test_commits_that_fail_are_taken_back_and_nothing_is_loaded_again(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known, new = group_in(opened, 3), "new"
    assert opened.commit(known, 5) == ErrorCode.NONE
    assert opened.committed(new) == -1
    loads = count_loads(monkeypatch)
    opened.disk.is_full = True
    for offset in range(50):
        assert opened.commit(known, 100 + offset) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert opened.commit(new, 100 + offset) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert opened.committed(known) == 5  # who reads is served all the time
    assert opened.committed(new) == -1
    assert all(new not in shard.machine.groups for shard in opened.broker.groups.shards())
    opened.disk.is_full = False
    assert opened.commit(known, 7) == ErrorCode.NONE
    assert opened.committed(known) == 7
    assert not loads
    assert len([record for record in caplog.records if record.getMessage() == "a coordinator cannot write"]) == 2


def test_commits_of_one_round_are_taken_back_together(opened: Opened) -> None:
    group = group_in(opened, 3)
    opened.commit(group, 5)
    opened.disk.is_full = True
    answers: list[Any] = []
    for offset in (6, 7, 8):
        reply = Reply(answers.append, lambda code: code)

        def run(machine: GroupMachine, operation: Operation, reply: Reply = reply, offset: int = offset) -> None:
            asked = [OffsetToCommit("t", ZERO_UUID, 0, offset, -1, "")]
            operation.answer(reply, commit(machine, operation, group, Committer("", None, -1, 9), asked))

        producer = (7, 0) if offset == 8 else (-1, -1)  # which is written at once, behind the others
        opened.broker.groups.submit(group, reply, run, producer)
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    opened.disk.is_full = False
    assert opened.committed(group) == 5
    [shard] = opened.broker.groups.shards()
    assert not shard.machine.offsets.has_pending(group)


def test_what_cannot_be_taken_back_is_loaded_again_less_and_less_often(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = group_in(opened, 3)
    assert opened.commit(group, 5) == ErrorCode.NONE
    loads = count_loads(monkeypatch)

    def change_group(machine: GroupMachine, operation: Operation) -> int:
        known = machine.groups[group]
        assert isinstance(known, ClassicGroup)
        known.write_tombstones(operation)
        return 0

    opened.disk.is_full = True
    asked = 0
    started = opened.system.seconds
    while opened.system.seconds < started + 60:
        assert opened.submit(group, change_group) in (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
        if opened.broker.groups.shard_of(3) is None:
            assert opened.broker.groups.is_loading  # so that nobody takes the groups of the others for all
        opened.system.seconds += 0.01
        asked += 1
    assert asked > 1000
    assert 5 <= len(loads) <= 12  # after 0.1 s, 0.2 s, ... and at last every ten
    opened.disk.is_full = False
    opened.system.seconds += MOST_REST_SECONDS
    opened.round()
    opened.load()
    assert opened.committed(group) == 5
    assert opened.submit(group, change_group) == 0
    opened.commit(group, 6)
    opened.disk.is_full = True
    del loads[:]
    opened.submit(group, change_group)
    opened.system.seconds += RELOADED_AFTER_SECONDS
    opened.round()
    opened.round()
    assert loads  # what could be written in between counts


def test_a_coordinator_that_stops_on_a_full_disk_is_unloaded(opened: Opened) -> None:
    """What it had gathered fails then, which unloads it, too."""
    group = group_in(opened, 3)
    assert opened.commit(group, 5) == ErrorCode.NONE
    [shard] = opened.broker.groups.shards()
    assert shard.state is ShardState.LOADED
    answers: list[Any] = []

    def change_group(machine: GroupMachine, operation: Operation) -> None:
        known = machine.groups[group]
        assert isinstance(known, ClassicGroup)
        known.write_tombstones(operation)
        operation.answer(reply, ErrorCode.NONE)

    reply = Reply(answers.append, lambda code: code)
    opened.broker.groups.submit(group, reply, change_group)
    opened.disk.is_full = True
    opened.broker.groups.stop()
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert (shard.state, shard.is_loaded) == (ShardState.UNLOADED, False)
    with pytest.raises(AssertionError, match="unloaded cannot be loading next"):
        shard._become(ShardState.LOADING)


@pytest.mark.parametrize("at", [LENGTH_AT, CRC_AT, LAST_OFFSET_DELTA_AT, RECORDS_AT], ids=str)
@pytest.mark.parametrize("is_running", [False, True])
def test_a_batch_that_rotted_keeps_no_group_from_its_coordinator(
    opened: Opened, tmp_path: Path, at: int, is_running: bool
) -> None:
    run_to_end(opened.loop, opened.broker.groups.ensure_topic())
    names = [name for name in map("group {}".format, range(400)) if opened.broker.groups.partition_of(name) == 0][:5]
    for number, name in enumerate(names):
        opened.write(0, [committed_offset(name, number, metadata="." * 2000)])
    if not is_running:
        opened.stop()
    path = tmp_path / f"{OFFSETS_TOPIC}-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    starts = [position for position, _ in whole_batches(data)]
    data[starts[2] + at] ^= 0x40
    path.write_bytes(data)
    if not is_running:
        opened.__init__(tmp_path)  # type: ignore[misc]
    opened.committed(names[0])
    opened.load()
    assert [opened.committed(name) for name in names] == [0, 1, -1, 3, 4]
