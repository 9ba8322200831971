"""Settings of Kafka's broker that Ottla keeps and describes, without acting on them.

Those of what Ottla does not have (TLS, SASL, tiered storage, Raft, share and streams groups) are left out.
"""

from __future__ import annotations

from ottla.config import Check, Definition, Kind, OneOf, Synonym, Value, at_least

MOST_INT = (1 << 31) - 1
Row = tuple[str, Kind, Value, str] | tuple[str, Kind, Value, str, Check]

_ROWS: tuple[Row, ...] = (
    # Threads and queues, of which Ottla has one loop
    ("background.threads", Kind.INT, 10, "Threads for background work.", at_least(1)),
    ("num.io.threads", Kind.INT, 8, "Threads that handle requests.", at_least(1)),
    ("num.network.threads", Kind.INT, 3, "Threads that read requests and write answers.", at_least(1)),
    ("num.recovery.threads.per.data.dir", Kind.INT, 2, "Threads that open the logs of a folder.", at_least(1)),
    ("num.replica.alter.log.dirs.threads", Kind.INT, None, "Threads that move replicas between folders."),
    ("num.replica.fetchers", Kind.INT, 1, "Threads that copy from each other broker."),
    # Connections
    ("connection.failed.authentication.delay.ms", Kind.INT, 100, "The delay of closing a failed login.", at_least(0)),
    ("connections.max.reauth.ms", Kind.LONG, 0, "How long a login lasts; 0: as long as its connection."),
    ("principal.builder.class", Kind.CLASS, None, "What makes a principal of a connection."),
    ("security.inter.broker.protocol", Kind.STRING, "PLAINTEXT", "The protocol that brokers use among each other."),
    ("socket.connection.setup.timeout.max.ms", Kind.LONG, 30_000, "The longest wait for a connection to be made."),
    ("socket.connection.setup.timeout.ms", Kind.LONG, 10_000, "The first wait for a connection to be made."),
    # Identity and roles
    ("authorizer.class.name", Kind.STRING, "", "What decides who may do what; none: everybody everything."),
    ("broker.heartbeat.interval.ms", Kind.INT, 2000, "How often a broker tells the controller that it lives."),
    ("broker.id", Kind.INT, -1, "The number of this broker, by its older name."),
    ("config.providers", Kind.LIST, (), "What looks up values that stand in other places."),
    ("early.start.listeners", Kind.LIST, None, "Listeners that open before the broker is ready."),
    ("initial.broker.registration.timeout.ms", Kind.INT, 60_000, "How long a starting broker tries to register."),
    # Policies
    ("alter.config.policy.class.name", Kind.CLASS, None, "What may veto changes of configurations."),
    ("create.topic.policy.class.name", Kind.CLASS, None, "What may veto new topics."),
    ("client.quota.callback.class", Kind.CLASS, None, "What decides on quotas in place of the broker."),
    # Quotas
    ("alter.log.dirs.replication.quota.window.num", Kind.INT, 11, "Windows in the measure of moves.", at_least(1)),
    ("alter.log.dirs.replication.quota.window.size.seconds", Kind.INT, 1, "The length of such a window.", at_least(1)),
    # Logs
    ("cordoned.log.dirs", Kind.LIST, (), "Folders that take no new partitions."),
    ("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9, "How full that memory may get."),
    ("log.cleaner.io.buffer.size", Kind.INT, 524_288, "The memory of compaction for records.", at_least(0)),
    ("log.cleaner.threads", Kind.INT, 1, "Threads that compact.", at_least(1)),
    ("log.dir.failure.timeout.ms", Kind.LONG, 30_000, "How long a broker lives on with a failed folder.", at_least(1)),
    (
        "log.flush.start.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        "How often the first offsets of logs are noted.",
        at_least(0),
    ),
    # Requests that wait
    ("delete.records.purgatory.purge.interval.requests", Kind.INT, 1, "How often waiting deletions are swept."),
    ("fetch.purgatory.purge.interval.requests", Kind.INT, 1000, "How often waiting fetches are swept."),
    ("producer.purgatory.purge.interval.requests", Kind.INT, 1000, "How often waiting produces are swept."),
    # Replication
    ("controller.socket.timeout.ms", Kind.INT, 30_000, "How long the controller's connections wait."),
    ("replica.socket.receive.buffer.bytes", Kind.INT, 65_536, "The receive buffer of a follower's socket."),
    # Groups and their offsets
    ("group.coordinator.background.threads", Kind.INT, 2, "Threads for the coordinator's slow work.", at_least(1)),
    ("group.coordinator.cached.buffer.max.bytes", Kind.INT, 1_048_588, "The largest buffer that is kept."),
    ("group.coordinator.threads", Kind.INT, 4, "Threads of the coordinator.", at_least(1)),
    ("offsets.commit.timeout.ms", Kind.INT, 5000, "How long a commit waits for its replicas.", at_least(1)),
    ("offsets.load.buffer.size", Kind.INT, 5_242_880, "How much is read at once of committed offsets.", at_least(1)),
    ("offsets.topic.compression.codec", Kind.INT, 0, "The codec of the topic of offsets, by its number."),
    # Transactions
    ("transaction.state.log.load.buffer.size", Kind.INT, 5_242_880, "How much is read at once.", at_least(1)),
    ("transaction.two.phase.commit.enable", Kind.BOOLEAN, False, "Whether transactions may stay prepared."),
    # Metrics
    ("kafka.metrics.polling.interval.secs", Kind.INT, 10, "How often metrics are gathered.", at_least(1)),
    ("kafka.metrics.reporters", Kind.LIST, (), "What metrics are told to."),
    ("metrics.num.samples", Kind.INT, 2, "How many samples a metric is made of.", at_least(1)),
    ("metrics.recording.level", Kind.STRING, "INFO", "How much is measured.", OneOf(("INFO", "DEBUG", "TRACE"))),
    ("metrics.sample.window.ms", Kind.LONG, 30_000, "The length of a sample.", at_least(1)),
    ("telemetry.max.bytes", Kind.INT, 1_048_576, "The most telemetry that a client may send.", at_least(1)),
)


def _definition(name: str, kind: Kind, default: Value, documentation: str, check: Check | None = None) -> Definition:
    synonyms = (Synonym(name, kind, default),)
    return Definition(name, kind, default, documentation, check, synonyms, is_kept_only=True)


KEPT_SETTINGS = {row[0]: _definition(*row) for row in _ROWS}
