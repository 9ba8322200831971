"""The broker's settings: Kafka 4.3's names, kinds, defaults and checks.

`BrokerConfig` is what the broker reads. The settings that topics fall back on are not repeated here: they come from
the topics' own. What Ottla only keeps is in kept.py, and layers.py tells where a value comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.broker.network.address_limits import AddressLimits
from ottla.config import Check, Definition, Kind, ListOf, OneOf, Synonym, Value, at_least, definitions_of, setting
from ottla.log.topic_config import TOPIC_SETTINGS

MOST_INT = (1 << 31) - 1


def own(
    name: str,
    kind: Kind,
    default: Value,
    documentation: str,
    *,
    check: Check | None = None,
    is_internal: bool = False,
    is_kept_only: bool = False,
) -> Any:
    """A setting that takes its value from the broker's layers by its own name."""
    return setting(
        name,
        kind,
        default,
        documentation,
        check=check,
        synonyms=name,
        is_internal=is_internal,
        is_kept_only=is_kept_only,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    node_id: int = own(
        "node.id", Kind.INT, 1, "The number of this broker, which no other one of the cluster has.", check=at_least(0)
    )
    broker_rack: str | None = own(
        "broker.rack",
        Kind.STRING,
        None,
        "Where the broker stands, told to clients.",
    )
    listeners: tuple[str, ...] = own(
        "listeners",
        Kind.LIST,
        ("PLAINTEXT://:9092",),
        "Where the broker listens: NAME://host:port, one or more. No host means all addresses, port 0 any free one.",
        check=ListOf(may_be_empty=False),
    )
    advertised_listeners: tuple[str, ...] | None = own(
        "advertised.listeners",
        Kind.LIST,
        None,
        "Where clients of each listener are told to connect; without it, where the broker listens.",
    )
    listener_security_protocol_map: str = own(
        "listener.security.protocol.map",
        Kind.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which protocol each listener speaks. Those that Ottla opens speak PLAINTEXT.",
    )
    log_dirs: tuple[str, ...] | None = own(
        "log.dirs",
        Kind.LIST,
        None,
        "The folders of the data; without them, log.dir. The first one also has what is the broker's own.",
    )
    log_dir: tuple[str, ...] = own(
        "log.dir",
        Kind.LIST,
        ("/tmp/kafka-logs",),
        "The folders of the data, if log.dirs is not set.",
    )
    num_partitions: int = own(
        "num.partitions",
        Kind.INT,
        1,
        "How many partitions a topic gets where nobody says how many.",
        check=at_least(1),
    )
    default_replication_factor: int = own(
        "default.replication.factor",
        Kind.INT,
        1,
        "How many replicas a partition gets where nobody says how many.",
        check=at_least(1),
    )
    auto_create_topics_enable: bool = own(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        True,
        "Whether asking for the metadata of a topic that is not there creates it.",
    )
    delete_topic_enable: bool = own(
        "delete.topic.enable",
        Kind.BOOLEAN,
        True,
        "Whether topics can be deleted.",
    )
    fetch_max_bytes: int = own(
        "fetch.max.bytes",
        Kind.INT,
        57_671_680,
        "The most bytes that the answer to one fetch carries, unless its first batch alone is larger.",
        check=at_least(1024),
    )
    max_incremental_fetch_session_cache_slots: int = own(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1000,
        "How many incremental fetch sessions the broker remembers.",
        check=at_least(0),
    )
    max_request_partition_size_limit: int = own(
        "max.request.partition.size.limit",
        Kind.INT,
        2000,
        "The most partitions in one answer to DescribeTopicPartitions.",
        check=at_least(1),
    )
    socket_request_max_bytes: int = own(
        "socket.request.max.bytes",
        Kind.INT,
        104_857_600,
        "The largest request that is taken; a larger one ends the connection.",
        check=at_least(1),
    )
    socket_listen_backlog_size: int = own(
        "socket.listen.backlog.size",
        Kind.INT,
        50,
        "How many connections may wait to be taken in. One that finds no room tries again a second later: raise it "
        "where thousands of clients connect at once.",
        check=at_least(1),
    )
    max_connections: int = own(
        "max.connections",
        Kind.INT,
        MOST_INT,
        "How many connections there may be at a time.",
        check=at_least(0),
    )
    max_connections_per_ip: int = own(
        "max.connections.per.ip",
        Kind.INT,
        MOST_INT,
        "How many connections there may be from one address.",
        check=at_least(0),
    )
    max_connections_per_ip_overrides: str = own(
        "max.connections.per.ip.overrides",
        Kind.STRING,
        "",
        "Other limits of connections for single addresses. Names of hosts are not looked up.",
        check=AddressLimits(),
    )
    max_connection_creation_rate: int = own(
        "max.connection.creation.rate",
        Kind.INT,
        MOST_INT,
        "How many connections a second are taken in; the others wait.",
        check=at_least(0),
    )
    socket_receive_buffer_bytes: int = own(
        "socket.receive.buffer.bytes",
        Kind.INT,
        -1,
        "The system's buffer for what a connection receives; -1: the system decides, and adapts it.",
    )
    socket_send_buffer_bytes: int = own(
        "socket.send.buffer.bytes",
        Kind.INT,
        -1,
        "The system's buffer for what a connection sends; -1: the system decides, and adapts it.",
    )
    connections_max_idle_ms: int = own(
        "connections.max.idle.ms",
        Kind.LONG,
        600_000,
        "How long a connection may be silent before the broker ends it; below 0: for ever.",
    )
    queued_max_request_bytes: int = own(
        "queued.max.request.bytes",
        Kind.LONG,
        -1,
        "The memory of all large requests that are received or under way; 0 and below: 512 MB.",
    )
    queued_max_requests: int = own(
        "queued.max.requests",
        Kind.INT,
        500,
        "How many requests may wait for an answer.",
        check=at_least(1),
        is_kept_only=True,
    )
    request_timeout_ms: int = own(
        "request.timeout.ms",
        Kind.INT,
        30_000,
        "The most that a request waits for what the broker itself asks on its behalf.",
    )
    quota_window_num: int = own(
        "quota.window.num",
        Kind.INT,
        11,
        "Over how many windows of time the use of a quota is measured.",
        check=at_least(1),
    )
    quota_window_size_seconds: int = own(
        "quota.window.size.seconds",
        Kind.INT,
        1,
        "The length of one window of time in the measure of quotas.",
        check=at_least(1),
    )
    controller_quota_window_num: int = own(
        "controller.quota.window.num",
        Kind.INT,
        11,
        "How many windows of time make a burst of new and deleted partitions.",
        check=at_least(1),
    )
    controller_quota_window_size_seconds: int = own(
        "controller.quota.window.size.seconds",
        Kind.INT,
        1,
        "The length of one such window.",
        check=at_least(1),
    )
    log_retention_check_interval_ms: int = own(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300_000,
        "How often logs are looked through for segments to delete.",
        check=at_least(1),
    )
    log_cleaner_enable: bool = own(
        "log.cleaner.enable",
        Kind.BOOLEAN,
        True,
        "Whether logs are compacted.",
    )
    log_cleaner_backoff_ms: int = own(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        "How often logs are looked through for those to compact.",
        check=at_least(0),
    )
    log_cleaner_dedupe_buffer_size: int = own(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        134_217_728,
        "The memory of compaction for keys. What does not fit in it is left for the next round.",
    )
    log_cleaner_io_max_bytes_per_second: float = own(
        "log.cleaner.io.max.bytes.per.second",
        Kind.DOUBLE,
        1.7976931348623157e308,
        "How fast compaction may read and write.",
        is_kept_only=True,
    )
    log_flush_offset_checkpoint_interval_ms: int = own(
        "log.flush.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        "How often it is noted up to where logs are on the disk.",
        check=at_least(0),
    )
    producer_id_expiration_ms: int = own(
        "producer.id.expiration.ms",
        Kind.INT,
        86_400_000,
        "How long a partition remembers a producer that writes no more.",
        check=at_least(1),
    )
    producer_id_expiration_check_interval_ms: int = own(
        "producer.id.expiration.check.interval.ms",
        Kind.INT,
        600_000,
        "How often producers that write no more are looked for.",
        check=at_least(1),
        is_internal=True,
    )
    offset_metadata_max_bytes: int = own(
        "offset.metadata.max.bytes",
        Kind.INT,
        4096,
        "The most text that a committed offset may carry.",
    )
    offsets_retention_minutes: int = own(
        "offsets.retention.minutes",
        Kind.INT,
        10_080,
        "How long the offsets of an empty group stay.",
        check=at_least(1),
    )
    offsets_retention_check_interval_ms: int = own(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600_000,
        "How often old offsets are looked for.",
        check=at_least(1),
    )
    group_coordinator_append_linger_ms: int = own(
        "group.coordinator.append.linger.ms",
        Kind.INT,
        -1,
        "How long the coordinator gathers writes; -1: as long as others are heard.",
        check=at_least(-1),
    )
    group_initial_rebalance_delay_ms: int = own(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        3000,
        "How long a new group waits for more members.",
    )
    group_min_session_timeout_ms: int = own(
        "group.min.session.timeout.ms",
        Kind.INT,
        6000,
        "The shortest session a member may ask for.",
    )
    group_max_session_timeout_ms: int = own(
        "group.max.session.timeout.ms",
        Kind.INT,
        1_800_000,
        "The longest session a member may ask for.",
    )
    group_max_size: int = own(
        "group.max.size",
        Kind.INT,
        MOST_INT,
        "How many members a group may have.",
        check=at_least(1),
    )
    group_consumer_session_timeout_ms: int = own(
        "group.consumer.session.timeout.ms",
        Kind.INT,
        45_000,
        "How long a silent member of a consumer group stays.",
        check=at_least(1),
    )
    group_consumer_min_session_timeout_ms: int = own(
        "group.consumer.min.session.timeout.ms",
        Kind.INT,
        45_000,
        "The least a group may set for that.",
        check=at_least(1),
    )
    group_consumer_max_session_timeout_ms: int = own(
        "group.consumer.max.session.timeout.ms",
        Kind.INT,
        60_000,
        "The most a group may set for that.",
        check=at_least(1),
    )
    group_consumer_heartbeat_interval_ms: int = own(
        "group.consumer.heartbeat.interval.ms",
        Kind.INT,
        5000,
        "How often members of consumer groups give a sign of life.",
        check=at_least(1),
    )
    group_consumer_min_heartbeat_interval_ms: int = own(
        "group.consumer.min.heartbeat.interval.ms",
        Kind.INT,
        5000,
        "The least a group may set for that.",
        check=at_least(1),
    )
    group_consumer_max_heartbeat_interval_ms: int = own(
        "group.consumer.max.heartbeat.interval.ms",
        Kind.INT,
        15_000,
        "The most a group may set for that.",
        check=at_least(1),
    )
    group_consumer_assignment_interval_ms: int = own(
        "group.consumer.assignment.interval.ms",
        Kind.INT,
        1000,
        "The least time between two assignments of a consumer group.",
        check=at_least(0),
    )
    group_consumer_min_assignment_interval_ms: int = own(
        "group.consumer.min.assignment.interval.ms",
        Kind.INT,
        0,
        "The least a group may set for that.",
        check=at_least(0),
    )
    group_consumer_max_assignment_interval_ms: int = own(
        "group.consumer.max.assignment.interval.ms",
        Kind.INT,
        15_000,
        "The most a group may set for that.",
        check=at_least(0),
    )
    group_consumer_max_size: int = own(
        "group.consumer.max.size",
        Kind.INT,
        MOST_INT,
        "How many members a consumer group may have.",
        check=at_least(1),
    )
    group_consumer_assignors: tuple[str, ...] = own(
        "group.consumer.assignors",
        Kind.LIST,
        ("uniform", "range"),
        "The assignors on the broker's side; the first serves where members ask for none.",
        check=ListOf(("uniform", "range"), may_be_empty=False),
    )
    group_consumer_migration_policy: str = own(
        "group.consumer.migration.policy",
        Kind.STRING,
        "bidirectional",
        "Whether groups may change between the old and the new protocol while they have members.",
        check=OneOf(("disabled", "downgrade", "upgrade", "bidirectional")),
    )
    group_consumer_regex_refresh_interval_ms: int = own(
        "group.consumer.regex.refresh.interval.ms",
        Kind.INT,
        600_000,
        "How often the topics that a group's regular expressions match are looked up anew, whatever happens.",
        check=at_least(10_000),
        is_internal=True,
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = own(
        "group.coordinator.rebalance.protocols",
        Kind.LIST,
        ("classic", "consumer", "streams"),
        "The group protocols that are served.",
    )
    offsets_topic_num_partitions: int = own(
        "offsets.topic.num.partitions",
        Kind.INT,
        50,
        "How many partitions the topic of committed offsets gets.",
        check=at_least(1),
    )
    offsets_topic_replication_factor: int = own(
        "offsets.topic.replication.factor",
        Kind.SHORT,
        3,
        "How many replicas the topic of committed offsets gets, or as many as there are brokers if these are fewer.",
        check=at_least(1),
    )
    offsets_topic_segment_bytes: int = own(
        "offsets.topic.segment.bytes",
        Kind.INT,
        104_857_600,
        "The segment size of the topic of committed offsets.",
        check=at_least(1),
    )
    transaction_max_timeout_ms: int = own(
        "transaction.max.timeout.ms",
        Kind.INT,
        900_000,
        "The longest time a transaction may ask for.",
        check=at_least(1),
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = own(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        10_000,
        "How often transactions that take too long are aborted.",
        check=at_least(1),
    )
    transactional_id_expiration_ms: int = own(
        "transactional.id.expiration.ms",
        Kind.INT,
        604_800_000,
        "How long an unused transactional id stays.",
        check=at_least(1),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = own(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        3_600_000,
        "How often transactional ids that nobody uses are dropped.",
        check=at_least(1),
    )
    transaction_partition_verification_enable: bool = own(
        "transaction.partition.verification.enable",
        Kind.BOOLEAN,
        True,
        "Whether a write of a client that does not know transactions version 2 is checked to be part of one.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = own(
        "add.partitions.to.txn.retry.backoff.max.ms",
        Kind.INT,
        100,
        "How long a write waits for the transaction before it to be over, if request.timeout.ms is not less.",
        check=at_least(0),
    )
    add_partitions_to_txn_retry_backoff_ms: int = own(
        "add.partitions.to.txn.retry.backoff.ms",
        Kind.INT,
        20,
        "How often it asks meanwhile, besides at the moment when that is over.",
        check=at_least(1),
    )
    transaction_state_log_num_partitions: int = own(
        "transaction.state.log.num.partitions",
        Kind.INT,
        50,
        "How many partitions the topic of transactions gets.",
        check=at_least(1),
    )
    transaction_state_log_replication_factor: int = own(
        "transaction.state.log.replication.factor",
        Kind.SHORT,
        3,
        "How many replicas the topic of transactions gets.",
        check=at_least(1),
    )
    transaction_state_log_min_isr: int = own(
        "transaction.state.log.min.isr",
        Kind.INT,
        2,
        "The in-sync replicas that a transaction's state needs.",
        check=at_least(1),
    )
    transaction_state_log_segment_bytes: int = own(
        "transaction.state.log.segment.bytes",
        Kind.INT,
        104_857_600,
        "The segment size of the topic of transactions.",
        check=at_least(1),
    )
    auto_leader_rebalance_enable: bool = own(
        "auto.leader.rebalance.enable", Kind.BOOLEAN, True, "Whether preferred leaders take over again."
    )
    broker_session_timeout_ms: int = own(
        "broker.session.timeout.ms",
        Kind.INT,
        9000,
        "How long a silent broker is believed to live.",
        check=at_least(100),
    )
    controlled_shutdown_enable: bool = own(
        "controlled.shutdown.enable", Kind.BOOLEAN, True, "Whether leadership is handed over before a stop."
    )
    inter_broker_listener_name: str | None = own(
        "inter.broker.listener.name", Kind.STRING, None, "The listener that brokers use among each other."
    )
    leader_imbalance_check_interval_seconds: int = own(
        "leader.imbalance.check.interval.seconds",
        Kind.LONG,
        300,
        "How often preferred leaders are looked for.",
        check=at_least(1),
    )
    replica_fetch_backoff_ms: int = own(
        "replica.fetch.backoff.ms",
        Kind.INT,
        1000,
        "How long a follower waits after a failed fetch.",
        check=at_least(0),
    )
    replica_fetch_max_bytes: int = own(
        "replica.fetch.max.bytes",
        Kind.INT,
        1_048_576,
        "How much of one partition a follower fetches.",
        check=at_least(0),
    )
    replica_fetch_min_bytes: int = own(
        "replica.fetch.min.bytes",
        Kind.INT,
        1,
        "How much a follower's fetch waits for.",
    )
    replica_fetch_response_max_bytes: int = own(
        "replica.fetch.response.max.bytes",
        Kind.INT,
        10_485_760,
        "How much a follower fetches at once.",
        check=at_least(0),
    )
    replica_fetch_wait_max_ms: int = own(
        "replica.fetch.wait.max.ms",
        Kind.INT,
        500,
        "How long a follower's fetch waits.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = own(
        "replica.high.watermark.checkpoint.interval.ms",
        Kind.LONG,
        5000,
        "How often high watermarks are noted.",
    )
    replica_lag_time_max_ms: int = own(
        "replica.lag.time.max.ms",
        Kind.LONG,
        30_000,
        "How long a follower may be behind and stay in sync.",
    )
    replica_selector_class: str | None = own(
        "replica.selector.class",
        Kind.STRING,
        None,
        "What chooses the replica that a consumer reads from.",
    )
    replica_socket_timeout_ms: int = own(
        "replica.socket.timeout.ms",
        Kind.INT,
        30_000,
        "How long a follower waits for an answer.",
    )
    replication_quota_window_num: int = own(
        "replication.quota.window.num",
        Kind.INT,
        11,
        "Windows in the measure of replication.",
        check=at_least(1),
    )
    replication_quota_window_size_seconds: int = own(
        "replication.quota.window.size.seconds",
        Kind.INT,
        1,
        "The length of such a window.",
        check=at_least(1),
    )


def _topic_fallbacks() -> dict[str, Definition]:
    """The settings that topics take their values from where they have none themselves."""
    definitions: dict[str, Definition] = {}
    for topic_setting in TOPIC_SETTINGS.values():
        for synonym in topic_setting.synonyms:
            documentation = f"What topics have that do not set {topic_setting.name}"
            if synonym.name != topic_setting.synonyms[0].name:
                documentation += f", if {topic_setting.synonyms[0].name} is not set"
            definitions[synonym.name] = Definition(
                synonym.name,
                synonym.kind,
                synonym.default,
                f"{documentation}.",
                topic_setting.check if synonym.factor == 1 and not synonym.is_limit else None,
                (Synonym(synonym.name, synonym.kind, synonym.default),),
                is_kept_only=topic_setting.is_kept_only,
            )
    return definitions


OWN_SETTINGS = definitions_of(BrokerConfig)
TOPIC_FALLBACKS = _topic_fallbacks()
FALLBACK_CHAINS = {
    setting.synonyms[0].name: setting for setting in TOPIC_SETTINGS.values() if len(setting.synonyms) > 1
}
"""The settings of topics that fall back on several of the broker's, by the first of these."""
