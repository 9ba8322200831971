"""Has the controller decide who is in sync: proposals of many partitions go in one request, one request at a time.

A proposal is repeated until the controller has answered: until then it may have been decided on. What was decided comes
with the other changes of the cluster, and the answer alone changes nothing: it could be here before the settings under
which it was decided. A leader that commits by an older `min.insync.replicas` than the one that told the controller who
is eligible would lose what it acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from ottla.broker.events import Events
from ottla.broker.loop.loop import Loop, Timer
from ottla.broker.network.peer import PeerFailure
from ottla.replica.partition import Partition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionAnswer,
    PartitionData,
    TopicData,
)
from ottla.wire.schema import Request, Response

events = Events("ottla.broker")

VERSION = 3
MOST_PROPOSALS = 1000  # in one request
RETRY_SECONDS = 0.05
MOST_RETRY_SECONDS = 1.0

# The controller says that it will never decide for this proposal. After a change that it knows and this broker does
# not, the proposal is over when that change comes.
REFUSALS = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST, ErrorCode.OPERATION_NOT_ATTEMPTED})
CHANGED_SINCE = frozenset(
    {
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class AsksController(Protocol):
    """This broker in its cluster, as far as replication needs it."""

    @property
    def broker_epoch(self) -> int: ...

    def ask_controller(
        self, request: Request, version: int, answered: Callable[[Response | PeerFailure], None]
    ) -> None: ...


class Proposal(NamedTuple):
    partition: Partition
    in_sync: dict[int, int]
    """By broker, the epoch of its registration when it had what it needs; -1: not known.

    A broker that was started anew since may lack what it had, and must not be proposed for what it has no more.
    """
    leader_epoch: int
    partition_epoch: int

    @property
    def is_open(self) -> bool:
        """Whether nothing was decided on the partition since."""
        partition = self.partition
        return partition.is_leader and partition.partition_epoch == self.partition_epoch


class InSyncProposals:
    def __init__(self, loop: Loop, node_id: int, membership: Callable[[], AsksController]) -> None:
        self._loop = loop
        self._node_id = node_id
        self._membership = membership
        self._waiting: dict[Partition, Proposal] = {}
        self._asked: list[Proposal] = []
        self._is_asking = False
        self._timer: Timer | None = None
        self._failures = 0
        self._is_called = False
        self._is_stopped = False

    def propose(self, partition: Partition, in_sync: frozenset[int]) -> None:
        followers, own_epoch = partition.machine.followers, self._membership().broker_epoch
        epochs = {each: followers[each].broker_epoch if each in followers else own_epoch for each in sorted(in_sync)}
        self._waiting[partition] = Proposal(partition, epochs, partition.leader_epoch, partition.partition_epoch)
        self._call()

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _call(self) -> None:
        if self._waiting and not (self._is_called or self._is_asking or self._is_stopped) and self._timer is None:
            self._is_called = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        self._is_called = False
        if self._is_stopped:
            return
        self._waiting = {partition: each for partition, each in self._waiting.items() if each.is_open}
        self._asked = list(self._waiting.values())[:MOST_PROPOSALS]
        if not self._asked:
            return
        for proposal in self._asked:
            del self._waiting[proposal.partition]
        self._is_asking = True
        membership = self._membership()
        request = _request(self._node_id, membership.broker_epoch, self._asked)
        membership.ask_controller(request, VERSION, self._answered)

    def _answered(self, answer: Response | PeerFailure) -> None:
        self._is_asking = False
        asked, self._asked = self._asked, []
        if self._is_stopped:
            return
        if isinstance(answer, PeerFailure):
            self._again(asked, str(answer))
            return
        response = cast("AlterPartitionResponse", answer)
        if response.error_code:
            self._again(asked, ErrorCode(response.error_code).name)
            return
        self._failures = 0
        answers = {
            (topic.topic_id, each.partition_index): each for topic in response.topics for each in topic.partitions
        }
        later: list[Proposal] = []
        for proposal in asked:
            partition = proposal.partition
            told = answers.get((partition.topic_id, partition.index))
            if told is None or not self._decided(proposal, told):
                later.append(proposal)
        if later:
            self._again(later, "the controller could not decide")
        self._call()

    def _decided(self, proposal: Proposal, answer: PartitionAnswer) -> bool:
        """Take what the controller says of one partition; whether that is the end of the proposal."""
        partition, code = proposal.partition, ErrorCode(answer.error_code)
        if not proposal.is_open:
            return True
        if code is ErrorCode.NONE:
            if answer.partition_epoch == proposal.partition_epoch:
                partition.withdraw_proposal()  # nothing changes
            return True
        if code in REFUSALS:
            events.debug("an in-sync set was refused", partition=partition.name, reason=code.name)
            partition.withdraw_proposal()
            return True
        return code in CHANGED_SINCE

    def _again(self, proposals: list[Proposal], reason: str) -> None:
        for proposal in proposals:
            self._waiting.setdefault(proposal.partition, proposal)
        self._failures += 1
        if self._failures == 1:
            events.debug("the controller does not decide on in-sync sets", reason=reason)
        seconds = min(RETRY_SECONDS * 2.0 ** min(self._failures - 1, 10), MOST_RETRY_SECONDS)
        self._timer = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self._call()


def _request(node_id: int, broker_epoch: int, proposals: list[Proposal]) -> AlterPartitionRequest:
    topics: dict[bytes, TopicData] = {}
    for proposal in proposals:
        partition = proposal.partition
        states = [BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in proposal.in_sync.items()]
        data = PartitionData(
            partition_index=partition.index,
            leader_epoch=proposal.leader_epoch,
            new_isr_with_epochs=states,
            partition_epoch=proposal.partition_epoch,
        )
        topic = topics.setdefault(partition.topic_id, TopicData(topic_id=partition.topic_id, partitions=[]))
        topic.partitions.append(data)
    return AlterPartitionRequest(broker_id=node_id, broker_epoch=broker_epoch, topics=list(topics.values()))
