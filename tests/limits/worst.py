"""The worst that a client may ask for, by API: within the limits of docs/limits.md, or just beyond them.

Each entry makes its requests one after the other, for the broker changes in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.coordinator.consumer.check import MOST_NAMES
from ottla.records.build import build_batch
from ottla.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from ottla.wire.messages import alter_configs as replacing
from ottla.wire.messages import incremental_alter_configs as incremental
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.fetch import ReplicaState
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.schema import Request
from tests.conformance import group_requests as groups
from tests.conformance import requests
from tests.conformance import transaction_requests as transactions
from tests.conformance.script import Topic
from tests.limits.world import World

MEGABYTE = 1 << 20
BOMB_BYTES = 130 * MEGABYTE
LARGE_BATCH_BYTES = 1_000_000
WITHOUT_RECORDS = 9_000  # elements of a request that carries records


class Ask(NamedTuple):
    request: Request
    version: int | None = None  # the highest, unless another is worse


Asks = Iterator[Ask]


def _indexes(world: World) -> list[int]:
    """As many partitions as a request may name: those of the wide topic, again and again."""
    return [number % world.load.partitions for number in range(world.load.elements)]


def _strangers(world: World) -> list[str]:
    return [f"nobody-{number}" for number in range(world.load.elements)]


def produce(world: World) -> Asks:
    batch = build_batch([b"value"], timestamp=0)
    few = min(world.load.partitions, WITHOUT_RECORDS // 3)
    yield Ask(requests.produce_many([(world.wide, index, batch) for index in range(few)]))
    name = world.new_name()
    world.create([name], few)
    empty = world.topic(name)  # the first record of each partition makes its files
    yield Ask(requests.produce_many([(empty, index, batch) for index in range(500)]))
    yield Ask(requests.produce_many([(empty, index, batch) for index in range(few)]))
    yield Ask(requests.produce_many([(Topic(name, world.first.id), 0, batch) for name in world.names]))
    tiny = build_batch([b""] * (LARGE_BATCH_BYTES // 8), timestamp=0)
    yield Ask(requests.produce_many([(world.wide, index, tiny) for index in range(20)]))
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        size = BOMB_BYTES if codec != SNAPPY else 14 * MEGABYTE
        yield Ask(requests.produce(world.wide, build_batch([bytes(size)], timestamp=0, codec=codec)))
        small = build_batch([b""] * 1_000_000, timestamp=0, codec=codec)
        yield Ask(requests.produce(world.wide, small))


def fetch(world: World) -> Asks:
    partitions = [requests.fetch_partition(partition=index) for index in _indexes(world)]
    yield Ask(requests.fetch({world.wide: partitions}))
    yield Ask(requests.fetch({world.wide: partitions}, session_id=0, session_epoch=0))
    waits = [requests.fetch_partition(10, partition=index) for index in range(world.load.partitions)]
    yield Ask(requests.fetch({world.wide: waits}, max_wait_ms=300, min_bytes=1))
    replica = ReplicaState(replica_id=7, replica_epoch=1)
    made_up = [requests.fetch_partition(partition=index) for index in range(world.load.elements)]
    for topic, named in ((world.wide, partitions), (Topic("nobody", bytes(15) + b"n"), made_up)):
        yield Ask(requests.fetch({topic: named}, session_id=0, session_epoch=0, replica_state=replica))


def list_offsets(world: World) -> Asks:
    for timestamp in (-1, -2, -3, 1):
        yield Ask(requests.list_offsets(world.wide, timestamp, partitions=_indexes(world)))


def metadata(world: World) -> Asks:
    yield Ask(MetadataRequest(topics=None))
    yield Ask(requests.metadata(*_strangers(world)))
    yield Ask(requests.metadata(*[f"made-{name}" for name in world.names[:100]], create=True))
    yield Ask(requests.metadata(*[world.names[number % len(world.names)] for number in range(world.load.elements)]))
    yield Ask(requests.metadata(*["wide"] * 100))


def _commits(world: World) -> Iterator[list[tuple[int, int]]]:
    yield [(index, 5) for index in range(world.load.partitions)]
    yield [(index, 5) for index in _indexes(world)]


def offset_commit(world: World) -> Asks:
    for offsets in _commits(world):
        yield Ask(groups.commit("heavy", world.wide, *offsets))
    yield Ask(groups.commit("many", world.wide, *[(0, 5)] * 7000))


def txn_offset_commit(world: World) -> Asks:
    for offsets in _commits(world):
        producer = world.producer()
        yield Ask(transactions.commit_offsets(producer, "heavy", world.wide, *offsets))
        world.ask(transactions.end(producer))


def offset_fetch(world: World) -> Asks:
    yield Ask(groups.fetch_offsets("heavy", {world.wide: _indexes(world)}))
    yield Ask(groups.fetch_offsets_of(*[groups.offsets_of_group("heavy", None)] * world.load.elements))
    names = [groups.offsets_of_group(name, None) for name in _strangers(world)]
    yield Ask(groups.fetch_offsets_of(*names))


def offset_delete(world: World) -> Asks:
    yield Ask(groups.delete_offsets("heavy", {"wide": range(world.load.partitions)}))
    world.commit("heavy", world.wide, world.load.partitions)
    yield Ask(groups.delete_offsets("heavy", {"wide": _indexes(world)}))
    world.commit("heavy", world.wide, world.load.partitions)


def find_coordinator(world: World) -> Asks:
    yield Ask(groups.find_coordinators(*_strangers(world)))
    yield Ask(groups.find_coordinators(*_strangers(world), key_type=groups.TRANSACTION_KEY))


def join_group(world: World) -> Asks:
    protocols = {f"protocol-{number}": b"" for number in range(world.load.elements)}
    yield Ask(groups.join(world.new_name(), protocols=protocols), 3)
    group = world.new_name()
    member = world.member(group)
    yield Ask(groups.join(group, member, protocols={"range": bytes(900_000)}))
    yield Ask(groups.join(world.new_name(), protocols={"range": bytes(15 * MEGABYTE)}), 3)


def sync_group(world: World) -> Asks:
    group = world.new_name()
    member_id = world.ask(groups.join(group)).member_id
    generation = world.ask(groups.join(group, member_id)).generation_id
    assignments = dict.fromkeys(_strangers(world), b"assigned")
    yield Ask(groups.sync(group, generation, member_id, assignments))


def heartbeat(world: World) -> Asks:
    group = world.new_name()
    yield Ask(groups.heartbeat(group, 1, world.member(group)))


def leave_group(world: World) -> Asks:
    group = world.new_name()
    world.member(group)
    yield Ask(groups.leave(group, *((name, None) for name in _strangers(world))))
    yield Ask(groups.leave(group, *(("", name) for name in _strangers(world))))


def describe_groups(world: World) -> Asks:
    yield Ask(groups.describe_groups(*_strangers(world)))
    yield Ask(groups.describe_groups(*[""] * world.load.elements))
    yield Ask(groups.describe_groups(*world.groups))
    group = world.new_name()
    member = world.member(group)
    generation = world.ask(groups.join(group, member, protocols={"range": bytes(900_000)})).generation_id
    world.ask(groups.sync(group, generation, member, {member: bytes(900_000)}))
    yield Ask(groups.describe_groups(*[group] * world.load.elements))


def list_groups(world: World) -> Asks:
    yield Ask(groups.list_groups())
    yield Ask(groups.list_groups(states=_strangers(world)))


def delete_groups(world: World) -> Asks:
    yield Ask(groups.delete_groups(*_strangers(world)))
    yield Ask(groups.delete_groups("heavy"))
    world.commit("heavy", world.wide, world.load.partitions)
    yield Ask(groups.delete_groups(*world.groups[::2]))


def consumer_group_heartbeat(world: World) -> Asks:
    group = world.new_name()
    yield Ask(groups.enter(group, "member", "wide"))
    yield Ask(groups.enter(group, "second", *world.names, "wide"))
    yield Ask(groups.enter(world.new_name(), "third", *_strangers(world)[:MOST_NAMES]))
    yield Ask(groups.enter(world.new_name(), "third", *_strangers(world)))
    yield Ask(groups.enter(group, "fourth", subscribed_topic_regex="t.*"))
    owned = groups.owned({world.wide: range(world.load.partitions)})
    yield Ask(groups.enter(world.new_name(), "fifth", "wide", topic_partitions=owned))
    owned = groups.owned({world.wide: _indexes(world)})
    yield Ask(groups.beat(group, "member", 1, topic_partitions=owned))


def consumer_group_describe(world: World) -> Asks:
    group = world.new_name()
    world.ask(groups.enter(group, "member", "wide", *world.names))
    yield Ask(groups.describe_consumer_groups(*[group] * world.load.elements))
    yield Ask(groups.describe_consumer_groups(*_strangers(world)))


def api_versions(world: World) -> Asks:
    yield Ask(ApiVersionsRequest(client_software_name="n" * 30_000, client_software_version="v"))


def create_topics(world: World) -> Asks:
    topics = [requests.creatable(name) for name in world.new_names(min(world.load.elements // 4, 2000))]
    yield Ask(requests.create_topics(*topics))
    yield Ask(requests.create_topics(requests.creatable(world.new_name(), partitions=world.load.partitions)))
    yield Ask(requests.create_topics(*[requests.creatable("a") for _ in range(world.load.elements // 2)]))
    several = [requests.creatable(name, partitions=world.load.partitions) for name in world.new_names(2)]
    yield Ask(requests.create_topics(*several))
    assigned = {index: [0] for index in range(world.load.elements // 3)}
    yield Ask(requests.create_topics(requests.creatable(world.new_name(), partitions=-1, assignments=assigned)))
    configs = [(name, "x") for name in _strangers(world)]
    yield Ask(requests.create_topics(requests.creatable(world.new_name(), configs=configs)))


def delete_topics(world: World) -> Asks:
    yield Ask(requests.delete_topics(*_strangers(world)[: world.load.elements // 2]))
    name = world.new_name()
    world.create([name], world.load.partitions)
    world.commit(world.new_name(), world.topic(name), world.load.partitions)
    yield Ask(requests.delete_topics(name))
    names = world.new_names(1000)
    world.create(names)
    yield Ask(requests.delete_topics(*names))


def delete_records(world: World) -> Asks:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=0) for index in _indexes(world)]
    topic = DeleteRecordsTopic(name="wide", partitions=partitions)
    yield Ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000))


def create_partitions(world: World) -> Asks:
    yield Ask(requests.create_partitions((world.names[1], world.load.partitions, None)))
    yield Ask(requests.create_partitions(*[(name, 2, None) for name in world.names[2:1000]]))
    yield Ask(requests.create_partitions(*[(name, 2, None) for name in _strangers(world)]))
    assignments = [[0]] * (world.load.elements // 3)
    yield Ask(requests.create_partitions((world.names[0], len(assignments) + 1, assignments)))


def init_producer_id(world: World) -> Asks:
    yield Ask(transactions.init("i" * 32_000))
    yield Ask(transactions.init(None))


def offset_for_leader_epoch(world: World) -> Asks:
    asked = [
        OffsetForLeaderPartition(partition=index, current_leader_epoch=-1, leader_epoch=0) for index in _indexes(world)
    ]
    topic = OffsetForLeaderTopic(topic="wide", partitions=asked)
    yield Ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))


def add_partitions_to_txn(world: World) -> Asks:
    producer = world.producer()
    yield Ask(transactions.add_partitions(producer, {"wide": range(world.load.partitions)}, version=3), 3)
    yield Ask(transactions.add_partitions(producer, {"wide": _indexes(world)}, version=3), 3)
    asked = [
        AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.id,
            producer_epoch=0,
            verify_only=False,
            topics=[AddPartitionsToTxnTopic(name="wide", partitions=[0])],
        )
        for name in _strangers(world)[: world.load.elements // 3]
    ]
    yield Ask(AddPartitionsToTxnRequest(transactions=asked))
    world.ask(transactions.end(producer), 3)


def add_offsets_to_txn(world: World) -> Asks:
    yield Ask(transactions.add_offsets(world.producer(), "g" * 32_000))


def end_txn(world: World) -> Asks:
    producer = world.producer()
    world.ask(transactions.add_partitions(producer, {"wide": range(world.load.partitions)}, version=3), 3)
    yield Ask(transactions.end(producer), 3)
    again = transactions.end(producer)
    for _ in range(50):  # until the markers are written
        yield Ask(again, 3)


def write_txn_markers(world: World) -> Asks:
    topic = WritableTxnMarkerTopic(name="wide", partition_indexes=_indexes(world))
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0
    )
    yield Ask(WriteTxnMarkersRequest(markers=[marker]))


def describe_configs(world: World) -> Asks:
    def ask(*named: tuple[int, str]) -> Ask:
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in named
        ]
        return Ask(DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True))

    yield ask(*[(requests.TOPIC, name) for name in world.names[:500]])
    yield ask(*[(requests.TOPIC, name) for name in _strangers(world)])
    yield ask(*[(requests.TOPIC, world.names[0])] * 1000)
    yield ask(*[(requests.BROKER, "1")] * 200)
    yield ask(*[(requests.GROUP, name) for name in world.groups])


def alter_configs(world: World) -> Asks:
    def ask(names: list[str], count: int) -> Ask:
        resources = [
            replacing.AlterConfigsResource(
                resource_type=requests.TOPIC,
                resource_name=name,
                configs=[replacing.AlterableConfig(name="retention.ms", value="1000000")] * count,
            )
            for name in names
        ]
        return Ask(replacing.AlterConfigsRequest(resources=resources, validate_only=False))

    yield ask(world.names, 1)
    yield ask(["wide"], 1)
    yield ask(["wide"], world.load.elements)
    yield ask(_strangers(world)[: world.load.elements // 3], 1)


def incremental_alter_configs(world: World) -> Asks:
    def ask(kind: int, names: list[str], keys: list[str]) -> Ask:
        configs = [
            incremental.AlterableConfig(name=key, config_operation=requests.SET, value="1000000") for key in keys
        ]
        resources = [
            incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs) for name in names
        ]
        return Ask(incremental.IncrementalAlterConfigsRequest(resources=resources, validate_only=False))

    yield ask(requests.TOPIC, world.names, ["retention.ms"])
    yield ask(requests.TOPIC, ["wide"], _strangers(world))
    yield ask(requests.TOPIC, _strangers(world)[: world.load.elements // 3], ["retention.ms"])
    yield ask(requests.BROKER, [""], ["log.retention.ms"])
    yield ask(requests.GROUP, world.groups, ["consumer.session.timeout.ms"])


def describe_log_dirs(world: World) -> Asks:
    yield Ask(DescribeLogDirsRequest(topics=None))
    topics = [DescribableLogDirTopic(topic="wide", partitions=_indexes(world))]
    yield Ask(DescribeLogDirsRequest(topics=topics))


def elect_leaders(world: World) -> Asks:
    for topics in (None, [TopicPartitions(topic="wide", partitions=_indexes(world))]):
        yield Ask(ElectLeadersRequest(topic_partitions=topics))
    strange = [TopicPartitions(topic=name, partitions=[0]) for name in _strangers(world)[: world.load.elements // 2]]
    yield Ask(ElectLeadersRequest(topic_partitions=strange))


def alter_partition_reassignments(world: World) -> Asks:
    for replicas in ([1], [1, 2], None):
        partitions = [
            ReassignablePartition(partition_index=index, replicas=replicas)
            for index in _indexes(world)[: world.load.elements // 4]
        ]
        topic = ReassignableTopic(name="wide", partitions=partitions)
        yield Ask(AlterPartitionReassignmentsRequest(topics=[topic]))
    one = [ReassignablePartition(partition_index=0, replicas=list(range(world.load.elements - 10)))]
    yield Ask(AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="wide", partitions=one)]))


def list_partition_reassignments(world: World) -> Asks:
    yield Ask(ListPartitionReassignmentsRequest(topics=None))
    asked = [ListPartitionReassignmentsTopics(name="wide", partition_indexes=_indexes(world))]
    yield Ask(ListPartitionReassignmentsRequest(topics=asked))


def alter_replica_log_dirs(world: World) -> Asks:
    for path in ("/nowhere", ""):
        topic = AlterReplicaLogDirTopic(name="wide", partitions=_indexes(world))
        yield Ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])]))


def unregister_broker(_world: World) -> Asks:
    for broker_id in (1, 7, -1):
        yield Ask(UnregisterBrokerRequest(broker_id=broker_id))


def describe_quorum(world: World) -> Asks:
    partitions = [PartitionData(partition_index=index) for index in _indexes(world)]
    for name in ("__cluster_metadata", "wide"):
        yield Ask(DescribeQuorumRequest(topics=[TopicData(topic_name=name, partitions=partitions)]))
    yield Ask(DescribeQuorumRequest(topics=[TopicData(topic_name=name, partitions=[]) for name in _strangers(world)]))


def describe_client_quotas(world: World) -> Asks:
    yield Ask(requests.describe_quotas(("client-id", requests.ANY, None)))
    yield Ask(requests.describe_quotas(*[("client-id", requests.EXACT, name) for name in _strangers(world)]))


def alter_client_quotas(world: World) -> Asks:
    def ask(count: int, names: list[str]) -> Ask:
        entries = [
            EntryData(
                entity=[EntityData(entity_type="client-id", entity_name=name)],
                ops=[OpData(key="consumer_byte_rate", value=1e9, remove=False)] * count,
            )
            for name in names
        ]
        return Ask(AlterClientQuotasRequest(entries=entries, validate_only=False))

    names = _strangers(world)[: world.load.elements // 4]
    yield ask(1, names[:5000])
    yield ask(1, ["nobody-0"] * len(names))
    yield ask(world.load.elements, ["one"])


def describe_cluster(world: World) -> Asks:
    yield Ask(DescribeClusterRequest(include_cluster_authorized_operations=True))


def describe_producers(world: World) -> Asks:
    yield Ask(DescribeProducersRequest(topics=[TopicRequest(name="wide", partition_indexes=_indexes(world))]))


def describe_transactions(world: World) -> Asks:
    producer = world.producer()
    world.ask(transactions.add_partitions(producer, {"wide": range(world.load.partitions)}, version=3), 3)
    yield Ask(DescribeTransactionsRequest(transactional_ids=[producer.transactional_id] * 50))
    yield Ask(DescribeTransactionsRequest(transactional_ids=_strangers(world)))
    world.ask(transactions.end(producer, transactions.ABORT), 3)


def list_transactions(world: World) -> Asks:
    yield Ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
    yield Ask(ListTransactionsRequest(state_filters=_strangers(world), producer_id_filters=[]))
    yield Ask(ListTransactionsRequest(state_filters=[], producer_id_filters=list(range(world.load.elements))))


def list_config_resources(world: World) -> Asks:
    yield Ask(ListConfigResourcesRequest(resource_types=[]))
    yield Ask(ListConfigResourcesRequest(resource_types=[number % 64 for number in range(world.load.elements)]))


def describe_topic_partitions(world: World) -> Asks:
    for topics in ([], [DescribedTopic(name=name) for name in _strangers(world)], [DescribedTopic(name="wide")]):
        yield Ask(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=100_000, cursor=None))


WORST: dict[str, Callable[[World], Asks]] = {
    "Produce": produce,
    "Fetch": fetch,
    "ListOffsets": list_offsets,
    "Metadata": metadata,
    "OffsetCommit": offset_commit,
    "OffsetFetch": offset_fetch,
    "FindCoordinator": find_coordinator,
    "JoinGroup": join_group,
    "Heartbeat": heartbeat,
    "LeaveGroup": leave_group,
    "SyncGroup": sync_group,
    "DescribeGroups": describe_groups,
    "ListGroups": list_groups,
    "ApiVersions": api_versions,
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "DeleteRecords": delete_records,
    "InitProducerId": init_producer_id,
    "OffsetForLeaderEpoch": offset_for_leader_epoch,
    "AddPartitionsToTxn": add_partitions_to_txn,
    "AddOffsetsToTxn": add_offsets_to_txn,
    "EndTxn": end_txn,
    "WriteTxnMarkers": write_txn_markers,
    "TxnOffsetCommit": txn_offset_commit,
    "DescribeConfigs": describe_configs,
    "AlterConfigs": alter_configs,
    "DescribeLogDirs": describe_log_dirs,
    "CreatePartitions": create_partitions,
    "DeleteGroups": delete_groups,
    "IncrementalAlterConfigs": incremental_alter_configs,
    "OffsetDelete": offset_delete,
    "DescribeClientQuotas": describe_client_quotas,
    "AlterClientQuotas": alter_client_quotas,
    "DescribeCluster": describe_cluster,
    "DescribeProducers": describe_producers,
    "DescribeTransactions": describe_transactions,
    "ListTransactions": list_transactions,
    "ConsumerGroupHeartbeat": consumer_group_heartbeat,
    "ConsumerGroupDescribe": consumer_group_describe,
    "ListConfigResources": list_config_resources,
    "DescribeTopicPartitions": describe_topic_partitions,
    "ElectLeaders": elect_leaders,
    "AlterPartitionReassignments": alter_partition_reassignments,
    "ListPartitionReassignments": list_partition_reassignments,
    "AlterReplicaLogDirs": alter_replica_log_dirs,
    "UnregisterBroker": unregister_broker,
    "DescribeQuorum": describe_quorum,
}
