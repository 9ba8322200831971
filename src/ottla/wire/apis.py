"""Every API that Ottla speaks, a row each: the one table that ApiVersions and dispatch are fed from.

The versions are those that Apache Kafka 4.3.1 advertises. This module knows nothing of the messages, so that
whoever asks only for keys and versions does not pay for them.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.wire.versions import ENDLESS

NOT_FLEXIBLE = ENDLESS
"""The first flexible version of an API that has none."""


class Api(NamedTuple):
    key: int
    name: str
    least: int
    """The least version that is advertised."""
    highest: int
    flexible: int
    """The first version with compact lengths and tagged fields."""
    served: int = 0
    """The least version that is answered, where it is above the least that is advertised."""

    @property
    def least_served(self) -> int:
        return max(self.least, self.served)

    def serves(self, version: int) -> bool:
        return self.least_served <= version <= self.highest

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible


# Old librdkafka finds out what a broker can do from Produce 0-2 being advertised; nobody may send them.
PRODUCE = Api(0, "Produce", 0, 13, flexible=9, served=3)
FETCH = Api(1, "Fetch", 4, 18, flexible=12)
LIST_OFFSETS = Api(2, "ListOffsets", 1, 11, flexible=6)
METADATA = Api(3, "Metadata", 0, 13, flexible=9)
OFFSET_COMMIT = Api(8, "OffsetCommit", 2, 10, flexible=8)
OFFSET_FETCH = Api(9, "OffsetFetch", 1, 10, flexible=6)
FIND_COORDINATOR = Api(10, "FindCoordinator", 0, 6, flexible=3)
JOIN_GROUP = Api(11, "JoinGroup", 0, 9, flexible=6)
HEARTBEAT = Api(12, "Heartbeat", 0, 4, flexible=4)
LEAVE_GROUP = Api(13, "LeaveGroup", 0, 5, flexible=4)
SYNC_GROUP = Api(14, "SyncGroup", 0, 5, flexible=4)
DESCRIBE_GROUPS = Api(15, "DescribeGroups", 0, 6, flexible=5)
LIST_GROUPS = Api(16, "ListGroups", 0, 5, flexible=3)
SASL_HANDSHAKE = Api(17, "SaslHandshake", 0, 1, flexible=NOT_FLEXIBLE)
API_VERSIONS = Api(18, "ApiVersions", 0, 4, flexible=3)
CREATE_TOPICS = Api(19, "CreateTopics", 2, 7, flexible=5)
DELETE_TOPICS = Api(20, "DeleteTopics", 1, 6, flexible=4)
DELETE_RECORDS = Api(21, "DeleteRecords", 0, 2, flexible=2)
INIT_PRODUCER_ID = Api(22, "InitProducerId", 0, 5, flexible=2)
OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", 2, 4, flexible=4)
ADD_PARTITIONS_TO_TXN = Api(24, "AddPartitionsToTxn", 0, 5, flexible=3)
ADD_OFFSETS_TO_TXN = Api(25, "AddOffsetsToTxn", 0, 4, flexible=3)
END_TXN = Api(26, "EndTxn", 0, 5, flexible=3)
WRITE_TXN_MARKERS = Api(27, "WriteTxnMarkers", 1, 2, flexible=1)
TXN_OFFSET_COMMIT = Api(28, "TxnOffsetCommit", 0, 5, flexible=3)
DESCRIBE_ACLS = Api(29, "DescribeAcls", 1, 3, flexible=2)
CREATE_ACLS = Api(30, "CreateAcls", 1, 3, flexible=2)
DELETE_ACLS = Api(31, "DeleteAcls", 1, 3, flexible=2)
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 1, 4, flexible=4)
ALTER_CONFIGS = Api(33, "AlterConfigs", 0, 2, flexible=2)
ALTER_REPLICA_LOG_DIRS = Api(34, "AlterReplicaLogDirs", 1, 2, flexible=2)
DESCRIBE_LOG_DIRS = Api(35, "DescribeLogDirs", 1, 5, flexible=2)
SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", 0, 2, flexible=2)
CREATE_PARTITIONS = Api(37, "CreatePartitions", 0, 3, flexible=2)
DELETE_GROUPS = Api(42, "DeleteGroups", 0, 2, flexible=2)
ELECT_LEADERS = Api(43, "ElectLeaders", 0, 2, flexible=2)
INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", 0, 1, flexible=1)
ALTER_PARTITION_REASSIGNMENTS = Api(45, "AlterPartitionReassignments", 0, 1, flexible=0)
LIST_PARTITION_REASSIGNMENTS = Api(46, "ListPartitionReassignments", 0, 0, flexible=0)
OFFSET_DELETE = Api(47, "OffsetDelete", 0, 0, flexible=NOT_FLEXIBLE)
DESCRIBE_CLIENT_QUOTAS = Api(48, "DescribeClientQuotas", 0, 1, flexible=1)
ALTER_CLIENT_QUOTAS = Api(49, "AlterClientQuotas", 0, 1, flexible=1)
DESCRIBE_USER_SCRAM_CREDENTIALS = Api(50, "DescribeUserScramCredentials", 0, 0, flexible=0)
ALTER_USER_SCRAM_CREDENTIALS = Api(51, "AlterUserScramCredentials", 0, 0, flexible=0)
DESCRIBE_QUORUM = Api(55, "DescribeQuorum", 0, 2, flexible=0)
ALTER_PARTITION = Api(56, "AlterPartition", 2, 3, flexible=0)  # brokers ask the controller
UPDATE_FEATURES = Api(57, "UpdateFeatures", 0, 2, flexible=0)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 2, flexible=0)
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", 0, 0, flexible=0)
UNREGISTER_BROKER = Api(64, "UnregisterBroker", 0, 0, flexible=0)
DESCRIBE_TRANSACTIONS = Api(65, "DescribeTransactions", 0, 0, flexible=0)
LIST_TRANSACTIONS = Api(66, "ListTransactions", 0, 2, flexible=0)
CONSUMER_GROUP_HEARTBEAT = Api(68, "ConsumerGroupHeartbeat", 0, 1, flexible=0)
CONSUMER_GROUP_DESCRIBE = Api(69, "ConsumerGroupDescribe", 0, 1, flexible=0)
LIST_CONFIG_RESOURCES = Api(74, "ListConfigResources", 0, 1, flexible=0)
DESCRIBE_TOPIC_PARTITIONS = Api(75, "DescribeTopicPartitions", 0, 0, flexible=0)

APIS: tuple[Api, ...] = tuple(row for row in globals().values() if isinstance(row, Api))

# What only Ottla's brokers say to each other. Kafka has no such keys, and nobody is told of them.
CLUSTER_FEED = Api(30_000, "ClusterFeed", 0, 0, flexible=0)
FORWARD = Api(30_001, "Forward", 0, 0, flexible=0)
LEAVE_CLUSTER = Api(30_002, "LeaveCluster", 0, 0, flexible=0)
REPORT_GROWTH = Api(30_003, "ReportGrowth", 0, 0, flexible=0)
FAIL_REPLICAS = Api(30_005, "FailReplicas", 0, 0, flexible=0)
# And what clients may ask that find the feature `ottla.growth.version`.
EXPAND_IN_ORDER = Api(30_004, "ExpandInOrder", 0, 0, flexible=0)
GROWTH_FEATURE = "ottla.growth.version"
"""With ApiVersions a broker tells by it that ExpandInOrder is there, which no list of APIs has."""
PRIVATE_APIS = (CLUSTER_FEED, FORWARD, LEAVE_CLUSTER, REPORT_GROWTH, EXPAND_IN_ORDER, FAIL_REPLICAS)

BY_KEY: dict[int, Api] = {api.key: api for api in (*APIS, *PRIVATE_APIS)}
