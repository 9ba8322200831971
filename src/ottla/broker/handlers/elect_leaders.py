"""ElectLeaders (43), versions 0 to 2: has the preferred replica lead, or anybody where nobody does.

Versions before 1 know only preferred leaders. The controller decides.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Waiting, parts_by_topic
from ottla.controller.elections import PREFERRED, UNCLEAN, Elected, decide_elections
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps
    from ottla.controller.changes import Change

ELECTED_AT_ONCE = 500

Asked = Sequence[tuple[str, Sequence[int]]]


def handle(broker: Broker, request: ElectLeadersRequest, context: Context) -> Steps:
    kind = request.election_type
    if kind not in (PREFERRED, UNCLEAN):
        return _unknown_kind(request)
    results: dict[str, ReplicaElectionResult] = {}
    for part in _parts(broker, request):
        for elected in (yield from _elect(broker, kind, part, only_needed=request.topic_partitions is None)):
            result = PartitionResult(partition_id=elected.partition, error_code=0)
            if elected.refusal is not None:
                result.error_code, result.error_message = elected.refusal.code, elected.refusal.message
            topic = results.setdefault(elected.name, ReplicaElectionResult(topic=elected.name, partition_result=[]))
            topic.partition_result.append(result)
    return ElectLeadersResponse(replica_election_results=list(results.values()))


def _parts(broker: Broker, request: ElectLeadersRequest) -> Iterator[Asked]:
    asked = request.topic_partitions
    if asked is None:
        topics = broker.controller.cluster.topics
        counts = {name: len(topic.replicas) for name, topic in topics.items()}
        asked = [TopicPartitions(topic=name, partitions=list(range(count))) for name, count in counts.items()]
    for part in parts_by_topic(asked, ELECTED_AT_ONCE):
        yield [(topic.topic, partitions) for topic, partitions, _ in part]


def _elect(broker: Broker, kind: int, asked: Asked, *, only_needed: bool) -> Generator[Waiting, None, list[Elected]]:
    answers: list[Elected] = []

    def decide() -> list[Change]:
        cluster = broker.controller.cluster
        found, changes = decide_elections(cluster, broker.membership.rules(), kind, asked, only_needed=only_needed)
        answers.extend(found)
        return changes

    outcomes = yield from broker.controller.decided(decide)
    refusal = next((refusal for _, refusal in outcomes if refusal is not None), None)
    return [each if each.refusal is not None else each._replace(refusal=refusal) for each in answers]


def _unknown_kind(request: ElectLeadersRequest) -> ElectLeadersResponse:
    message = f"Unknown election type {request.election_type}"
    code = ErrorCode.INVALID_REQUEST
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )
