"""Followers that fetch from a leader in sessions: over the wire's bytes, on one loop, without a network."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import GeneratorType, SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.config.layers import BrokerSettings
from ottla.broker.loop import slices
from ottla.broker.loop.loop import Loop
from ottla.broker.network.peer import PeerLost
from ottla.broker.replication.fetcher import Fetcher, FetchSettings
from ottla.broker.replication.serving import AT_ONCE, ReplicaSessions
from ottla.broker.rot_reports import RotReports
from ottla.log.errors import LogError
from ottla.log.files import FileRange
from ottla.log.hole import Hole
from ottla.log.recovery import open_log
from ottla.log.segment import LOG
from ottla.log.snapshot import SUFFIX as SNAPSHOT
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import LENGTH_AT, CorruptBatch, read_header
from ottla.records.build import build_batch
from ottla.replica.machine import ALL
from ottla.replica.partition import Partition
from ottla.testing.files import Effect, SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY
from ottla.testing.simulated_system import SimulatedSystem
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request, encode_response
from ottla.wire.header import read_request_header
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from ottla.wire.schema import Request, Response
from tests.log.writing import append, new_log, served_offsets, served_values
from tests.replica.shell import ManualShell

LEADER, FOLLOWER = 1, 2
REPLICAS = [LEADER, FOLLOWER]
SMALL = TopicConfig(internal_segment_bytes=4096, index_interval_bytes=256)


class Connection:
    def __init__(self) -> None:
        self.is_open = True
        self._calls: dict[Callable[[], None], None] = {}

    def call_when_closed(self, callback: Callable[[], None]) -> None:
        self._calls[callback] = None

    def forget_call(self, callback: Callable[[], None]) -> None:
        self._calls.pop(callback, None)

    def close(self) -> None:
        self.is_open = False
        for callback in list(self._calls):
            callback()


class Shell(ManualShell):
    """Ends rounds by itself."""

    def __init__(self, loop: Loop, *, waits_for_disk: bool = False) -> None:
        super().__init__(waits_for_disk=waits_for_disk)
        self._loop = loop

    def touch(self, partition: Partition) -> None:
        self._loop.call_last(partition.end_round)


class World:
    """A leader and a follower of some partitions."""

    def __init__(
        self,
        partitions: int = 1,
        settings: FetchSettings | None = None,
        may_fetch_seconds: Callable[[Partition], float] = lambda _partition: 0.0,
        *,
        waits_for_disk: bool = False,
    ) -> None:
        self.system = SimulatedSystem(seed=1)
        self.loop = Loop(self.system)
        self.leader_files, self.follower_files = SimulatedFiles(), SimulatedFiles()
        self.shell = Shell(self.loop, waits_for_disk=waits_for_disk)
        self.leaders = [self._partition(LEADER, index, self.leader_files) for index in range(partitions)]
        self.followers = [self._partition(FOLLOWER, index, self.follower_files) for index in range(partitions)]
        self.requests: list[FetchRequest] = []
        self.settings = BrokerSettings({})
        self.connection = Connection()
        self.is_cut = False
        self._pending: Callable[[Any], None] | None = None
        broker = SimpleNamespace(
            topics=SimpleNamespace(find=self._find),
            settings=self.settings,
            node_id=LEADER,
            loop=self.loop,
            clock_ms=self.loop.system.clock_ms,
            steady_ms=self.loop.steady_ms,
            report_bug=self._report_bug,
            rot_reports=RotReports(),
        )
        self.sessions = ReplicaSessions(cast("Any", broker))
        self.fetcher = Fetcher(
            self.loop,
            LEADER,
            FOLLOWER,
            peer=lambda: cast("Any", self),
            broker_epoch=lambda: 7,
            settings=lambda: settings or FetchSettings(),
            may_fetch=may_fetch_seconds,
        )

    def _partition(self, node_id: int, index: int, files: SimulatedFiles) -> Partition:
        log = new_log(files) if not index else new_log(SimulatedFiles())
        return Partition("t", index, bytes(15) + b"t", log, node_id, self.shell)

    def _find(self, key: tuple[bytes | str, int]) -> Partition | None:
        return self.leaders[key[1]] if key[1] < len(self.leaders) else None

    def _report_bug(self, header: object) -> None:
        raise AssertionError(f"the leader failed at {header}")

    def send(self, request: Request, version: int, answered: Callable[[Any], None], _timeout: float) -> None:
        """The peer: what goes through it is bytes in between."""
        if self.is_cut:
            self.loop.call_soon(lambda: answered(PeerLost("the network is cut")))
            return
        self._pending = answered
        frame = b"".join(bytes(part) for part in cast("Any", encode_request(1, "c", request, version)))[4:]
        header = read_request_header(memoryview(frame))
        read, _ = FetchRequest.readers[version](memoryview(frame), header.body_position)
        self.requests.append(cast("FetchRequest", read))

        def reply(response: Response) -> None:
            data = b"".join(
                part.read() if isinstance(part, FileRange) else bytes(part)
                for part in cast("Any", encode_response(1, response, version))
            )
            _, decoded = decode_response(data[4:], request.api, version)
            self._pending = None
            self.loop.call_soon(lambda: answered(decoded))

        context = SimpleNamespace(
            version=version, connection=self.connection, reply=reply, header=header, close=self._report_bug
        )
        response = cast("FetchResponse | None", self.sessions.handle(self.requests[-1], cast("Any", context)))
        if response is not None:
            reply(response)

    def cut(self) -> None:
        self.is_cut = True
        self.connection.close()
        self.connection = Connection()
        pending, self._pending = self._pending, None
        if pending is not None:
            self.loop.call_soon(lambda: pending(PeerLost("the network is cut")))

    # Roles

    def lead(
        self, epoch: int = 0, partition_epoch: int = 0, in_sync: Sequence[int] = REPLICAS, eligible: Sequence[int] = ()
    ) -> None:
        for partition in (*self.leaders, *self.followers):
            partition.apply(
                leader_id=LEADER,
                leader_epoch=epoch,
                partition_epoch=partition_epoch,
                replicas=REPLICAS,
                in_sync=in_sync,
                now_ms=0,
                eligible=eligible,
            )
        for partition in self.followers:
            self.fetcher.follow(partition)

    def produce(self, index: int, *values: bytes, acks: int = ALL) -> list[LogError | None]:
        told: list[LogError | None] = []
        leader = self.leaders[index]
        placed = leader.writer.produce(build_batch(list(values), timestamp=1), 12, 1, acks)
        leader.when_committed(placed[1], told.append)
        return told

    def sync(self, *partitions: Partition) -> None:
        """What these have asked of their disks is done, or cannot be."""
        for partition in partitions:
            assert partition in self.shell.to_sync
            self.shell.to_sync = [each for each in self.shell.to_sync if each is not partition]
            failure: LogError | None = None
            try:
                partition.log.flush(1)
            except LogError as error:
                failure = error
            partition.synced(failure)
        self.run(0.1)

    def run(self, seconds: float) -> None:
        self.system.advance(self.loop, seconds)

    def assert_copied(self) -> None:
        for leader, follower in zip(self.leaders, self.followers, strict=True):
            assert served_values(follower.log) == served_values(leader.log)

    def assert_equal(self) -> None:
        for leader, follower in zip(self.leaders, self.followers, strict=True):
            assert served_values(follower.log) == served_values(leader.log)
            assert follower.machine.high_watermark == leader.machine.high_watermark == leader.log.end_offset
            assert follower.log.epochs.entries == leader.log.epochs.entries


@pytest.fixture
def world() -> World:
    return World()


def test_what_the_leader_has_is_copied_acknowledged_and_told(world: World) -> None:
    world.lead()
    world.run(0.1)
    told = world.produce(0, b"a", b"b")
    world.run(0.1)
    assert told == [None]
    world.assert_equal()


def test_what_was_there_before_is_copied_in_parts() -> None:
    world = World(settings=FetchSettings(partition_max_bytes=500, max_bytes=1000))
    for number in range(100):
        world.leaders[0].log.append(batch := build_batch([b"%d" % number] * 3, timestamp=1), read_header(batch), 0, 1)
    world.lead(epoch=1)
    world.run(1.0)
    world.assert_equal()


def test_gaps_of_billions_that_compaction_left_are_copied(world: World) -> None:
    far = 3_000_000_000
    for offset in (0, far, far + 1):
        batch = build_batch([bytes(300)], timestamp=1, base_offset=offset, leader_epoch=0)
        world.leaders[0].log.append_replicated(memoryview(batch), 1)
    world.leaders[0].machine.end_offset = world.leaders[0].log.end_offset
    world.lead(epoch=1)
    world.run(1.0)
    assert world.followers[0].log.end_offset == far + 2
    world.assert_equal()


@pytest.fixture
def interrupted(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose follower has taken the first of very many batches."""
    for number in range(200):
        world.leaders[0].log.append(batch := build_batch([b"%d" % number], timestamp=1), read_header(batch), 0, 1)
    follower = world.followers[0]
    follower.log.reconfigure(TopicConfig(internal_segment_bytes=200))
    world.lead(epoch=1)
    with monkeypatch.context() as patched:
        patched.setattr(slices, "AT_ONCE_SECONDS", -1.0)
        patched.setattr(slices, "MOST_STEPS", 1)
        patched.setattr("ottla.log.replicated.ROLLED_AT_ONCE", 3)
        assert world.system.run_until(world.loop, lambda: follower.log.end_offset > 0, 5.0)
    assert 0 < follower.log.end_offset < 20
    return world


