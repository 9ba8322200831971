"""Requests as exchanges write them: the topic and what matters, the rest as a plain client sends it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.records.batch import Buffer
from ottla.wire.messages import alter_configs as replacing
from ottla.wire.messages import incremental_alter_configs as incremental
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.uuids import ZERO_UUID
from tests.conformance.masks import UNKNOWN_ID
from tests.conformance.script import Topic

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
EXACT, DEFAULT, ANY = 0, 1, 2

UNKNOWN = Topic("nobody-made-this", UNKNOWN_ID)
MEGABYTE = 1 << 20


def produce(
    topic: Topic, records: Buffer | None, *, partition: int = 0, acks: int = 1, transactional_id: str | None = None
) -> ProduceRequest:
    return produce_many([(topic, partition, records)], acks=acks, transactional_id=transactional_id)


def produce_many(
    rows: Iterable[tuple[Topic, int, Buffer | None]], *, acks: int = 1, transactional_id: str | None = None
) -> ProduceRequest:
    """A topic with each row, also where it is the same topic again."""
    data = [
        TopicProduceData(
            name=topic.name, topic_id=topic.id, partition_data=[PartitionProduceData(index=partition, records=records)]
        )
        for topic, partition, records in rows
    ]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=5000, topic_data=data)


def fetch_partition(
    offset: int = 0, *, partition: int = 0, epoch: int = -1, last_epoch: int = -1, max_bytes: int = MEGABYTE
) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=max_bytes,
    )


def fetch(topics: Mapping[Topic, Sequence[FetchPartition]], **options: Any) -> FetchRequest:
    """Does not wait and has no session, unless told."""
    return FetchRequest(
        **{
            "max_wait_ms": 0,
            "min_bytes": 0,
            "topics": [
                FetchTopic(topic=topic.name, topic_id=topic.id, partitions=list(partitions))
                for topic, partitions in topics.items()
            ],
            **options,
        }
    )


def fetch_from(topic: Topic, offset: int = 0, **options: Any) -> FetchRequest:
    return fetch({topic: [fetch_partition(offset)]}, **options)


def forgotten(topic: Topic, *partitions: int) -> list[ForgottenTopic]:
    return [ForgottenTopic(topic=topic.name, topic_id=topic.id, partitions=list(partitions))]


def list_offsets(
    topic: Topic, timestamp: int, *, partitions: Sequence[int] = (0,), epoch: int = -1, isolation: int = 0,
    replica_id: int = -1,
) -> ListOffsetsRequest:  # fmt: skip
    asked = [
        ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        for partition in partitions
    ]
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic.name, partitions=asked)],
        timeout_ms=5000,
    )


def metadata(*names: str, create: bool = False, **options: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **options)


def metadata_by_id(*topic_ids: bytes, name: str | None = None) -> MetadataRequest:
    topics = [MetadataRequestTopic(topic_id=topic_id, name=name) for topic_id in topic_ids]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def creatable(
    name: str, *, partitions: int = 1, factor: int = 1, configs: Sequence[tuple[str, str | None]] = (),
    assignments: Mapping[int, Sequence[int]] | None = None,
) -> CreatableTopic:  # fmt: skip
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


def create_topics(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


def delete_topics(*names: str) -> DeleteTopicsRequest:
    return delete_topic_states(*((name, ZERO_UUID) for name in names))


def delete_topic_names(*names: str) -> DeleteTopicsRequest:
    """As versions below 6 have it."""
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000)


def delete_topic_states(*states: tuple[str | None, bytes]) -> DeleteTopicsRequest:
    topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    return DeleteTopicsRequest(topics=topics, timeout_ms=10_000)


def delete_records(topic: Topic, *targets: tuple[int, int]) -> DeleteRecordsRequest:
    """Targets are a partition and an offset."""
    partitions = [DeleteRecordsPartition(partition_index=partition, offset=offset) for partition, offset in targets]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic.name, partitions=partitions)], timeout_ms=5000)


def create_partitions(
    *topics: tuple[str, int, Sequence[Sequence[int]] | None], validate_only: bool = False
) -> CreatePartitionsRequest:
    """Topics are a name, the new total and the brokers of each new partition."""
    return CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments],
            )
            for name, count, assignments in topics
        ],
        timeout_ms=10_000,
        validate_only=validate_only,
    )


def describe_configs(
    kind: int, name: str, keys: Sequence[str] | None = None, *, synonyms: bool = False, documentation: bool = False
) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms, include_documentation=documentation)


def alter_configs(
    kind: int, name: str, configs: Sequence[tuple[str, str | None]], *, validate_only: bool = False
) -> replacing.AlterConfigsRequest:
    altered = [replacing.AlterableConfig(name=key, value=value) for key, value in configs]
    resource = replacing.AlterConfigsResource(resource_type=kind, resource_name=name, configs=altered)
    return replacing.AlterConfigsRequest(resources=[resource], validate_only=validate_only)


def change_configs(
    kind: int, name: str, changes: Sequence[tuple[str, int, str | None]], *, validate_only: bool = False
) -> incremental.IncrementalAlterConfigsRequest:
    """Changes are a key, an operation and a value."""
    altered = [
        incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=altered)
    return incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def offset_for_epoch(
    topic: Topic, epoch: int, *, current_epoch: int = -1, partition: int = 0, replica_id: int = -1
) -> OffsetForLeaderEpochRequest:
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current_epoch, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(
        replica_id=replica_id, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[asked])]
    )


def alter_quotas(
    entity: Sequence[tuple[str, str | None]], *operations: tuple[str, float | None], validate_only: bool = False
) -> AlterClientQuotasRequest:
    """An operation is a key and its value, None to remove it."""
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in operations],
            )
        ],
        validate_only=validate_only,
    )


def describe_quotas(*components: tuple[str, int, str | None], strict: bool = True) -> DescribeClientQuotasRequest:
    """A component is an entity type, a way to match and a name."""
    return DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )
