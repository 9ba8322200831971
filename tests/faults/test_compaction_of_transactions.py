"""Compaction with transactions, seen by a real client: over rounds of compaction, clean stops and kills, a reader of
committed records sees nothing that was aborted, the last of each key, and no deleted key again; and a group finds each
offset that was committed for it in a transaction, and none that was aborted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.log.checkpoint import CLEANER_OFFSETS, parse_offsets
from tests.faults.broker_process import BrokerProcess

WAIT_S = 30.0
TABLE, WITNESS = "table", "witness"
OFFSETS = "__consumer_offsets"
SEGMENT_BYTES = 4_000
OFFSETS_SEGMENT_BYTES = 1 << 20  # the least
GROUPS = 8
PARTITIONS = 400
COMMITS_S = 2.5  # of each life of the broker: they must go on while it flushes, which it does once a second
COMPACTION_S = 120.0  # a busy machine takes long to fill a segment
KEYS = [b"key-%d" % number for number in range(12)]
STRAGGLERS = [b"straggler-%d" % number for number in range(4)]
ABORTED = b"aborted"
STOPS = (BrokerProcess.errors, BrokerProcess.errors_until_killed)
SETTINGS = (
    "log.cleaner.backoff.ms=20",
    "log.cleaner.min.cleanable.ratio=0",
    "log.cleaner.delete.retention.ms=0",
    "offsets.topic.num.partitions=1",
    f"offsets.topic.segment.bytes={OFFSETS_SEGMENT_BYTES}",
    "transaction.state.log.num.partitions=1",
)

Row = tuple[bytes, bytes | None]
FILLING: list[Row] = [(b"filler", b"." * 200)] * 30  # more than a segment of them


def start(folder: Path) -> BrokerProcess:
    return BrokerProcess(folder, *(part for setting in SETTINGS for part in ("--set", setting)))


def transactional(broker: BrokerProcess, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(WAIT_S)
    return producer


def await_compaction(folder: Path, topic: str, offset: int) -> None:
    """Until a log is compacted up to the segment that holds an offset."""
    bases = [int(path.name[:20]) for path in folder.glob(f"{topic}-0/*.log")]
    up_to = max(base for base in bases if base <= offset)
    assert up_to > 0
    deadline = time.monotonic() + WAIT_S
    while compacted_up_to(folder, topic) < up_to:
        assert time.monotonic() < deadline, f"{topic} is not compacted up to {up_to}"
        time.sleep(0.02)


def compacted_up_to(folder: Path, topic: str) -> int:
    checkpoint = folder / CLEANER_OFFSETS
    return parse_offsets(checkpoint.read_bytes()).get((topic, 0), 0) if checkpoint.exists() else 0


class Table:
    """A compacted topic, and what must be seen of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rows: dict[bytes, bytes | None] = {}  # committed; None: deleted
        self._folder = folder
        self._random = Random(seed)
        self._count = 0

    def write(self, producer: Producer, keys: list[bytes]) -> list[Row]:
        """Records of a transaction that will be committed; `rows` is told then."""
        rows: list[Row] = []
        for key in self._random.sample(keys, 3):
            self._count += 1
            rows.append((key, None if self._random.random() < 0.4 else b"%d" % self._count))
        send(producer, TABLE, rows)
        return rows

    def transact(self, producers: list[Producer], count: int) -> None:
        for _ in range(count):
            producer = self._random.choice(producers)
            producer.begin_transaction()
            if self._random.random() < 0.5:
                send(producer, TABLE, [(key, ABORTED) for key in self._random.sample(KEYS, 3)])
                producer.abort_transaction(WAIT_S)
            else:
                rows = self.write(producer, KEYS)
                producer.commit_transaction(WAIT_S)
                self.rows.update(rows)

    def compact(self, producer: Producer) -> None:
        """Have all segments sealed that can be, and compaction come by."""
        send(producer, TABLE, FILLING)
        for _ in range(2):  # the first time it may have looked at the table before
            await_compaction(self._folder, WITNESS, send(producer, WITNESS, FILLING))

    def check(self, broker: BrokerProcess) -> None:
        seen: dict[bytes, bytes | None] = {}
        for key, value in committed_rows(broker):
            assert value != ABORTED, "a record of an aborted transaction was read"
            seen[key] = value
        keys = KEYS + STRAGGLERS
        assert {key: seen.get(key) for key in keys} == {key: self.rows.get(key) for key in keys}


