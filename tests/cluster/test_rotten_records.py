"""Records rot on the disk of one replica: it copies them again from another, and does not lead before."""

from __future__ import annotations

from pathlib import Path

import pytest

import ottla.testing
from ottla.client import Producer
from ottla.log.files import DiskFiles
from ottla.log.folders import LogFolders
from ottla.log.hole import END_MARK, MARK
from ottla.log.segment import INDEX
from ottla.log.topic_config import TopicConfig
from ottla.testing import LocalCluster
from tests.cluster.test_replicated_topics import wait_until

VALUES = [b"%d" % number + b"." * 20_000 for number in range(120)]
SETTINGS = {"log.segment.bytes": 1 << 20, "min.insync.replicas": 1}
ROTTEN_SEGMENT = 1  # of three


def write(cluster: LocalCluster) -> None:
    cluster.topic("t", partitions=1)
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for value in VALUES:
            producer.send("t", value).result()
    cluster.wait_until_in_sync()


def rot(cluster: LocalCluster, node_id: int) -> Path:
    """A bit changes in the middle of a segment that is read at the next start, since its index is gone."""
    folder = Path(cluster.folder, f"broker-{node_id}", "t-0")
    segment = sorted(folder.glob("*.log"))[ROTTEN_SEGMENT]
    contents = bytearray(segment.read_bytes())
    contents[len(contents) // 2] ^= 1
    segment.write_bytes(contents)
    segment.with_suffix(INDEX).unlink()
    return folder


def start_and_kill_at_once(cluster: LocalCluster, node_id: int) -> None:
    """Its data is open, and nobody has heard of it yet."""
    logs = LogFolders(DiskFiles(), [f"{cluster.folder}/broker-{node_id}"])
    logs.open(lambda _topic: TopicConfig(), 0, {})
    logs.abandon()


@pytest.mark.parametrize("starts", ["once", "twice"])
def test_rot_in_what_was_written_last_does_not_cost_the_others_what_they_have(starts: str) -> None:
    """Nobody knows yet that it is on the disk, nor that it is committed: the log is cut there."""
    noted_late = {"replica.high.watermark.checkpoint.interval.ms": 600_000}
    with ottla.testing.cluster(brokers=3, settings={"min.insync.replicas": 1, **noted_late}) as cluster:
        write(cluster)
        damaged = cluster.leader("t")
        stopped = [damaged, *({1, 2, 3} - {damaged})]
        for node_id in stopped:
            cluster.kill(node_id)
        folder = Path(cluster.folder, f"broker-{damaged}", "t-0")
        segment = folder / f"{0:020d}.log"
        contents = bytearray(segment.read_bytes())
        contents[len(contents) // 2] ^= 1
        segment.write_bytes(contents)
        if starts == "twice":
            start_and_kill_at_once(cluster, damaged)
        for node_id in stopped:
            cluster.start(node_id)
        assert cluster.wait_for_leader("t") != damaged
        cluster.wait_until_in_sync()
        assert cluster[damaged].values("t") == VALUES
        assert not (folder / END_MARK).exists()


@pytest.mark.parametrize("how", ["it leads and all are killed", "it is stopped", "it is killed"])
def test_what_has_rotted_is_copied_again(how: str) -> None:
    with ottla.testing.cluster(brokers=3, settings=SETTINGS) as cluster:
        write(cluster)
        damaged = cluster.leader("t")
        cluster.restart(damaged)  # so that it has noted what is on its disk
        cluster.wait_until_in_sync()
        if how == "it leads and all are killed":
            stopped = [damaged, *({1, 2, 3} - {damaged})]
        else:
            stopped = [damaged]
        for node_id in stopped:
            (cluster.stop if how == "it is stopped" else cluster.kill)(node_id)
        folder = rot(cluster, damaged)
        for node_id in stopped:
            cluster.start(node_id)
        assert cluster.wait_for_leader("t") != damaged
        wait_until(lambda: list(folder.glob("*.rotten")) != [])
        cluster.wait_until_in_sync()
        assert cluster[damaged].values("t") == VALUES
        assert not (folder / MARK).exists()
        cluster.restart(damaged)
        cluster.wait_until_in_sync()
        assert cluster[damaged].values("t") == VALUES


def test_the_last_one_in_sync_leads_without_what_has_rotted_and_the_others_keep_it() -> None:
    with ottla.testing.cluster(brokers=2, settings=SETTINGS) as cluster:
        write(cluster)
        damaged = cluster.leader("t")
        other = 3 - damaged
        cluster.stop(other)
        wait_until(lambda: cluster.in_sync("t") == [damaged])
        with Producer(cluster.bootstrap) as producer:
            producer.send("t", b"later").result()
        cluster.stop(damaged)
        folder = rot(cluster, damaged)
        cluster.start(damaged)
        assert cluster.wait_for_leader("t") == damaged
        served = cluster[damaged].values("t")
        assert len(served) == len(VALUES)
        assert served[-1] == b"later"
        assert (folder / MARK).exists()
        cluster.start(other)
        cluster.wait_until_in_sync()
        cluster.restart(damaged)
        cluster.wait_until_in_sync()
        for node_id in (1, 2):
            assert cluster[node_id].values("t") == [*VALUES, b"later"]
        assert not (folder / MARK).exists()


def test_a_broker_with_rotten_records_leads_what_is_sound_there() -> None:
    with ottla.testing.cluster(brokers=3, settings=SETTINGS) as cluster:
        write(cluster)
        damaged = cluster.leader("t")
        cluster.topic("sound", partitions=3, config={"min.insync.replicas": 2})
        cluster.restart(damaged)
        cluster.wait_until_in_sync()
        others = sorted({1, 2, 3} - {damaged})
        for node_id in others:
            cluster.kill(node_id)
        partitions = [("t", 0), *(("sound", index) for index in range(3))]
        wait_until(lambda: all(cluster.in_sync(*partition) == [damaged] for partition in partitions))
        cluster.kill(damaged)
        rot(cluster, damaged)
        cluster.start(damaged)
        for index in range(3):
            assert cluster.wait_for_leader("sound", index, within=15.0) == damaged
        for node_id in others:
            cluster.start(node_id)
        cluster.wait_until_in_sync()
