"""Both internal topics are compacted in the midst of work: a coordinator that loads what is left knows the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.log.compaction import Compaction, cleanable
from ottla.testing.slices import run_here
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.transactional_client import TOPIC, TransactionalClient
from tests.sim.simulated_broker import SimulatedBroker

STEPS = 120
PARTITIONS = 3
OFFSET_GROUPS = ("one", "two")
CONSUMER_GROUP = "three"
LONGER_THAN_TOMBSTONES_SECONDS = 100


class Work:
    """Clients that do this and that, by chance."""

    def __init__(self, broker: SimulatedBroker, random: Random) -> None:
        self.broker = broker
        self.random = random
        self.client = broker.client()
        self.producers = [TransactionalClient(broker, f"transaction {number}") for number in range(3)]
        self.open: set[TransactionalClient] = set()
        self.members: dict[str, int] = {}  # and their epochs
        for producer in self.producers:
            producer.init()

    def step(self) -> None:
        commits = self.commit, self.commit_in_transaction, self.commit_in_transaction
        transactions = self.end_transaction, self.begin_anew
        others = self.delete_offset, self.delete_group, self.join, self.leave, self.wait, self.compact
        self.random.choice((*commits, *transactions, *others))()

    def commit(self) -> None:
        group, index, offset = self._target()
        partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=group, member_id="", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        )
        assert self.client.ask(request, 9).topics[0].partitions[0].error_code == 0

    def commit_in_transaction(self) -> None:
        producer = self.random.choice(self.producers)
        group, index, offset = self._target()
        partition = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=group,
            producer_id=producer.producer[0],
            producer_epoch=producer.producer[1],
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        assert self.client.ask(request, 5).topics[0].partitions[0].error_code == 0
        self.open.add(producer)

    def end_transaction(self) -> None:
        producer = self.random.choice(self.producers)
        if producer in self.open:
            assert producer.end(is_commit=self.random.random() < 0.6) == 0
            self.open.discard(producer)

    def begin_anew(self) -> None:
        producer = self.random.choice(self.producers)
        producer.init()
        self.open.discard(producer)

    def _target(self) -> tuple[str, int, int]:
        random = self.random
        return random.choice(OFFSET_GROUPS), random.randrange(PARTITIONS), random.randrange(1000)

    def delete_offset(self) -> None:
        group, index, _ = self._target()
        topic = OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        self.client.ask(OffsetDeleteRequest(group_id=group, topics=[topic]))

    def delete_group(self) -> None:
        if self.random.random() < 0.3:
            self.client.ask(DeleteGroupsRequest(groups_names=[self.random.choice((*OFFSET_GROUPS, CONSUMER_GROUP))]))

    def join(self) -> None:
        member_id = self.random.choice("abc")
        answer = self._beat(member_id, 0, subscribed_topic_names=[TOPIC], rebalance_timeout_ms=1000)
        assert answer.error_code == 0
        self.members[member_id] = answer.member_epoch

    def leave(self) -> None:
        if self.members:
            self._beat(self.members.popitem()[0], -1)

    def _beat(self, member_id: str, epoch: int, **details: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=CONSUMER_GROUP, member_id=member_id, member_epoch=epoch, topic_partitions=[], **details
        )
        return self.client.ask(request)

    def wait(self) -> None:
        """So long that tombstones may go; sessions end, and transactions that are open are aborted."""
        if self.random.random() < 0.2:
            self.broker.advance(LONGER_THAN_TOMBSTONES_SECONDS)
            self.members.clear()
            for producer in self.open:
                producer.init()
            self.open.clear()

    def compact(self) -> None:
        for topic in ("__consumer_offsets", "__transaction_state"):
            for partition in self.broker.broker.topics.by_name[topic].partitions:
                log, now_ms = partition.log, self.broker.system.clock_ms()
                log.roll(now_ms)
                log.flush(now_ms)
                run_here(Compaction(log, cleanable(log, 0, now_ms), now_ms).run())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SimulatedBroker]:
    broker = SimulatedBroker(
        tmp_path,
        offsets_topic_num_partitions="1",
        transaction_state_log_num_partitions="1",
        log_cleaner_delete_retention_ms="50000",
        log_cleaner_enable="false",  # it is done here, when the test wants it
        group_consumer_assignment_interval_ms="0",
    )
    broker.create(TOPIC, PARTITIONS)
    yield broker
    broker.stop()


def known(broker: SimulatedBroker) -> Any:
    """All that the coordinators know and that lasts."""
    [groups] = broker.broker.groups.shards()
    [transactions] = broker.broker.transactions.shards()
    offsets = groups.machine.offsets
    return {
        "offsets": {
            name: {partition: value.offset for partition, (value, _) in offsets.of_group(name).items()}
            for name in sorted(offsets.groups())
        },
        "pending": {
            name: {
                partition: latest.value.offset
                for partition in offsets.partitions(name)
                if (latest := offsets.latest(name, partition)) is not None
            }
            for name in sorted(groups.machine.groups)
            if offsets.has_pending(name)
        },
        "groups": {
            name: (group.epoch, group.target.epoch, group.members, group.target.by_member)
            for name, group in groups.machine.groups.items()
            if isinstance(group, ConsumerGroup)
        },
        "classic": {
            name
            for name, group in groups.machine.groups.items()
            if isinstance(group, ClassicGroup) and offsets.partitions(name)
        },
        "transactions": {
            name: transaction._replace(previous_epoch=-1)  # which only the one who gave it knows
            for name, transaction in transactions.machine.transactions.items()
        },
    }


def reload(broker: SimulatedBroker) -> None:
    for coordinator in (broker.broker.groups, broker.broker.transactions):
        coordinator.stop()
        coordinator.start()
        broker.system.run_until(broker.loop, lambda coordinator=coordinator: not coordinator.is_loading, 60)  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_left_tells_everything(broker: SimulatedBroker, seed: int) -> None:
    work = Work(broker, Random(seed))
    work.join()
    work.commit()
    for number in range(STEPS):
        work.step()
        if number % 10 == 9:
            broker.advance(0.1)  # for markers to be written
            before = known(broker)
            reload(broker)
            assert known(broker) == before


def test_a_compacted_log_is_small(broker: SimulatedBroker) -> None:
    work = Work(broker, Random(0))
    for _ in range(300):
        work.commit()
    work.compact()
    log = broker.broker.topics.by_name["__consumer_offsets"].partitions[0].log
    before = known(broker)
    assert log.size_bytes < 6 * 200
    reload(broker)
    assert known(broker) == before