def test_very_many_batches_are_copied_in_steps(interrupted: World) -> None:
    assert interrupted.leaders[0].machine.followers[FOLLOWER].end_offset == 0
    interrupted.run(1.0)
    interrupted.assert_equal()
    assert interrupted.followers[0].machine.high_watermark == 200


def test_who_leads_between_two_steps_copies_no_more(interrupted: World) -> None:
    follower = interrupted.followers[0]
    end_offset = follower.log.end_offset
    lead_instead(interrupted, epoch=3)
    interrupted.run(1.0)
    assert follower.log.end_offset == end_offset
    follower.log.append(batch := build_batch([b"new"], timestamp=1), read_header(batch), 3, 1)
    assert served_values(follower.log) == [b"%d" % number for number in range(end_offset)] + [b"new"]


def test_who_follows_another_epoch_between_two_steps_begins_anew(interrupted: World) -> None:
    """The leader was away meanwhile, and has lost most of what it gave."""
    interrupted.leaders[0].truncate(3, 1)
    interrupted.lead(epoch=2, partition_epoch=1)
    interrupted.produce(0, b"of epoch 2")
    interrupted.run(3.0)
    assert served_values(interrupted.followers[0].log) == [b"0", b"1", b"2", b"of epoch 2"]
    interrupted.assert_equal()


