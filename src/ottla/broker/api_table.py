"""What the broker serves: an API a row, with the module of handlers/ that answers it and the permissions it takes.

An API is served because it stands here; ApiVersions and the dispatch are fed from this table. Modules are imported
when their API is first asked for, so that a broker starts without them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.broker.access.authorizer import Operation
from ottla.broker.access.permissions import (
    Permissions,
    add_partitions_to_txn,
    all_of,
    delete_topics,
    fetch,
    find_coordinator,
    init_producer_id,
    nothing,
    offset_fetch,
    on_cluster,
    on_configs,
    on_group,
    on_topics,
    on_transactional_id,
)
from ottla.broker.network.acquaintance import COMMITS_OFFSETS, COORDINATES, OTHER, PREPARES, READS, WRITES
from ottla.wire import apis
from ottla.wire.apis import Api

if TYPE_CHECKING:
    from ottla.broker.dispatch import Handler

PRIVATE = frozenset({*apis.PRIVATE_APIS, apis.ALTER_PARTITION})  # for brokers only
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


class Route(NamedTuple):
    api: Api
    module: str
    """Of handlers/."""
    permissions: Permissions
    is_at_controller: bool = False
    """Whether only the controller answers: other brokers have it do so."""
    use: int = OTHER
    """What it shows of the client that asks."""

    def load(self) -> Handler:
        return cast("Handler", importlib.import_module(f"ottla.broker.handlers.{self.module}").handle)


ROUTES = (
    Route(apis.PRODUCE, "produce", all_of(on_transactional_id(WRITE), on_topics(WRITE, "topic_data")), use=WRITES),
    Route(apis.FETCH, "fetch", fetch, use=READS),
    Route(apis.LIST_OFFSETS, "list_offsets", on_topics(DESCRIBE)),
    Route(apis.METADATA, "metadata", on_topics(DESCRIBE), use=PREPARES),
    Route(apis.OFFSET_COMMIT, "offset_commit", all_of(on_group(READ), on_topics(READ))),
    Route(apis.OFFSET_FETCH, "offset_fetch", offset_fetch),
    Route(apis.FIND_COORDINATOR, "find_coordinator", find_coordinator, use=PREPARES),
    Route(apis.JOIN_GROUP, "join_group", on_group(READ)),
    Route(apis.HEARTBEAT, "heartbeat", on_group(READ)),
    Route(apis.LEAVE_GROUP, "leave_group", on_group(READ)),
    Route(apis.SYNC_GROUP, "sync_group", on_group(READ)),
    Route(apis.DESCRIBE_GROUPS, "describe_groups", on_group(DESCRIBE, "groups")),
    Route(apis.LIST_GROUPS, "list_groups", on_cluster(DESCRIBE)),
    # The first request, before anybody can prove who they are.
    Route(apis.API_VERSIONS, "api_versions", nothing, use=PREPARES),
    Route(apis.CREATE_TOPICS, "create_topics", on_topics(Operation.CREATE), is_at_controller=True),
    Route(apis.DELETE_TOPICS, "delete_topics", delete_topics, is_at_controller=True),
    Route(apis.DELETE_RECORDS, "delete_records", on_topics(Operation.DELETE)),
    Route(apis.INIT_PRODUCER_ID, "init_producer_id", init_producer_id, use=PREPARES),  # or COORDINATES, by its id
    Route(apis.OFFSET_FOR_LEADER_EPOCH, "offset_for_leader_epoch", on_topics(DESCRIBE)),
    Route(apis.ADD_PARTITIONS_TO_TXN, "add_partitions_to_txn", add_partitions_to_txn, use=COORDINATES),
    Route(
        apis.ADD_OFFSETS_TO_TXN,
        "add_offsets_to_txn",
        all_of(on_transactional_id(WRITE), on_group(READ)),
        use=COORDINATES,
    ),
    Route(apis.END_TXN, "end_txn", on_transactional_id(WRITE), use=COORDINATES),
    Route(apis.WRITE_TXN_MARKERS, "write_txn_markers", on_cluster(Operation.CLUSTER_ACTION)),
    Route(
        apis.TXN_OFFSET_COMMIT,
        "txn_offset_commit",
        all_of(on_transactional_id(WRITE), on_group(READ), on_topics(READ)),
        use=COMMITS_OFFSETS,
    ),
    Route(apis.DESCRIBE_CONFIGS, "describe_configs", on_configs(Operation.DESCRIBE_CONFIGS)),
    Route(apis.ALTER_CONFIGS, "alter_configs", on_configs(Operation.ALTER_CONFIGS), is_at_controller=True),
    Route(apis.ALTER_REPLICA_LOG_DIRS, "alter_replica_log_dirs", on_cluster(Operation.ALTER)),
    Route(apis.DESCRIBE_LOG_DIRS, "describe_log_dirs", on_cluster(DESCRIBE)),
    Route(apis.CREATE_PARTITIONS, "create_partitions", on_topics(Operation.ALTER), is_at_controller=True),
    Route(apis.DELETE_GROUPS, "delete_groups", on_group(Operation.DELETE, "groups_names")),
    Route(apis.ELECT_LEADERS, "elect_leaders", on_cluster(Operation.ALTER), is_at_controller=True),
    Route(
        apis.INCREMENTAL_ALTER_CONFIGS,
        "incremental_alter_configs",
        on_configs(Operation.ALTER_CONFIGS),
        is_at_controller=True,
    ),
    Route(
        apis.ALTER_PARTITION_REASSIGNMENTS,
        "alter_partition_reassignments",
        on_cluster(Operation.ALTER),
        is_at_controller=True,
    ),
    Route(apis.LIST_PARTITION_REASSIGNMENTS, "list_partition_reassignments", on_cluster(DESCRIBE)),
    Route(apis.OFFSET_DELETE, "offset_delete", all_of(on_group(Operation.DELETE), on_topics(READ))),
    Route(apis.DESCRIBE_CLIENT_QUOTAS, "describe_client_quotas", on_cluster(Operation.DESCRIBE_CONFIGS)),
    Route(apis.ALTER_CLIENT_QUOTAS, "alter_client_quotas", on_cluster(Operation.ALTER_CONFIGS), is_at_controller=True),
    Route(apis.DESCRIBE_QUORUM, "describe_quorum", on_cluster(DESCRIBE), is_at_controller=True),
    Route(apis.DESCRIBE_CLUSTER, "describe_cluster", nothing),  # clients find the brokers with it
    Route(apis.DESCRIBE_PRODUCERS, "describe_producers", on_topics(READ)),
    Route(apis.UNREGISTER_BROKER, "unregister_broker", on_cluster(Operation.ALTER), is_at_controller=True),
    Route(apis.DESCRIBE_TRANSACTIONS, "describe_transactions", on_transactional_id(DESCRIBE, "transactional_ids")),
    Route(apis.LIST_TRANSACTIONS, "list_transactions", nothing),  # it lists those that one may describe
    Route(apis.CONSUMER_GROUP_HEARTBEAT, "consumer_group_heartbeat", on_group(READ)),
    Route(apis.CONSUMER_GROUP_DESCRIBE, "consumer_group_describe", on_group(DESCRIBE, "group_ids")),
    Route(apis.LIST_CONFIG_RESOURCES, "list_config_resources", on_cluster(Operation.DESCRIBE_CONFIGS)),
    Route(apis.DESCRIBE_TOPIC_PARTITIONS, "describe_topic_partitions", on_topics(DESCRIBE)),
    Route(apis.CLUSTER_FEED, "cluster_feed", on_cluster(Operation.CLUSTER_ACTION)),
    Route(apis.FORWARD, "forward", on_cluster(Operation.CLUSTER_ACTION)),
    Route(apis.LEAVE_CLUSTER, "leave_cluster", on_cluster(Operation.CLUSTER_ACTION), is_at_controller=True),
    Route(apis.EXPAND_IN_ORDER, "expand_in_order", on_topics(Operation.ALTER), is_at_controller=True),
    Route(apis.REPORT_GROWTH, "report_growth", on_cluster(Operation.CLUSTER_ACTION), is_at_controller=True),
    Route(apis.FAIL_REPLICAS, "fail_replicas", on_cluster(Operation.CLUSTER_ACTION), is_at_controller=True),
    Route(apis.ALTER_PARTITION, "alter_partition", on_cluster(Operation.CLUSTER_ACTION), is_at_controller=True),
)

BY_KEY = {route.api.key: route for route in ROUTES}


def served_apis() -> list[Api]:
    """What clients are told of."""
    return [route.api for route in ROUTES if route.api not in PRIVATE]
