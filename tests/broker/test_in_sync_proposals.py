"""What leaders ask of the controller when followers catch up or fall behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.loop.loop import Loop
from ottla.broker.network.peer import PeerLost
from ottla.broker.replication.in_sync import InSyncProposals
from ottla.replica.partition import Partition
from ottla.testing.files import SimulatedFiles
from ottla.testing.simulated_system import SimulatedSystem
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionAnswer,
    TopicAnswer,
)
from ottla.wire.schema import Request
from tests.log.writing import append, new_log
from tests.replica.shell import ManualShell

LEADER, FOLLOWER = 1, 2
BEFORE, AFTER = 7, 8  # epochs of the follower's registration


class Membership:
    """Keeps what the controller is asked."""

    broker_epoch = 5

    def __init__(self) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self.answered: Callable[[Any], None] = lambda _answer: None

    def ask_controller(self, request: Request, _version: int, answered: Callable[[Any], None]) -> None:
        assert isinstance(request, AlterPartitionRequest)
        self.requests.append(request)
        self.answered = answered

    @property
    def epochs(self) -> dict[int, int]:
        """Of the brokers in the last request."""
        [topic] = self.requests[-1].topics
        return {each.broker_id: each.broker_epoch for each in topic.partitions[0].new_isr_with_epochs}


def test_a_follower_is_proposed_as_what_it_was_when_it_had_caught_up() -> None:
    """It is started anew and has lost records, while the controller cannot be reached."""
    system, shell, membership = SimulatedSystem(seed=1), ManualShell(), Membership()
    loop = Loop(system)
    append(log := new_log(SimulatedFiles()), [b"a", b"b"])
    partition = Partition("t", 0, bytes(16), log, LEADER, shell)
    partition.apply(
        leader_id=LEADER, leader_epoch=0, partition_epoch=0, replicas=[LEADER, FOLLOWER], in_sync=[LEADER], now_ms=0
    )
    proposals = InSyncProposals(loop, LEADER, lambda: membership)
    assert partition.follower_at(FOLLOWER, 0, 2, 0, BEFORE) is None
    [in_sync] = shell.proposed
    proposals.propose(partition, in_sync)
    system.advance(loop, 0.01)
    assert membership.epochs == {LEADER: 5, FOLLOWER: BEFORE}
    membership.answered(PeerLost("the controller is gone"))
    assert partition.follower_at(FOLLOWER, 0, 1, 0, AFTER) is None
    system.advance(loop, 1.0)
    assert len(membership.requests) == 2
    assert membership.epochs == {LEADER: 5, FOLLOWER: BEFORE}
    proposals.stop()


def test_a_decision_counts_when_it_comes_behind_the_settings_that_it_was_made_under() -> None:
    """The controller knows of `min.insync.replicas=2` and takes the other for eligible; the leader does not yet."""
    system, shell, membership = SimulatedSystem(seed=1), ManualShell(), Membership()
    loop = Loop(system)
    append(log := new_log(SimulatedFiles()), [b"a", b"b"])
    partition = Partition("t", 0, bytes(16), log, LEADER, shell)
    both = [LEADER, FOLLOWER]
    partition.apply(leader_id=LEADER, leader_epoch=0, partition_epoch=0, replicas=both, in_sync=both, now_ms=0)
    proposals = InSyncProposals(loop, LEADER, lambda: membership)
    partition.look_at_lag(1_000, 100)
    [in_sync] = shell.proposed
    assert in_sync == {LEADER}
    proposals.propose(partition, in_sync)
    system.advance(loop, 0.01)
    decided = PartitionAnswer(
        partition_index=0, error_code=0, leader_id=LEADER, leader_epoch=0, isr=[LEADER], partition_epoch=1
    )
    membership.answered(AlterPartitionResponse(topics=[TopicAnswer(topic_id=bytes(16), partitions=[decided])]))
    system.advance(loop, 1.0)
    assert partition.machine.high_watermark == 0
    partition.apply(leader_id=LEADER, leader_epoch=0, partition_epoch=1, replicas=both, in_sync=[LEADER], now_ms=0)
    assert partition.machine.high_watermark == 2  # the setting is 1 still
    assert len(membership.requests) == 1
    proposals.stop()