def test_a_full_disk_between_two_steps_is_tried_again(interrupted: World) -> None:
    files = interrupted.follower_files
    files.arm(files.operation_count + 1, Effect.FAIL, errno.ENOSPC)
    interrupted.run(3.0)
    interrupted.assert_equal()


def test_a_log_that_fails_between_two_steps_is_copied_no_more(interrupted: World) -> None:
    follower = interrupted.followers[0]
    end_offset, follower.log.failure = follower.log.end_offset, "the disk failed"
    interrupted.run(3.0)
    assert follower.log.end_offset == follower.machine.end_offset == end_offset
    assert not interrupted.fetcher.is_fetching(follower)


def test_an_answer_that_ends_within_a_batch_does_not_keep_its_follower_waiting() -> None:
    world = World(settings=FetchSettings(partition_max_bytes=500))
    for number in range(50):
        world.leaders[0].log.append(batch := build_batch([b"%d" % number], timestamp=1), read_header(batch), 0, 1)
    world.lead(epoch=1)
    world.run(0.1)
    world.assert_equal()


def test_quiet_partitions_are_not_named_again() -> None:
    world = World(partitions=50)
    world.lead()
    world.run(0.1)
    assert len(world.requests[0].topics[0].partitions) == 50
    before = len(world.requests)
    told = world.produce(7, b"a")
    world.run(0.1)
    assert told == [None]
    named = [
        each.partition for request in world.requests[before:] for topic in request.topics for each in topic.partitions
    ]
    assert named == [7]
    world.assert_equal()


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_large_answer_is_taken_in_slices(monkeypatch: pytest.MonkeyPatch, is_cut: bool) -> None:
    """The first record of a partition makes its folder, and to cut a log is to wait for the disk."""
    world = World(partitions=20)
    world.lead()
    world.run(0.1)
    for leader, follower in zip(world.leaders, world.followers, strict=True):
        if is_cut:
            follower.log.append(batch := build_batch([b"b", b"c"], timestamp=1), read_header(batch), 0, 1)
            follower.machine.copied(follower.log.end_offset, 0)
        leader.log.append(batch := build_batch([b"a"], timestamp=1), read_header(batch), 1, 1)
        leader.machine.appended(leader.log.end_offset)
    monkeypatch.setattr(slices, "AT_ONCE_SECONDS", -1.0)
    monkeypatch.setattr(slices, "MOST_STEPS", 1)
    rounds: list[int] = []
    run_once = world.loop.run_once

    def counting() -> None:
        before = [follower.log.end_offset for follower in world.followers]
        run_once()
        rounds.append(sum(was != now.log.end_offset for was, now in zip(before, world.followers, strict=True)))

    monkeypatch.setattr(world.loop, "run_once", counting)
    world.lead(epoch=2, partition_epoch=1)
    world.run(2.0)
    assert max(rounds) <= 2  # one at once, and one in a slice
    world.assert_equal()


