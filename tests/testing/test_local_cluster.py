"""The cluster of the test kit: what a test can do to its brokers, and what clients see of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import ottla.testing
from ottla.client import EARLIEST, LATEST, Producer, Reader
from ottla.testing import LocalCluster


def produce(cluster: LocalCluster, topic: str, *values: bytes) -> None:
    with Producer(cluster.bootstrap) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush()


def values_in(cluster: LocalCluster, topic: str) -> list[bytes | None]:
    with Reader(cluster.bootstrap, topic, start=EARLIEST, end=LATEST) as reader:
        return sorted((record.value for fetched in reader for record in fetched.records), key=repr)


@pytest.mark.ottla_cluster(topics={"orders": 3})
def test_records_outlive_the_leader_that_took_them(ottla_cluster: LocalCluster) -> None:
    assert len(ottla_cluster) == 3
    assert ottla_cluster.in_sync("orders") == [1, 2, 3]
    produce(ottla_cluster, "orders", *(b"%d" % number for number in range(30)))
    leader = ottla_cluster.leader("orders")
    ottla_cluster.kill(leader)
    assert ottla_cluster.wait_for_leader("orders") != leader
    produce(ottla_cluster, "orders", b"after")
    assert values_in(ottla_cluster, "orders") == sorted([*(b"%d" % number for number in range(30)), b"after"])
    ottla_cluster.start(leader)
    ottla_cluster.wait_until_in_sync()
    assert leader in ottla_cluster.in_sync("orders")


def test_the_controller_may_die_stop_and_hang(ottla_cluster: LocalCluster) -> None:
    killed = ottla_cluster.controller
    ottla_cluster.kill(killed)
    stopped = ottla_cluster.controller
    assert stopped != killed
    ottla_cluster.start(killed)
    ottla_cluster.restart(stopped)
    hanging = ottla_cluster.controller
    ottla_cluster.pause(hanging)
    assert ottla_cluster.controller != hanging
    ottla_cluster.resume(hanging)
    ottla_cluster.topic("orders")
    ottla_cluster.wait_until_in_sync()
    produce(ottla_cluster, "orders", b"one")


def test_data_in_a_folder_is_there_again(tmp_path: Path) -> None:
    with ottla.testing.cluster(str(tmp_path), brokers=2, racks=["a", "b"]) as cluster:
        cluster.topic("orders", partitions=2, replication=2)
        produce(cluster, "orders", b"one", b"two")
    with ottla.testing.cluster(str(tmp_path), brokers=2, racks=["a", "b"]) as cluster:
        assert values_in(cluster, "orders") == [b"one", b"two"]
        assert "LocalCluster on 127.0.0.1:" in repr(cluster)


def test_what_a_test_gets_wrong_is_told(ottla_cluster: LocalCluster) -> None:
    with pytest.raises(ValueError, match="there is no topic 'nowhere'"):
        ottla_cluster.leader("nowhere")
    with pytest.raises(RuntimeError, match="up already"):
        ottla_cluster.start(1)
    ottla_cluster.topic("orders")
    follower = next(each for each in ottla_cluster.in_sync("orders") if each != ottla_cluster.controller)
    ottla_cluster.kill(follower)
    while follower in ottla_cluster.in_sync("orders"):
        pass
    with pytest.raises(AssertionError, match="not in sync: orders-0"):
        ottla_cluster.wait_until_in_sync(within=0.5)
