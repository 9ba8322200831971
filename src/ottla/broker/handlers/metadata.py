"""Metadata (3), versions 0 to 13.

A topic that is not there is created where that is wanted, and found by the next request: the first is told that it
is unknown. The broker's own topics are not made this way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.broker.access.authorizer import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS
from ottla.broker.controller.forwarding import create_topics
from ottla.broker.loop.slices import Steps, Waiting, parts_of
from ottla.broker.network.peer import PeerFailure
from ottla.broker.quotas.mutations import Mutations
from ottla.controller.layout import NOBODY
from ottla.controller.topic_names import INTERNAL, is_legal
from ottla.records.growth import Phase
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.network.acquaintance import Acquaintance
    from ottla.broker.topics import Topic
    from ottla.controller.layout import PartitionState

Topics = Generator[Waiting | None, None, list[MetadataResponseTopic]]

FIRST_VERSION_BY_ID = 12
FIRST_VERSION_WITH_NULL_FOR_ALL = 1
PARTITIONS_A_STEP = 200


def handle(broker: Broker, request: MetadataRequest, context: Context) -> Steps:
    refusal = _refusal(request, context.version)
    if refusal is not None:
        return _refused(request, refusal)
    mutations = Mutations(broker, context)
    topics = yield from _topics(broker, request, context, mutations)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in broker.brokers.of_listener(context.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.membership.controller_id,
        throttle_time_ms=mutations.throttle(),
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )


def _refusal(request: MetadataRequest, version: int) -> ErrorCode | None:
    for topic in request.topics or ():
        if version < FIRST_VERSION_BY_ID and (topic.topic_id != ZERO_UUID or topic.name is None):
            return ErrorCode.INVALID_REQUEST
        if topic.name is None and topic.topic_id == ZERO_UUID:
            return ErrorCode.UNKNOWN_SERVER_ERROR
    return None


def _refused(request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    """A request that cannot be answered as a whole."""
    topics = [
        MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
        for topic in request.topics or ()
    ]
    # Only the server's own failure is told outside of the topics too.
    whole = code if code is ErrorCode.UNKNOWN_SERVER_ERROR else ErrorCode.NONE
    return MetadataResponse(brokers=[], topics=topics, error_code=whole)


def _topics(broker: Broker, request: MetadataRequest, context: Context, mutations: Mutations) -> Topics:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else OPERATIONS_NOT_ASKED
    asked = request.topics
    acquaintance = context.connection.acquaintance
    if asked is None or (not asked and context.version < FIRST_VERSION_WITH_NULL_FOR_ALL):
        acquaintance.add_all()
        return (yield from _all(broker, operations))
    if any(topic.topic_id != ZERO_UUID for topic in asked):
        return (yield from _by_id(broker, asked, operations, acquaintance))
    return (yield from _by_name(broker, request, operations, mutations, acquaintance))


def _all(broker: Broker, operations: int) -> Topics:
    answers = []
    for topic in list(broker.topics):
        if broker.topics.by_name.get(topic.name) is topic:  # still
            answers.append((yield from _known(broker, topic, operations)))
        yield None
    return answers


def _by_id(broker: Broker, asked: list[MetadataRequestTopic], operations: int, acquaintance: Acquaintance) -> Topics:
    """Where one is asked for by id, names are not looked at."""
    answers = []
    for topic_id in dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID):
        topic = broker.topics.by_id.get(topic_id)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            answers.append(MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id, partitions=[]))
        else:
            acquaintance.add(topic.name)
            answers.append((yield from _known(broker, topic, operations)))
        yield None
    return answers


def _by_name(
    broker: Broker, request: MetadataRequest, operations: int, mutations: Mutations, acquaintance: Acquaintance
) -> Topics:
    answers = []
    missing: list[str] = []
    for name in dict.fromkeys(topic.name or "" for topic in request.topics or ()):
        topic = broker.topics.by_name.get(name)
        if topic is not None:
            acquaintance.add(topic.name)
            answers.append((yield from _known(broker, topic, operations)))
        elif not is_legal(name):
            answers.append(_unknown(name, ErrorCode.INVALID_TOPIC_EXCEPTION, operations))
        else:
            missing.append(name)
            answers.append(_unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations))
        yield None
    if missing and request.allow_auto_topic_creation and broker.settings.config.auto_create_topics_enable:
        yield from _create(broker, missing, mutations)
    return answers


def _create(broker: Broker, names: list[str], mutations: Mutations) -> Generator[Waiting | None, None, None]:
    """What cannot be created stays unknown: whoever asks for metadata is not told why."""
    asked = [
        CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[])
        for name in names
        if name not in INTERNAL
    ]
    with contextlib.suppress(PeerFailure):  # there is no controller
        yield from create_topics(broker, asked, mutations.charge)


def _is_withheld(broker: Broker, name: str) -> bool:
    """Whether a topic is about to get partitions in order: others may tell of them already, so nobody is told less."""
    node = broker.cluster.topics.get(name)
    return node is not None and bool(node.growths) and node.growths[-1].phase is Phase.PREPARING


def _assignment(broker: Broker, topic: Topic) -> list[list[int]]:
    """As it is here; of a topic that grows in order, with the new partitions also where they are not made yet."""
    node = broker.cluster.topics.get(topic.name)
    return node.replicas if node is not None and node.growths and node.topic_id == topic.topic_id else topic.assignment


def _known(broker: Broker, topic: Topic, operations: int) -> Generator[None, None, MetadataResponseTopic]:
    if _is_withheld(broker, topic.name):
        withheld = _unknown(topic.name, ErrorCode.LEADER_NOT_AVAILABLE, operations)
        withheld.topic_id = topic.topic_id
        return withheld
    partitions: list[MetadataResponsePartition] = []
    # A topic may go, or its partitions may move, while some of them are written down.
    placed = list(zip(_assignment(broker, topic), broker.cluster.states.get(topic.name, ()), strict=False))
    for part in parts_of(range(len(placed)), PARTITIONS_A_STEP):
        live = set(broker.cluster.live)
        cluster = broker.cluster
        for index in part:
            sound = live - cluster.failed_at(topic.topic_id, index) if cluster.failing else live
            partitions.append(_partition(index, *placed[index], sound))
        if len(part) == PARTITIONS_A_STEP:
            yield
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _partition(index: int, replicas: list[int], state: PartitionState, live: set[int]) -> MetadataResponsePartition:
    """`live`: brokers that are there, with their replica."""
    is_led = state.leader_id in live
    return MetadataResponsePartition(
        error_code=0 if is_led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader_id if is_led else NOBODY,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=list(state.in_sync),
        offline_replicas=[replica for replica in replicas if replica not in live],
    )


def _unknown(name: str, code: ErrorCode, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL,
        partitions=[],
        topic_authorized_operations=operations,
    )