def test_the_long_poll_answers_when_nothing_comes(world: World) -> None:
    world.lead()
    world.run(5.0)
    assert 8 <= len(world.requests) <= 14


@pytest.mark.parametrize("damage", [b"\x7f\xff\xff\xff", b"\x00\x00\x02\x00", b"\x00\x00\x00\x00", None])
def test_what_has_rotted_at_the_leader_is_not_copied_nor_passed_over_and_the_operator_is_told(
    world: World, caplog: pytest.LogCaptureFixture, damage: bytes | None
) -> None:
    """`damage`: in the place of a batch's length; None: one of its bytes."""
    log = world.leaders[0].log
    for number in range(60):
        append(log, [b"%d" % number + bytes(100)])
    world.leaders[0].machine.end_offset = log.end_offset
    assert len(log.segments) > 2
    segment = log.segments[1]
    positions = [position for position, _ in segment.batches()]
    position = positions[3] + (LENGTH_AT if damage is not None else 80)
    sound = segment.read_batch(position, 4)
    segment.file.write_over(position, damage or b"rot!")
    segment.close()
    bad_offset = segment.base_offset + 3
    world.lead(epoch=1)
    world.run(20.0)
    assert world.followers[0].log.end_offset <= bad_offset
    assert 1 <= caplog.text.count("a partition cannot be copied") <= 6
    with pytest.raises((LogError, CorruptBatch)):
        served_offsets(log, bad_offset)
    with suppress(LogError, CorruptBatch):
        assert served_offsets(log, bad_offset + 1) == list(range(bad_offset + 1, 60))
    segment.file.write_over(position, sound)
    world.run(5.0)
    assert served_offsets(world.followers[0].log) == list(range(60))


@pytest.mark.parametrize(
    ("in_sync", "eligible", "least"), [([LEADER], [], 10), ([LEADER], [FOLLOWER], 60), (REPLICAS, [], 60)]
)
def test_who_may_be_elected_keeps_what_lies_behind_rotten_records(
    world: World, in_sync: list[int], eligible: list[int], least: int
) -> None:
    world.lead()
    for number in range(60):
        world.produce(0, b"%d" % number + bytes(100))
        world.run(0.1)
    log = world.followers[0].log
    assert log.end_offset == 60
    log.hole = Hole(10, 60)
    world.is_cut = True
    world.lead(epoch=1, partition_epoch=1, in_sync=in_sync, eligible=eligible)
    world.run(1.0)
    assert log.end_offset == least
    world.is_cut = False
    world.run(3.0)
    assert served_offsets(log) == list(range(60))


def test_a_lost_connection_begins_a_new_session_and_loses_nothing(world: World) -> None:
    world.lead()
    world.run(0.1)
    assert len(world.sessions) == 1
    world.cut()
    assert len(world.sessions) == 0
    told = world.produce(0, b"a")
    world.run(3.0)
    assert told == []
    world.is_cut = False
    world.run(2.0)
    assert told == [None]
    world.assert_equal()
    assert len(world.sessions) == 1


def test_the_session_of_another_is_left_alone(world: World) -> None:
    world.lead()
    world.run(0.1)
    state = ReplicaState(replica_id=3, replica_epoch=1)
    stranger = FetchRequest(replica_state=state, max_wait_ms=0, min_bytes=1, session_id=1, session_epoch=0, topics=[])
    context = SimpleNamespace(version=17, connection=Connection(), header=None)
    world.sessions.handle(stranger, cast("Any", context))
    assert len(world.sessions) == 2
    requests = len(world.requests)
    assert world.produce(0, b"a") == []
    world.run(0.1)
    assert all(request.session_epoch for request in world.requests[requests:])
    world.assert_equal()


