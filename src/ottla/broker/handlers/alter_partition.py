"""AlterPartition (56), versions 2 to 3. The controller decides on the in-sync sets that leaders propose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps
from ottla.controller.changes import Change
from ottla.controller.cluster import Cluster
from ottla.controller.layout import PartitionState
from ottla.controller.leaders import Proposal, RulesOf, altered
from ottla.controller.reassignments import Moves
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionAnswer,
    PartitionData,
    TopicAnswer,
    TopicData,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_VERSION_WITH_EPOCHS = 3
States = dict[str, dict[int, PartitionState]]


def handle(broker: Broker, request: AlterPartitionRequest, context: Context) -> Steps:
    response = AlterPartitionResponse(topics=[])
    cluster, rules = broker.controller.cluster, broker.membership.rules

    def decide() -> list[Change]:
        known = cluster.brokers.get(request.broker_id)
        if known is None or not known.is_alive or known.epoch != request.broker_epoch:
            response.error_code = ErrorCode.STALE_BROKER_EPOCH
            return []
        decided: States = {}
        rules_of = rules()
        for topic in request.topics:
            response.topics.append(_decided(cluster, rules_of, request.broker_id, topic, context.version, decided))
        moves = Moves(cluster, rules_of)
        moves.states_changed(decided)
        return moves.changes(decided) if decided else []

    outcomes = yield from broker.controller.decided(decide)
    for _, refusal in outcomes:
        if refusal is not None:
            return AlterPartitionResponse(error_code=refusal.code, topics=[])
    for answered in response.topics:
        _tell(cluster, answered)
    return response


def _decided(
    cluster: Cluster, rules_of: RulesOf, node_id: int, topic: TopicData, version: int, decided: States
) -> TopicAnswer:
    name = cluster.names.get(topic.topic_id)
    answers = []
    for asked in topic.partitions:
        answer = PartitionAnswer(partition_index=asked.partition_index, error_code=0)
        answers.append(answer)
        state = None if name is None else cluster.state(name, asked.partition_index)
        if name is None or state is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        try:
            after = altered(cluster, state, rules_of(name, asked.partition_index), _proposal(node_id, asked, version))
        except ApiError as refusal:
            answer.error_code = refusal.code
        else:
            if after is not state:
                decided.setdefault(name, {})[asked.partition_index] = after
    return TopicAnswer(topic_id=topic.topic_id, partitions=answers)


def _proposal(node_id: int, asked: PartitionData, version: int) -> Proposal:
    if version < FIRST_VERSION_WITH_EPOCHS:
        in_sync = [(member, -1) for member in asked.new_isr]
    else:
        in_sync = [(member.broker_id, member.broker_epoch) for member in asked.new_isr_with_epochs]
    return Proposal(node_id, asked.leader_epoch, asked.partition_epoch, in_sync)


def _tell(cluster: Cluster, topic: TopicAnswer) -> None:
    """The states as they are now."""
    name = cluster.names.get(topic.topic_id)
    for answer in topic.partitions:
        state = None if name is None else cluster.state(name, answer.partition_index)
        if state is not None and not answer.error_code:
            answer.leader_id, answer.leader_epoch = state.leader_id, state.leader_epoch
            answer.isr, answer.partition_epoch = list(state.in_sync), state.partition_epoch
