"""Cluster loss: a record was acknowledged, and its broker lost it.

What one broker has only in the page cache goes with the power, as what only a leader has goes with the leader.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ottla.client import EARLIEST, LATEST, Producer, Reader
from ottla.testing import LocalBroker, LocalCluster
from ottla.testing.files import SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY, RandomLoss
from tests.sim.simulated_broker import FETCH_VERSION, SimulatedBroker, fetch_request, fetched_values

VALUES = [b"%d" % number for number in range(20)]


def acknowledged(folder: Path, *, syncs: bool) -> SimulatedFiles:
    """What is left of the files of a broker that has acknowledged all values, when it ends without a word."""
    broker = SimulatedBroker(folder, syncs=syncs)
    broker.create("t")
    client = broker.client()
    for value in VALUES:
        assert broker.produce(client, "t", value).error_code == 0
    broker.abandon()
    return broker.files


def values_left(folder: Path, files: SimulatedFiles) -> list[bytes | None]:
    """What a consumer gets when the broker runs again."""
    broker = SimulatedBroker(folder, files=files)
    answer = broker.client().ask(fetch_request("t", 0), FETCH_VERSION)
    values = fetched_values(answer.responses[0].partitions[0])
    broker.stop()
    return values


def test_a_loss_of_power_takes_what_is_only_in_the_page_cache(tmp_path: Path) -> None:
    files = acknowledged(tmp_path, syncs=False)
    files.crash(SYNCED_ONLY)
    assert values_left(tmp_path, files) == []


def test_with_fsync_what_is_acknowledged_is_on_the_disk(tmp_path: Path) -> None:
    files = acknowledged(tmp_path, syncs=True)
    files.crash(SYNCED_ONLY)
    assert values_left(tmp_path, files) == VALUES


@pytest.mark.parametrize("seed", range(10))
def test_whatever_else_the_disk_kept(tmp_path: Path, seed: int) -> None:
    files = acknowledged(tmp_path, syncs=True)
    files.crash(RandomLoss(Random(seed)))
    assert values_left(tmp_path, files) == VALUES


def test_the_end_of_the_process_takes_nothing_from_the_page_cache(tmp_path: Path) -> None:
    assert values_left(tmp_path, acknowledged(tmp_path, syncs=False)) == VALUES


@pytest.mark.ottla(topics={"t": 1})
def test_nor_on_a_real_disk(ottla: LocalBroker) -> None:
    ottla.put("t", *VALUES)
    ottla.restart(kill=True)
    assert ottla.values("t") == VALUES


def read_all(cluster: LocalCluster) -> list[bytes | None]:
    with Reader(cluster.bootstrap, "t", start=EARLIEST, end=LATEST) as reader:
        return [record.value for fetched in reader for record in fetched.records]


@pytest.mark.ottla_cluster(brokers=2, topics={"t": 1}, settings={"replica.lag.time.max.ms": 600_000})
def test_what_only_the_leader_has_acknowledged_goes_with_the_leader(ottla_cluster: LocalCluster) -> None:
    leader = ottla_cluster.leader("t")
    silence = ottla_cluster[leader].faults.silence("Fetch", times=1_000_000)
    silence.wait(30)  # the follower, which still counts as in sync, gets nothing more
    with Producer(ottla_cluster.bootstrap) as patient:
        with Producer(ottla_cluster.bootstrap, acks="1") as producer:
            producer.send("t", b"acks=1").result(30)
        kept = patient.send("t", b"acks=all")
        ottla_cluster.kill(leader)
        assert ottla_cluster.wait_for_leader("t") != leader
        kept.result(60)
    assert read_all(ottla_cluster) == [b"acks=all"]
    ottla_cluster.start(leader)
    ottla_cluster.wait_until_in_sync()
    assert read_all(ottla_cluster) == [b"acks=all"]
