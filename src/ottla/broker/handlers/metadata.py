"""Metadata (3), versions 0 to 13.

A topic that is not there is created where that is wanted, and found by the next request: the first is told that it
is unknown. The broker's own topics are not made this way.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.broker.mutations import Mutations
from ottla.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from ottla.broker.slices import Steps, mapped
from ottla.controller.topic_names import INTERNAL, is_legal
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
    from ottla.broker.topics import Topic

Topics = Generator[None, None, list[MetadataResponseTopic]]

FIRST_VERSION_BY_ID = 12
FIRST_VERSION_WITH_NULL_FOR_ALL = 1


def handle(broker: Broker, request: MetadataRequest, context: Context) -> Steps:
    refusal = _refusal(request, context.version)
    if refusal is not None:
        return _refused(request, refusal)
    mutations = Mutations(broker, context)
    topics = yield from _topics(broker, request, context.version, mutations)
    endpoint = broker.endpoint_for(context)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.settings.config.broker_rack,
            )
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        throttle_time_ms=mutations.throttle(),
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
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


def _topics(broker: Broker, request: MetadataRequest, version: int, mutations: Mutations) -> Topics:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    asked = request.topics
    if asked is None or (not asked and version < FIRST_VERSION_WITH_NULL_FOR_ALL):
        return (yield from mapped(lambda topic: _known(topic, operations), list(broker.topics)))
    if any(topic.topic_id != ZERO_UUID for topic in asked):
        return (yield from _by_id(broker, asked, operations))
    return (yield from _by_name(broker, request, operations, mutations))


def _by_id(broker: Broker, asked: list[MetadataRequestTopic], operations: int) -> Topics:
    """Where one is asked for by id, names are not looked at."""
    answers = []
    for topic_id in dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID):
        topic = broker.topics.by_id.get(topic_id)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            answers.append(MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id, partitions=[]))
        else:
            answers.append(_known(topic, operations))
        yield
    return answers


def _by_name(broker: Broker, request: MetadataRequest, operations: int, mutations: Mutations) -> Topics:
    answers = []
    missing: list[str] = []
    for name in dict.fromkeys(topic.name or "" for topic in request.topics or ()):
        topic = broker.topics.by_name.get(name)
        if topic is not None:
            answers.append(_known(topic, operations))
        elif not is_legal(name):
            answers.append(_unknown(name, ErrorCode.INVALID_TOPIC_EXCEPTION, operations))
        else:
            missing.append(name)
            answers.append(_unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations))
        yield
    if missing and request.allow_auto_topic_creation and broker.settings.config.auto_create_topics_enable:
        yield from _create(broker, missing, mutations)
    return answers


def _create(broker: Broker, names: list[str], mutations: Mutations) -> Generator[None, None, object]:
    """What cannot be created stays unknown: whoever asks for metadata is not told why."""
    return (
        yield from broker.catalog.create_topics_in_steps(
            [
                CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[])
                for name in names
                if name not in INTERNAL
            ],
            charge=mutations.charge,
        )
    )


def _known(topic: Topic, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL,
        partitions=[
            MetadataResponsePartition(
                error_code=0,
                partition_index=partition.index,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.in_sync,
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=operations,
    )


def _unknown(name: str, code: ErrorCode, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL,
        partitions=[],
        topic_authorized_operations=operations,
    )
