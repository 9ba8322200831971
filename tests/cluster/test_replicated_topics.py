"""What clients see of replicas: who is in sync, which replica is the nearest, who leads, and what is deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import ottla.testing
from ottla.broker.broker import Broker
from ottla.records.build import build_batch
from ottla.testing import LocalCluster
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.conformance.script import Script

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def wait_until(is_so: Callable[[], bool], within: float = 30.0) -> None:
    deadline = time.monotonic() + within
    while not is_so():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.01)


def produce_request(acks: int = -1, timeout_ms: int = 30_000) -> ProduceRequest:
    records = bytes(build_batch([b"v"], timestamp=1))
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )


def fetch_request(offset: int = 0, rack: str = "") -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[wanted])]
    return FetchRequest(max_wait_ms=100, min_bytes=1, topics=topics, rack_id=rack)


def ask_produce(cluster: LocalCluster, node_id: int, request: ProduceRequest | None = None) -> ProduceResponse:
    broker = cluster[node_id]
    with Script((broker.host, broker.port), "t") as script:
        answer = script.ask(request or produce_request(), 12)
    assert isinstance(answer, ProduceResponse)
    return answer


def ask_fetch(cluster: LocalCluster, node_id: int, request: FetchRequest, version: int = 12) -> FetchResponse:
    broker = cluster[node_id]
    with Script((broker.host, broker.port), "t") as script:
        answer = script.ask(request, version)
    assert isinstance(answer, FetchResponse)
    return answer


def code_of(answer: ProduceResponse) -> int:
    return answer.responses[0].partition_responses[0].error_code


def produce(cluster: LocalCluster, leader: int) -> None:
    """Until it is acknowledged: on a busy machine followers may be behind for a moment."""
    wait_until(lambda: code_of(ask_produce(cluster, leader)) == 0)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    settings = {"replica.lag.time.max.ms": 1000, "replica.selector.class": RACK_AWARE}
    with ottla.testing.cluster(settings=settings, racks=["a", "b", "c"]) as cluster:
        cluster.topic("t")
        cluster.wait_until_in_sync()
        yield cluster


def test_who_lags_leaves_the_in_sync_set_and_comes_back(cluster: LocalCluster) -> None:
    leader = cluster.leader("t")
    lagging, other = _two(cluster, leader)
    cluster.pause(lagging)
    produce(cluster, leader)  # it waits until the one that lags has left
    assert lagging not in cluster.in_sync("t")
    wait_until(lambda: set(cluster.in_sync("t")) == {leader, other})
    cluster.resume(lagging)
    cluster.wait_until_in_sync()


def _two(cluster: LocalCluster, leader: int) -> tuple[int, int]:
    """A follower that does not decide, if there is one, and the other."""
    followers = [node_id for node_id in (1, 2, 3) if node_id != leader]
    controller = cluster.controller
    followers.sort(key=lambda node_id: node_id == controller)
    return followers[0], followers[1]


def test_too_few_in_sync_refuse_those_who_want_all_and_not_the_others(cluster: LocalCluster) -> None:
    leader = cluster.leader("t")
    for node_id in _two(cluster, leader):
        cluster.kill(node_id)
    wait_until(lambda: cluster.in_sync("t") == [leader])
    assert code_of(ask_produce(cluster, leader)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert code_of(ask_produce(cluster, leader, produce_request(acks=1))) == 0
    answer = ask_fetch(cluster, leader, fetch_request())
    assert answer.responses[0].partitions[0].high_watermark == 0  # what one replica has is not committed


def test_who_asks_a_follower_is_told_who_leads(cluster: LocalCluster) -> None:
    leader = cluster.leader("t")
    follower, _ = _two(cluster, leader)
    answer = ask_produce(cluster, follower)
    [refused] = answer.responses[0].partition_responses
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader is not None
    assert refused.current_leader.leader_id == leader
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(leader, cluster[leader].port)]


def test_a_consumer_is_sent_to_the_replica_of_its_rack_and_reads_there(cluster: LocalCluster) -> None:
    leader = cluster.leader("t")
    near, _ = _two(cluster, leader)
    produce(cluster, leader)
    rack = "abc"[near - 1]
    wait_until(lambda: ask_fetch(cluster, near, fetch_request(rack=rack)).responses[0].partitions[0].high_watermark > 0)
    # On a busy machine it may have left the in-sync set for a moment.
    wait_until(
        lambda: (
            ask_fetch(cluster, leader, fetch_request(rack=rack)).responses[0].partitions[0].preferred_read_replica
            == near
        )
    )
    [data] = ask_fetch(cluster, leader, fetch_request(rack=rack)).responses[0].partitions
    assert (data.preferred_read_replica, bytes(data.records or b"")) == (near, b"")  # type: ignore[arg-type]
    [data] = ask_fetch(cluster, leader, fetch_request(rack="abc"[leader - 1])).responses[0].partitions
    assert data.preferred_read_replica == -1
    assert data.records
    [data] = ask_fetch(cluster, near, fetch_request(rack=rack)).responses[0].partitions
    assert (data.error_code, data.preferred_read_replica) == (0, -1)
    assert data.records
    [data] = ask_fetch(cluster, near, fetch_request(offset=500, rack=rack)).responses[0].partitions
    assert data.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    [data] = ask_fetch(cluster, near, fetch_request(), version=10).responses[0].partitions
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # older ones know nothing of that


def test_deleted_records_are_deleted_on_all_replicas(cluster: LocalCluster) -> None:
    leader = cluster.leader("t")
    for _ in range(3):
        produce(cluster, leader)
    topics = [DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])]
    with Script((cluster[leader].host, cluster[leader].port), "t") as script:
        answer = script.ask(DeleteRecordsRequest(topics=topics, timeout_ms=30_000), 2)
    assert answer.topics[0].partitions[0].low_watermark == 2

    def start_offset(broker: Broker) -> int:
        partition = broker.topics.partition("t", 0)
        assert partition is not None
        return partition.log.log_start_offset

    assert [cluster[node_id].call(start_offset) for node_id in (1, 2, 3)] == [2, 2, 2]
