"""What differs by nature from run to run and from broker to broker, by the name of its field.

Everything else in an answer is compared as it is.
"""

from __future__ import annotations

import re
import time

from ottla.wire.uuids import ZERO_UUID, uuid_text

A_DAY_MS = 24 * 3600 * 1000
SHOWN_TIMES = {
    "<now>": 0,
    "<now - 365 days>": 365 * A_DAY_MS,
    "<now - 2^63 + 1>": 2**63 - 1,  # the least time that a topic without a limit allows
}
"""How far before now."""

UNKNOWN_ID = bytes(range(16))
"""An id that no topic has."""

ANOTHER_PRODUCER = 1_000_000
"""How far the id of a producer that nobody knows is from one that was given."""

HIDDEN = {
    "cluster_id": "<cluster id>",
    "port": "<port>",
    "log_dir": "<folder>",
    "total_bytes": "<size>",
    "usable_bytes": "<size>",
    "finalized_features_epoch": "<epoch>",
    "documentation": "<text>",  # Kafka's own prose
}
"""Fields whose value is hidden wherever there is one: null stays null, and -1 stays -1."""

SESSION_ID = "session_id"  # 0 stays 0

OUR_OWN_PLACE = {
    "log.dir",
    "log.dirs",
    "listeners",
    "advertised.listeners",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "metadata.log.dir",
    "port",
}
"""Configurations whose value says where a broker runs."""

UNORDERED = {
    "Produce": {"responses", "partition_responses"},
    "Fetch": {"responses", "partitions"},
    "ListOffsets": {"topics", "partitions"},
    "Metadata": {"brokers", "topics", "partitions", "isr_nodes"},
    "DescribeTopicPartitions": {"isr_nodes"},
    "DescribeCluster": {"brokers"},
    "ApiVersions": {"api_keys", "supported_features", "finalized_features"},
    "CreateTopics": {"topics", "configs"},
    "DeleteTopics": {"responses"},
    "DeleteRecords": {"topics", "partitions"},
    "CreatePartitions": {"results"},
    "DescribeConfigs": {"results", "configs"},
    "AlterConfigs": {"responses"},
    "IncrementalAlterConfigs": {"responses"},
    "ListConfigResources": {"config_resources"},
    "DescribeLogDirs": {"topics", "partitions"},
    "AlterReplicaLogDirs": {"results", "partitions"},
    "ElectLeaders": {"replica_election_results", "partition_result"},
    "AlterPartitionReassignments": {"responses", "partitions"},
    "ListPartitionReassignments": {"topics", "partitions"},
    "OffsetForLeaderEpoch": {"topics", "partitions"},
    "DescribeClientQuotas": {"entries", "entity", "values"},
    "AlterClientQuotas": {"entries", "entity"},
    "JoinGroup": {"members"},
    "OffsetCommit": {"topics", "partitions"},
    "OffsetFetch": {"groups", "topics", "partitions"},
    "OffsetDelete": {"topics", "partitions"},
    "ListGroups": {"groups"},
    "DescribeGroups": {"groups", "members"},
    "DeleteGroups": {"results"},
    "ConsumerGroupHeartbeat": {"topic_partitions"},
    "ConsumerGroupDescribe": {"groups", "members", "topic_partitions", "subscribed_topic_names"},
    "AddPartitionsToTxn": {
        "results_by_transaction",
        "topic_results",
        "results_by_topic_v3_and_below",
        "results_by_partition",
    },
    "TxnOffsetCommit": {"topics", "partitions"},
    "WriteTxnMarkers": {"markers", "topics", "partitions"},
    "ListTransactions": {"transaction_states", "unknown_state_filters"},
    "DescribeTransactions": {"transaction_states", "topics", "partitions"},
    "DescribeProducers": {"topics", "partitions", "active_producers"},
}
"""Lists that Kafka gives in the order of a hash table, by API and field. Entries of the same topic are made one."""

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
GENERATED_ID = re.compile(rf"{_UUID}|^[\w\-]{{22}}$")
"""What a broker makes up in the id of a member."""

_MILLISECONDS = re.compile(r"-?\b\d{13,19}\b")
_PORT = re.compile(r"127\.0\.0\.1:\d+")
_FOLDER = re.compile(r"(?<![\w/])/[\w.\-]+(?:/[\w.\-]+)+")
_OBJECT = re.compile(r"(?<=@)[0-9a-f]{5,8}\b")


def masked_number(field: str, value: int) -> int | str:
    if field in HIDDEN:
        return value if value == -1 else HIDDEN[field]
    if field == SESSION_ID and value:
        return "<session id>"
    return _masked_time(value)


def masked_text(field: str, value: str, token: str) -> str:
    """Names carry the token of the run: what is left is what the exchange called them."""
    if field in HIDDEN:
        return HIDDEN[field]
    value = value.replace(f"-{token}", "").replace(token, "")
    value = re.sub(_UUID, "<uuid>", value)
    value = _MILLISECONDS.sub(lambda found: str(_masked_time(int(found[0]))), value)
    value = _OBJECT.sub("<address>", value)
    return _FOLDER.sub("<folder>", _PORT.sub("127.0.0.1:<port>", value))


def masked_id(value: bytes, labels: dict[bytes, str]) -> str:
    if value == ZERO_UUID:
        return "zero"
    if value == UNKNOWN_ID:
        return "unknown"
    return f"<id of {labels[value]}>" if value in labels else "<id>"


def masked_ids_in_text(value: str, labels: dict[bytes, str]) -> str:
    for known in labels:
        value = value.replace(uuid_text(known), masked_id(known, labels))
    return value


def _masked_time(value: int) -> int | str:
    now_ms = time.time() * 1000
    for shown, before_ms in SHOWN_TIMES.items():
        if abs(value + before_ms - now_ms) < A_DAY_MS:
            return shown
    return value
