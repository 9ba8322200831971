"""Groups as an administrator sees them, of Ottla's own broker."""

from collections.abc import Iterator

import pytest

import ottla.testing
from ottla.broker.broker import Broker
from ottla.client import Admin, NewRecord, Offset, Producer, TopicPartition
from ottla.log.compaction import Compaction, cleanable
from ottla.testing.local_broker import LocalBroker
from ottla.testing.slices import run_here
from tests.client.admin_groups_contract import AdminGroupsContract, assert_counts_are_right
from tests.client.contract import new_name


@pytest.fixture(scope="module")
def ottla_broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def bootstrap(ottla_broker: LocalBroker) -> str:
    return ottla_broker.bootstrap


class TestOnOttla(AdminGroupsContract):
    pass


def compact(broker: Broker, topic: str) -> None:
    """All that is there, at once."""
    log = broker.topics.by_name[topic].partitions[0].log
    now_ms = broker.clock_ms()
    log.roll(now_ms)
    log.flush(now_ms)
    run_here(Compaction(log, cleanable(log, 0, now_ms), now_ms).run())


def test_what_compaction_has_removed_is_no_lag(ottla_broker: LocalBroker, bootstrap: str) -> None:
    """Whole batches, and records in the midst of batches."""
    topic, group = ottla_broker.topic(new_name(), config={"cleanup.policy": "compact"}), new_name()
    place = TopicPartition(topic, 0)
    for keys in ("abcde", "bd", "aff", "xyxyz"):
        with Producer(bootstrap) as producer:
            producer.send_many(topic, [NewRecord(b"v", key=key.encode()) for key in keys])
    ottla_broker.call(lambda broker: compact(broker, topic))
    assert_counts_are_right(bootstrap, topic)
    with Admin(bootstrap) as admin:
        for offset in range(16):
            admin.alter_group_offsets(group, {place: offset})
            [lag] = ottla_broker.call(lambda broker: broker.lags.of_group(group))
            assert admin.group_lags(group)[place].records == lag.records
        assert admin.group_lags(group)[place].records == 0
        admin.alter_group_offsets(group, {place: 0})
        assert admin.group_lags(group)[place].records == len("cebdafxyz")


def test_a_partition_of_which_nothing_is_left(ottla_broker: LocalBroker, bootstrap: str) -> None:
    """A fetch brings nothing there, and never will."""
    config = {"cleanup.policy": "compact", "delete.retention.ms": "0"}
    topic, group = ottla_broker.topic(new_name(), config=config), new_name()
    place = TopicPartition(topic, 0)
    for value in (b"v", None):
        ottla_broker.put(topic, value, key=b"k")
    for _ in range(2):  # the tombstone goes the next time
        ottla_broker.call(lambda broker: compact(broker, topic))
    assert ottla_broker.records(topic) == []
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets(group, {place: 0})
        assert admin.group_lags(group)[place] == (Offset(0), 0, 2, 0)
    [lag] = ottla_broker.call(lambda broker: broker.lags.of_group(group))
    assert lag.records == 0
