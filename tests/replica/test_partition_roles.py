"""A partition is what it is told to be: those who wait are told when it leads no more, or has too few replicas."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest

from ottla.log.errors import LogError, OutOfOrderSequence, StorageFailed
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.replica.errors import AppendRefused, NotLeader
from ottla.replica.machine import ALL, UNLIMITED, Role
from ottla.replica.partition import Partition
from ottla.replica.readers import Bound
from ottla.wire.errors import ErrorCode
from tests.log.writing import new_log
from tests.replica.shell import ManualShell

HERE, OTHER, THIRD = 1, 2, 3
REPLICAS = [HERE, OTHER, THIRD]
LEADER_ACK = 1


class Told:
    def __init__(self) -> None:
        self.by_token: dict[str, int] = {}
        self.advances = 0

    def committed(self, token: str, failure: LogError | None) -> None:
        assert token not in self.by_token
        self.by_token[token] = 0 if failure is None else failure.code

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        self.advances += 1


def make(*, waits_for_disk: bool = False) -> tuple[Partition, ManualShell]:
    shell = ManualShell(waits_for_disk=waits_for_disk)
    return Partition("t", 0, bytes(16), new_log(), HERE, shell), shell


def apply(
    partition: Partition,
    leader_id: int,
    epoch: int,
    partition_epoch: int,
    in_sync: list[int] = REPLICAS,
    replicas: list[int] = REPLICAS,
) -> None:
    partition.apply(
        leader_id=leader_id,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        replicas=replicas,
        in_sync=in_sync,
        now_ms=0,
    )


def produce(partition: Partition, told: Told, token: str, acks: int = ALL, due: float = 1.0) -> None:
    placed = partition.writer.produce(build_batch([b"v"], timestamp=0), version=12, now_ms=0, acks=acks)
    partition.wait(placed[1], acks, told, token, due)


def test_a_new_partition_neither_leads_nor_follows() -> None:
    partition, _ = make()
    with pytest.raises(AppendRefused) as refusal:
        produce(partition, Told(), "a")
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(NotLeader):
        partition.check_leader()
    with pytest.raises(NotLeader):
        partition.delete_records(0, 0)


def test_what_is_applied_again_or_late_changes_nothing() -> None:
    partition, shell = make()
    apply(partition, HERE, 4, 7)
    apply(partition, HERE, 4, 7)
    apply(partition, OTHER, 3, 6)
    assert shell.roles == [(Role.LEADER, HERE, 4)]
    assert partition.is_leader
    assert (partition.leader_id, partition.leader_epoch, partition.partition_epoch) == (HERE, 4, 7)


def test_roles_follow_what_is_applied() -> None:
    partition, shell = make()
    apply(partition, OTHER, 1, 1)
    apply(partition, HERE, 2, 2)
    apply(partition, -1, 3, 3)
    apply(partition, HERE, 4, 4)
    apply(partition, OTHER, 5, 5)
    apply(partition, OTHER, 6, 6, [OTHER, THIRD], [OTHER, THIRD])
    assert shell.roles == [
        (Role.FOLLOWER, OTHER, 1),
        (Role.LEADER, HERE, 2),
        (Role.OFFLINE, -1, 3),
        (Role.LEADER, HERE, 4),
        (Role.FOLLOWER, OTHER, 5),
        (Role.OFFLINE, OTHER, 6),
    ]
    assert partition.replicas == [OTHER, THIRD]


def test_who_waits_is_refused_when_another_leads_and_what_was_gathered_is_not_written() -> None:
    partition, shell = make()
    told = Told()
    apply(partition, HERE, 0, 0)
    produce(partition, told, "written")
    shell.end_round()
    partition.wait_for_records(told)
    produce(partition, told, "gathered")
    produce(partition, told, "gathered, acks 1", LEADER_ACK)
    apply(partition, OTHER, 1, 1)
    assert not told.by_token  # at the end of the round, not before
    shell.end_round()
    assert set(told.by_token.values()) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert set(told.by_token) == {"written", "gathered", "gathered, acks 1"}
    assert told.advances == 1
    assert partition.log.end_offset == 1


def test_acks_1_waits_for_the_leader_and_acks_all_for_those_in_sync() -> None:
    partition, shell = make()
    told = Told()
    apply(partition, HERE, 0, 0)
    produce(partition, told, "one", LEADER_ACK)
    produce(partition, told, "all")
    shell.end_round()
    assert told.by_token == {"one": 0}
    assert shell.has_deadlines
    partition.follower_at(OTHER, 0, 2, 0)
    shell.end_round()
    assert told.by_token == {"one": 0}
    partition.follower_at(THIRD, 0, 2, 0)
    shell.end_round()
    assert told.by_token == {"one": 0, "all": 0}
    assert partition.log.high_watermark == 2


def test_readers_are_told_when_the_high_watermark_moves_and_replicas_when_the_log_does() -> None:
    partition, shell = make()
    apply(partition, HERE, 0, 0, [HERE, OTHER])
    consumer, replica = Told(), Told()
    partition.wait_for_records(consumer)
    partition.wait_for_records(replica, Bound.LOG_END)
    produce(partition, Told(), "a")
    shell.end_round()
    assert (consumer.advances, replica.advances) == (0, 1)
    partition.follower_at(OTHER, 0, 1, 0)
    shell.end_round()
    assert (consumer.advances, replica.advances) == (1, 2)  # the replica learns of the high watermark


def test_another_setting_of_the_topic_counts_at_once() -> None:
    """Also where nothing can be written before it does."""
    partition, shell = make()
    apply(partition, HERE, 0, 0, [HERE])
    partition.reconfigure(TopicConfig(min_insync_replicas=2))
    with pytest.raises(AppendRefused):
        produce(partition, Told(), "a")
    consumer = Told()
    partition.wait_for_records(consumer)
    produce(partition, Told(), "b", LEADER_ACK)
    shell.end_round()
    assert consumer.advances == 0
    partition.reconfigure(TopicConfig(min_insync_replicas=1))
    shell.end_round()
    assert consumer.advances == 1
    produce(partition, Told(), "c")


def test_readers_wait_for_the_disk_whoever_wrote() -> None:
    """Also for what nobody asked to be acknowledged."""
    partition, shell = make(waits_for_disk=True)
    apply(partition, HERE, 1, 1, [HERE], [HERE])
    reader = Told()
    partition.wait_for_records(reader)
    partition.writer.produce(build_batch([b"v"], timestamp=0), version=12, now_ms=0, acks=0)
    shell.end_round()
    assert (reader.advances, partition.log.high_watermark, shell.to_sync) == (0, 0, [partition])
    partition.synced(StorageFailed("no free descriptor"))
    shell.end_round()
    assert (shell.to_sync, len(shell.timed)) == ([partition], 1)  # tried again, but not at once
    partition.log.flusher.flush(0)
    partition.synced(None)
    shell.end_round()
    assert (reader.advances, partition.log.high_watermark) == (1, 1)


def test_a_leader_that_may_be_replaced_does_not_call_a_sequence_wrong() -> None:
    """What it lacks may have been written to the next leader."""
    partition, shell = make()
    apply(partition, HERE, 1, 1)
    batch = partial(build_batch, [b"v"], timestamp=0, producer_id=7, producer_epoch=0)
    partition.writer.produce(batch(base_sequence=0), version=12, now_ms=0, acks=LEADER_ACK)
    for is_cut_off, code in (
        (False, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (True, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        shell.is_cut_off = is_cut_off
        with pytest.raises(LogError) as refusal:
            partition.writer.produce(batch(base_sequence=5), version=12, now_ms=0, acks=LEADER_ACK)
        assert refusal.value.code == code
    apply(partition, HERE, 2, 2, [HERE], [HERE])  # nobody else has it
    with pytest.raises(OutOfOrderSequence):
        partition.writer.produce(batch(base_sequence=5), version=12, now_ms=0, acks=LEADER_ACK)


def test_too_few_in_sync_before_and_after_an_append() -> None:
    partition, shell = make()
    partition.machine.durability(UNLIMITED, 2)
    told = Told()
    apply(partition, HERE, 0, 0, [HERE, OTHER])
    produce(partition, told, "a")
    shell.end_round()
    apply(partition, HERE, 0, 1, [HERE])
    shell.end_round()
    assert told.by_token == {"a": ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
    with pytest.raises(AppendRefused) as refusal:
        produce(partition, told, "b")
    assert refusal.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    produce(partition, told, "c", LEADER_ACK)
    shell.end_round()
    assert told.by_token["c"] == 0
    assert partition.log.high_watermark == 0


def test_replicas_that_take_too_long_end_the_wait() -> None:
    partition, shell = make()
    told = Told()
    apply(partition, HERE, 0, 0)
    produce(partition, told, "late", due=1.0)
    produce(partition, told, "later", due=2.0)
    shell.end_round()
    assert partition.expire(0.5)
    assert partition.expire(1.5)
    shell.end_round()
    assert told.by_token == {"late": ErrorCode.REQUEST_TIMED_OUT}
    for replica in (OTHER, THIRD):
        partition.follower_at(replica, 0, 2, 0)
    shell.end_round()
    assert told.by_token["later"] == 0
    assert not partition.expire(3.0)


def test_batches_that_were_gathered_before_an_epoch_are_of_the_one_before() -> None:
    partition, shell = make()
    told = Told()
    apply(partition, HERE, 4, 0, [HERE], [HERE])
    produce(partition, told, "a")
    apply(partition, HERE, 5, 1, [HERE], [HERE])
    shell.end_round()
    read = partition.read(0, 1000, committed_only=False)
    assert read.records is not None
    assert read_header(read.records.read()).leader_epoch == 4
    assert told.by_token == {"a": 0}


def test_replicas_may_change_within_an_epoch() -> None:
    partition, shell = make()
    apply(partition, HERE, 0, 0, [HERE, OTHER], [HERE, OTHER])
    produce(partition, Told(), "a")
    shell.end_round()
    partition.follower_at(OTHER, 0, 1, 0)
    apply(partition, HERE, 0, 1, [HERE, OTHER], REPLICAS)
    assert partition.machine.followers[OTHER].end_offset == 1
    partition.follower_at(THIRD, 0, 1, 0)
    assert shell.proposed == [frozenset(REPLICAS)]


def test_what_comes_from_before_a_restart_of_a_follower_tells_nothing() -> None:
    partition, shell = make()
    apply(partition, HERE, 0, 0, [HERE, OTHER], [HERE, OTHER])
    produce(partition, Told(), "a")
    shell.end_round()
    assert partition.follower_at(OTHER, 0, 0, 0, broker_epoch=8) is None
    assert partition.follower_at(OTHER, 0, 1, 0, broker_epoch=7) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.high_watermark == 0


def test_a_partition_is_freed_without_the_collector() -> None:
    """Which never looks again at what has stayed for a while: deleted topics would stay for ever."""
    partition, shell = make()
    apply(partition, HERE, 0, 0)
    produce(partition, Told(), "a")
    shell.end_round()
    remembered, log = weakref.ref(partition), weakref.ref(partition.log)
    gc.disable()
    try:
        del partition, shell
        assert remembered() is None
        assert log() is None
    finally:
        gc.enable()
