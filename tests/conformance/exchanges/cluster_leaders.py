"""Requests to a broker that does not lead the partition, or does not coordinate the group."""

from __future__ import annotations

from typing import Any

from ottla.records.build import build_batch
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from tests.conformance.batches import sequenced
from tests.conformance.cluster import COORDINATOR
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import (
    beat,
    commit,
    delete_groups,
    describe_consumer_groups,
    fetch_offsets,
    find_coordinator,
    find_coordinators,
    heartbeat,
    join,
    leave,
    sync,
)
from tests.conformance.requests import (
    delete_records,
    fetch,
    fetch_partition,
    list_offsets,
    offset_for_epoch,
    produce,
)
from tests.conformance.script import Script, Topic
from tests.conformance.transaction_requests import (
    Producer,
    add_offsets,
    add_partitions,
    describe_producers,
    describe_transactions,
    end,
    init,
    marker,
)

exchanges = Exchanges("cluster_leaders", brokers=3)

LEADER, FOLLOWER, ELSEWHERE = 1, 2, 3
NOBODY = Producer("", 4_000_000_000, 0)


def on_two(script: Script) -> Topic:
    """A topic that brokers 1 and 2 have; the first leads."""
    topic = script.replicated([LEADER, FOLLOWER])
    script.produce(topic, build_batch([b"value"], timestamp=1_700_000_000_000), on=f"broker {LEADER} prepare")
    return topic


def on_two_and_committed(script: Script) -> Topic:
    """One that the second knows to be committed."""
    topic = on_two(script)
    script.ask_until(
        fetch({topic: [fetch_partition()]}),
        until=lambda answer: answer.responses[0].partitions[0].high_watermark == 1,
        on=f"broker {FOLLOWER} prepare",
    )
    return topic


ASKED = {"a follower": FOLLOWER, "a broker without it": ELSEWHERE}


def hinted(script: Script, request: Any, versions: tuple[int, ...], node_id: int) -> None:
    for version in versions:
        script.send(request, version, on=f"broker {node_id}")


@exchanges.cases(ASKED)
def produce_to(script: Script, node_id: int) -> None:
    topic = on_two(script)
    batch = build_batch([b"more"], timestamp=1_700_000_000_000)
    for acks in (1, -1):
        hinted(script, produce(topic, batch, acks=acks), (3, 8, 9, 10, 12, 13), node_id)


@exchanges.cases(ASKED)
def fetch_of(script: Script, node_id: int) -> None:
    topic = on_two_and_committed(script)
    hinted(script, fetch({topic: [fetch_partition()]}), (4, 11, 12, 13, 16, 17, 18), node_id)


@exchanges.cases({"0": 0, "1": 1, "5": 5})
def fetch_in_an_epoch(script: Script, epoch: int) -> None:
    topic = on_two_and_committed(script)
    for node_id in (LEADER, FOLLOWER, ELSEWHERE):
        script.send(fetch({topic: [fetch_partition(epoch=epoch)]}), on=f"broker {node_id}")


@exchanges.cases(ASKED)
def list_offsets_of(script: Script, node_id: int) -> None:
    topic = on_two(script)
    hinted(script, list_offsets(topic, -1), (1, 4, 7, 9), node_id)
    script.send(list_offsets(topic, -2, epoch=5), on=f"broker {node_id}")


@exchanges.cases(ASKED)
def the_end_of_an_epoch(script: Script, node_id: int) -> None:
    topic = on_two(script)
    for current in (-1, 0, 5):
        script.send(offset_for_epoch(topic, 0, current_epoch=current), on=f"broker {node_id}")


@exchanges.cases(ASKED)
def delete_records_of(script: Script, node_id: int) -> None:
    script.send(delete_records(on_two(script), (0, 1)), on=f"broker {node_id}")


@exchanges.cases(ASKED)
def producers_of(script: Script, node_id: int) -> None:
    script.send(describe_producers({on_two(script).name: [0]}), on=f"broker {node_id}")


@exchanges.cases(ASKED)
def markers_for(script: Script, node_id: int) -> None:
    topic = on_two(script)
    for version in (1, 2):
        script.send(marker(NOBODY, {topic.name: [0]}), version, on=f"broker {node_id}")


@exchanges.cases({"an idempotent batch": 5})
def produce_in_sequence_to_a_follower(script: Script, producer_id: int) -> None:
    batch = sequenced(4_000_000_000 + producer_id, 0, epoch=0)
    script.send(produce(on_two(script), batch, acks=-1), on=f"broker {FOLLOWER}")


@exchanges.cases({"a group": 0, "a transactional id": 1})
def a_coordinator_is_found(script: Script, key_type: int) -> None:
    script.group() if key_type == 0 else script.transactional_id()
    key = script.name("group" if key_type == 0 else "transaction")
    for node_id in (1, 2, 3):
        script.send(find_coordinators(key, "another", key_type=key_type), on=f"broker {node_id}")
        script.send(find_coordinator(key, key_type), 2, on=f"broker {node_id}")


GROUP_REQUESTS: dict[str, Any] = {
    "JoinGroup": lambda group, topic: join(group),
    "SyncGroup": lambda group, topic: sync(group, 1, "m"),
    "Heartbeat": lambda group, topic: heartbeat(group, 1, "m"),
    "LeaveGroup": lambda group, topic: leave(group, ("m", None)),
    "OffsetCommit": lambda group, topic: commit(group, topic),
    "OffsetFetch": lambda group, topic: fetch_offsets(group, {topic: [0]}),
    "DescribeGroups": lambda group, topic: DescribeGroupsRequest(groups=[group]),
    "DeleteGroups": lambda group, topic: delete_groups(group),
    "ConsumerGroupHeartbeat": lambda group, topic: beat(
        group, "AAAAAAAAAAAAAAAAAAAAAA", 0, rebalance_timeout_ms=5000, subscribed_topic_names=[topic.name],
        topic_partitions=[],
    ),
    "ConsumerGroupDescribe": lambda group, topic: describe_consumer_groups(group),
}  # fmt: skip


@exchanges.cases(GROUP_REQUESTS)
def to_another_than_the_coordinator(script: Script, make: Any) -> None:
    topic = on_two(script)
    script.send(make(script.group(), topic), on=f"broker {COORDINATOR + 1}")


TRANSACTION_REQUESTS: dict[str, Any] = {
    "InitProducerId": lambda producer, topic: (init(producer.transactional_id), 5),
    "AddPartitionsToTxn of a client": lambda producer, topic: (
        add_partitions(producer, {topic.name: [0]}, version=3), 3,
    ),
    "AddPartitionsToTxn of a broker": lambda producer, topic: (add_partitions(producer, {topic.name: [0]}), 5),
    "AddOffsetsToTxn": lambda producer, topic: (add_offsets(producer, "group"), 4),
    "EndTxn": lambda producer, topic: (end(producer), 5),
    "DescribeTransactions": lambda producer, topic: (describe_transactions(producer.transactional_id), 0),
}  # fmt: skip


@exchanges.cases(TRANSACTION_REQUESTS)
def to_another_than_the_coordinator_of_a_transaction(script: Script, make: Any) -> None:
    topic = on_two(script)
    request, version = make(Producer(script.transactional_id(), 4_000_000_000, 0), topic)
    script.send(request, version, on=f"broker {COORDINATOR + 1}")