def from_a_stranger(connection: Connection, world: World, session_id: int, epoch: int, *names: str) -> FetchResponse:
    """Somebody who says that it is a replica; the topic of each name has a hundred partitions that are not here."""
    asked = [FetchPartition(partition=100 + index, fetch_offset=0, partition_max_bytes=1) for index in range(100)]
    request = FetchRequest(
        replica_id=3,
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=name, partitions=asked) for name in names],
    )
    context = SimpleNamespace(version=12, connection=connection, header=None)
    response = world.sessions.handle(request, cast("Any", context))
    if isinstance(response, GeneratorType):
        response = slices.finished(response)
    assert isinstance(response, FetchResponse)
    return response


def test_nobody_goes_on_with_the_session_of_another(world: World) -> None:
    world.lead()
    world.run(0.1)
    answer = from_a_stranger(Connection(), world, 1, world.requests[-1].session_epoch + 1)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.produce(0, b"a") == []
    world.run(0.1)
    world.assert_equal()


def test_who_says_that_it_is_a_replica_has_one_session_and_it_does_not_grow_for_ever(world: World) -> None:
    stranger = Connection()
    for _ in range(3):
        session_id = from_a_stranger(stranger, world, 0, 0, "a").session_id
        assert session_id
        assert len(world.sessions) == 1
    names = [f"a{number}" for number in range(11)]
    for epoch in range(1, 4):
        answer = from_a_stranger(stranger, world, session_id, epoch, names[epoch])
        assert answer.session_id == session_id, "what it was told of is not remembered"
        assert len(answer.responses[0].partitions) == 100
    assert from_a_stranger(stranger, world, session_id, 4, *names).session_id == 0
    assert len(world.sessions) == 0


def test_a_replica_that_names_very_many_partitions_keeps_nobody_waiting(world: World) -> None:
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(5000)]
    topics = [FetchTopic(topic="a", partitions=asked)]
    request = FetchRequest(replica_id=3, max_wait_ms=0, min_bytes=1, session_id=0, session_epoch=0, topics=topics)
    context = SimpleNamespace(version=12, connection=Connection(), header=None)
    steps = world.sessions.handle(request, cast("Any", context))
    assert isinstance(steps, GeneratorType)
    assert len(list(steps)) >= 5000 / AT_ONCE


def test_a_name_that_no_topic_can_have_is_not_remembered(world: World) -> None:
    assert from_a_stranger(Connection(), world, 0, 0, "a" * 249).session_id
    assert not from_a_stranger(Connection(), world, 0, 0, "a" * 250).session_id


def test_a_mistake_with_one_partition_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(partitions=2)
    world.lead()
    world.run(0.1)

    def copy(*_arguments: object) -> None:
        raise KeyError("a mistake")

    with monkeypatch.context() as patched:
        patched.setattr(world.followers[0], "copy", copy)
        told = [world.produce(0, b"a"), world.produce(1, b"b")]
        world.run(0.2)
        assert told == [[], [None]]
    assert "the copying of a partition failed" in caplog.text
    world.run(3.0)
    assert told == [[None], [None]]


def test_a_log_that_went_another_way_is_cut(world: World) -> None:
    world.lead()
    world.produce(0, b"a")
    world.run(0.1)
    follower = world.followers[0]
    follower.log.append(batch := build_batch([b"of nobody"] * 2, timestamp=1), read_header(batch), 1, 1)
    follower.machine.copied(follower.log.end_offset, 0)
    world.lead(epoch=2, partition_epoch=1)
    told = world.produce(0, b"b")
    world.run(0.5)
    assert told == [None]
    assert served_values(follower.log) == [b"a", b"b"]
    world.assert_equal()


WAITS_FOR_DISK = ("sync", "sync folder", "remove")