def send(producer: Producer, topic: str, rows: list[Row]) -> int:
    """Write records; the offset of the last."""
    offsets: list[int] = []
    for key, value in rows:
        producer.produce(topic, value, key, partition=0, on_delivery=lambda _, sent: offsets.append(sent.offset() or 0))
    assert producer.flush(WAIT_S) == 0
    return offsets[-1]


def committed_rows(broker: BrokerProcess) -> Iterator[Row]:
    options = {"group.id": "unused", "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "fetch.wait.max.ms": 20, **options})
    consumer.assign([TopicPartition(TABLE, 0, 0)])
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF"
            break
        yield message.key() or b"", message.value()
    consumer.close()


def test_aborted_records_and_deleted_keys_stay_away(tmp_path: Path) -> None:
    table = Table(tmp_path, seed=7)
    config = {"cleanup.policy": "compact", "internal.segment.bytes": str(SEGMENT_BYTES), "flush.messages": "1"}
    with start(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for creation in admin.create_topics(
            [NewTopic(name, 1, 1, config=config) for name in (TABLE, WITNESS)]
        ).values():
            creation.result(WAIT_S)
        broker.errors()
    for stop in STOPS:
        with start(tmp_path) as broker:
            table.check(broker)
            one_round(broker, table)
            assert stop(broker) == ""
    with start(tmp_path) as broker:
        table.check(broker)


def one_round(broker: BrokerProcess, table: Table) -> None:
    """Compaction comes by while a transaction is open, and again when that has ended, also on its tombstones."""
    plain = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 5, "log_level": 0})
    workers = [transactional(broker, f"worker-{number}") for number in range(2)]
    straggler = transactional(broker, "straggler")
    table.transact(workers, 5)
    straggler.begin_transaction()
    rows = table.write(straggler, STRAGGLERS)
    table.transact(workers, 5)
    table.compact(plain)
    straggler.commit_transaction(WAIT_S)
    table.rows.update(rows)
    table.check(broker)
    for _ in range(2):
        table.compact(plain)
        table.check(broker)


class Groups:
    """Groups whose offsets are committed in transactions, and what was."""

    def __init__(self, seed: int) -> None:
        self.committed: dict[str, dict[int, int]] = {f"group-{number}": {} for number in range(GROUPS)}
        self._random = Random(seed)
        self._count = 0

    def commit(self, broker: BrokerProcess, folder: Path) -> None:
        """Transactions of one group after the other, of which 40 % abort, until compaction has come by among them."""
        producers = [transactional(broker, f"committer-{number}") for number in range(3)]
        members = {
            group: Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
            for group in self.committed
        }
        begun = time.monotonic()
        compacted = compacted_up_to(folder, OFFSETS)
        while time.monotonic() < begun + COMMITS_S or compacted_up_to(folder, OFFSETS) == compacted:
            assert time.monotonic() < begun + COMPACTION_S, "the offsets are not compacted"
            group, producer = self._random.choice(list(members)), self._random.choice(producers)
            self._count += 1
            offsets = dict.fromkeys(self._random.sample(range(PARTITIONS), PARTITIONS // 2), self._count)
            places = [TopicPartition(TABLE, partition, offset) for partition, offset in offsets.items()]
            producer.begin_transaction()
            producer.send_offsets_to_transaction(places, members[group].consumer_group_metadata(), WAIT_S)
            if self._random.random() < 0.4:
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)
                self.committed[group] |= offsets
        for member in members.values():
            member.close()

    def check(self, broker: BrokerProcess) -> None:
        for group, committed in self.committed.items():
            member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
            places = member.committed([TopicPartition(TABLE, number) for number in range(PARTITIONS)], WAIT_S)
            member.close()
            assert {place.partition: place.offset for place in places if place.offset >= 0} == committed


def test_offsets_committed_in_transactions_are_all_there(tmp_path: Path) -> None:
    groups = Groups(seed=7)
    with start(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TABLE, PARTITIONS, 1)])[TABLE].result(WAIT_S)
        broker.errors()
    for stop in STOPS:
        with start(tmp_path) as broker:
            groups.check(broker)
            groups.commit(broker, tmp_path)
            assert stop(broker) == ""
    with start(tmp_path) as broker:
        groups.check(broker)