class Jobs:
    """The jobs of a world's follower, held until they are to be run one by one, and what they did on its disk."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world = world
        self._held: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []
        self.done: set[int] = set()  # operations
        monkeypatch.setattr(world.system, "run_blocking", lambda job, finished: self._held.append((job, finished)))

    def run_one(self) -> None:
        [(job, finished)] = self._held
        self._held = []
        files = self._world.follower_files
        before = files.operation_count
        job()
        self.done |= set(range(before + 1, files.operation_count + 1))
        finished(None)
        self._world.run(0.1)

    def waited_elsewhere(self, since: int) -> list[str]:
        """What waited for the disk, but not in a job. To remove a snapshot, which is small, is not to wait."""
        return [
            f"{each.kind} {each.path}"
            for each in self._world.follower_files.trace
            if each.number > since and each.number not in self.done
            if each.kind in WAITS_FOR_DISK and not each.path.endswith(SNAPSHOT)
        ]


def diverged(world: World, config: TopicConfig = SMALL) -> Partition:
    """A follower with a record of its leader, and segments of nobody behind it."""
    world.followers[0].log.reconfigure(config)
    world.lead()
    world.produce(0, b"a")
    world.run(0.1)
    follower = world.followers[0]
    for _ in range(20):
        follower.log.append(batch := build_batch([bytes(1000)], timestamp=1), read_header(batch), 1, 1)
    follower.machine.copied(follower.log.end_offset, 0)
    assert len(follower.log.segments) > 3
    follower.log.flush(1)
    return follower


@pytest.mark.parametrize("is_restarted", [False, True], ids=["cut", "begun anew"])
def test_who_cuts_a_log_waits_for_the_disk_on_another_thread(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_restarted: bool
) -> None:
    follower = diverged(world)
    if is_restarted:
        for _ in range(30):
            world.produce(0, b"b", acks=1)
        world.leaders[0].apply(
            leader_id=LEADER, leader_epoch=1, partition_epoch=1, replicas=[LEADER], in_sync=[LEADER], now_ms=0
        )
        world.leaders[0].delete_records(25, 0)
    jobs = Jobs(world, monkeypatch)
    since = world.follower_files.operation_count
    world.lead(epoch=2, partition_epoch=2)
    world.run(1.0)
    assert follower.log.end_offset == 21  # nothing is cut before the disk knows of it
    for end_offset in (1, 25) if is_restarted else (1,):
        jobs.run_one()
        assert follower.log.end_offset == end_offset
        jobs.run_one()
    world.produce(0, b"c")
    world.run(0.5)
    world.assert_equal()
    assert jobs.waited_elsewhere(since) == []
    assert follower.log.segments.due_removals(world.system.clock_ms())


def test_who_leads_meanwhile_cuts_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = diverged(world)
    jobs = Jobs(world, monkeypatch)
    world.lead(epoch=2, partition_epoch=1)
    world.run(1.0)
    lead_instead(world, epoch=3)
    jobs.run_one()
    assert follower.log.end_offset == 21


def test_who_leads_in_the_middle_of_a_cut_writes_nothing_before_it_is_on_the_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = diverged(world)
    jobs = Jobs(world, monkeypatch)
    world.lead(epoch=2, partition_epoch=1)
    world.run(1.0)
    jobs.run_one()
    lead_instead(world, epoch=3)
    follower.log.append(batch := build_batch([b"new"], timestamp=1), read_header(batch), 3, 1)
    path = follower.log.active.path(LOG)
    done = [each.kind for each in world.follower_files.trace if each.path in (path, follower.log.folder)]
    assert done[-4:] == ["truncate", "sync", "sync folder", "write"]
    jobs.run_one()
    assert served_values(follower.log) == [b"a", b"new"]
    assert follower.log.failure is None


def lead_instead(world: World, epoch: int) -> None:
    """The follower is the leader now."""
    follower = world.followers[0]
    follower.apply(
        leader_id=FOLLOWER,
        leader_epoch=epoch,
        partition_epoch=epoch,
        replicas=REPLICAS,
        in_sync=[FOLLOWER],
        now_ms=0,
    )
    world.fetcher.leave(follower)


def test_one_that_has_cut_its_log_is_told_the_high_watermark_though_nothing_is_written(world: World) -> None:
    """It had a record that is committed, and did not know that: a killed one forgets its high watermark."""
    world.lead()
    world.produce(0, b"a")
    world.run(0.1)
    follower = world.followers[0]
    follower.log.append(batch := build_batch([b"of nobody"] * 2, timestamp=1), read_header(batch), 1, 1)
    follower.machine.copied(follower.log.end_offset, 0)
    follower.machine.high_watermark = 0
    world.lead(epoch=2, partition_epoch=1)
    world.run(1.0)
    world.assert_equal()


def test_a_follower_that_is_before_the_leaders_start_begins_anew(world: World) -> None:
    leader = world.leaders[0]
    leader.apply(leader_id=LEADER, leader_epoch=0, partition_epoch=0, replicas=[LEADER], in_sync=[LEADER], now_ms=0)
    for _ in range(5):
        world.produce(0, b"a")
    world.run(0.1)
    leader.delete_records(3, 0)
    world.lead(epoch=1, partition_epoch=1, in_sync=[LEADER])
    world.run(0.5)
    assert world.followers[0].log.log_start_offset == 3
    assert served_values(world.followers[0].log) == [b"a", b"a"]


def test_a_log_that_starts_within_a_batch_is_copied(world: World) -> None:
    leader = world.leaders[0]
    leader.apply(leader_id=LEADER, leader_epoch=0, partition_epoch=0, replicas=[LEADER], in_sync=[LEADER], now_ms=0)
    world.produce(0, b"a", b"b", b"c", b"d")
    world.produce(0, b"e")
    world.run(0.1)
    leader.delete_records(2, 0)
    world.lead(epoch=1, partition_epoch=1, in_sync=[LEADER])
    world.run(0.5)
    world.produce(0, b"f", acks=1)
    world.run(0.5)
    follower = world.followers[0].log
    assert (follower.log_start_offset, follower.high_watermark, follower.end_offset) == (2, 6, 6)
    world.assert_equal()


def test_the_start_of_the_log_follows_the_leaders(world: World) -> None:
    world.lead()
    for _ in range(5):
        world.produce(0, b"a")
    world.run(0.1)
    world.leaders[0].delete_records(3, 0)
    world.produce(0, b"b")
    world.run(0.1)
    assert world.followers[0].log.log_start_offset == 3


def test_another_epoch_is_waited_for(world: World) -> None:
    world.lead()
    world.run(0.1)
    for partition in world.followers:
        partition.apply(
            leader_id=LEADER, leader_epoch=1, partition_epoch=1, replicas=REPLICAS, in_sync=REPLICAS, now_ms=0
        )
        world.fetcher.follow(partition)
    world.run(0.5)
    assert not world.fetcher.is_fetching(world.followers[0])
    requests = len(world.requests)
    world.lead(epoch=1, partition_epoch=1)
    told = world.produce(0, b"a")
    world.run(1.5)
    assert told == [None]
    assert requests < 12  # it backs off
    world.assert_equal()


def test_a_full_disk_of_the_follower_is_tried_again(world: World) -> None:
    world.follower_files.capacity_bytes = 200
    world.lead()
    told = [world.produce(0, b"a" * 150) for _ in range(2)]
    world.run(0.5)
    assert told[1] == []
    world.follower_files.capacity_bytes = None
    world.run(3.0)
    assert told == [[None], [None]]
    world.assert_equal()


def test_a_replica_of_another_assignment_is_refused(world: World) -> None:
    world.lead()
    world.leaders[0].apply(
        leader_id=LEADER, leader_epoch=0, partition_epoch=1, replicas=[LEADER, 3], in_sync=[LEADER], now_ms=0
    )
    world.run(0.2)
    world.produce(0, b"a", acks=1)
    world.run(0.2)
    assert served_values(world.followers[0].log) == []
    assert world.leaders[0].machine.high_watermark == 0 or 3 not in world.leaders[0].in_sync


def test_who_leads_no_more_tells_its_followers(world: World) -> None:
    world.lead()
    world.run(0.1)
    told = world.produce(0, b"a")
    world.is_cut = True  # nobody fetches what it has
    world.leaders[0].apply(
        leader_id=FOLLOWER, leader_epoch=1, partition_epoch=1, replicas=REPLICAS, in_sync=REPLICAS, now_ms=0
    )
    world.run(0.1)
    [failure] = told
    assert failure is not None
    assert failure.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_is_left_is_not_copied_any_more() -> None:
    world = World(partitions=2)
    world.lead()
    world.run(0.1)
    world.fetcher.leave(world.followers[1])
    world.produce(1, b"b")
    told = world.produce(0, b"a")
    world.run(0.1)
    assert told == [None]
    assert served_values(world.followers[1].log) == []
    world.fetcher.stop()
    requests = len(world.requests)
    world.run(2.0)
    assert len(world.requests) == requests


def test_a_throttled_leader_gives_to_those_that_are_not_in_sync_as_fast_as_it_may(world: World) -> None:
    for partition in (*world.leaders, *world.followers):
        partition.log.reconfigure(dataclasses.replace(SMALL, leader_replication_throttled_replicas=("*",)))
    world.settings.set_dynamic({}, {"leader.replication.throttled.rate": "1000"})
    world.lead(in_sync=[LEADER])
    for _ in range(100):
        world.produce(0, b"a" * 1000, acks=1)
    world.run(5.0)
    world.system.clock_ahead_ms -= 86_400_000
    before = world.followers[0].log.size_bytes
    world.run(15.0)
    copied = world.followers[0].log.size_bytes
    assert before < copied
    assert 8_000 < copied < 60_000
    world.settings.set_dynamic({}, {})
    world.run(2.0)
    world.assert_copied()


def test_a_throttled_follower_asks_as_fast_as_it_may() -> None:
    world = World(may_fetch_seconds=lambda partition: 0.0 if partition.log.end_offset < 5 else 3600.0)
    world.lead(in_sync=[LEADER])
    world.run(0.1)
    for _ in range(10):
        world.produce(0, b"a", acks=1)
        world.run(0.1)
    assert world.followers[0].log.end_offset == 5


def test_a_follower_tells_of_what_is_on_its_disk_where_that_is_asked_for() -> None:
    world = World(2, waits_for_disk=True)
    world.lead()
    world.run(0.1)
    told = world.produce(0, b"a", b"b")
    world.run(0.6)
    world.sync(world.leaders[0])
    assert world.followers[0].log.end_offset == 2, "it is copied"
    assert (told, world.leaders[0].machine.high_watermark) == ([], 0), "and may be gone with the next loss of power"
    world.sync(world.followers[0])
    assert told == [None]
    assert [request.topics[0].partitions[0].fetch_offset for request in world.requests if request.topics] == [0, 2]
    world.follower_files.sync_folder("")  # the data folder itself was there before
    world.follower_files.crash(SYNCED_ONLY)
    kept = open_log(world.follower_files, world.followers[0].log.folder, TopicConfig(), now_ms=1)
    assert served_values(kept) == [b"a", b"b"]


def test_what_was_written_before_a_follower_begins_is_synced_before_it_is_told() -> None:
    world = World(waits_for_disk=True)
    for partition in (world.leaders[0], world.followers[0]):
        partition.log.append(batch := build_batch([b"a"], timestamp=1), read_header(batch), 0, 1)
        partition.machine.end_offset = 1
    world.lead()
    world.run(1.0)
    assert world.requests == []
    world.sync(world.followers[0])
    assert world.requests[0].topics[0].partitions[0].fetch_offset == 1


def test_a_few_records_may_be_told_before_they_are_on_the_disk_if_the_topic_says_so() -> None:
    world = World()
    for partition in (world.leaders[0], world.followers[0]):
        partition.log.reconfigure(TopicConfig(flush_messages=3))
    world.lead()
    told = world.produce(0, b"a", b"b")
    world.run(0.6)
    assert (told, world.shell.to_sync) == ([None], [])
    told = world.produce(0, b"c")
    world.run(0.6)
    world.sync(world.leaders[0])
    assert told == []
    world.sync(world.followers[0])
    assert told == [None]


def test_a_follower_whose_disk_fails_is_waited_for_no_more_by_the_others() -> None:
    world = World(2, waits_for_disk=True)
    world.lead()
    world.run(0.1)
    told = [*map(world.produce, (0, 1), (b"a", b"b"))]
    world.run(0.1)
    files = world.follower_files
    for number in range(100):
        files.arm(files.operation_count + number, Effect.FAIL)
    world.sync(*world.leaders, *world.followers)
    world.run(1.0)
    assert told == [[], [None]]
    assert not world.fetcher.is_fetching(world.followers[0])
    assert world.fetcher.is_fetching(world.followers[1])


def test_a_follower_that_goes_into_another_epoch_waits_for_its_disk_anew() -> None:
    world = World(waits_for_disk=True)
    world.lead()
    world.run(0.1)
    world.produce(0, b"a")
    world.run(0.1)
    assert world.shell.to_sync.count(world.followers[0]) == 1
    world.lead(epoch=1, partition_epoch=1)
    world.run(0.1)
    told = world.produce(0, b"b")
    world.run(0.1)
    for _ in range(2):
        world.sync(world.followers[0])
    world.sync(world.leaders[0])
    assert told == [None]
    world.assert_equal()
