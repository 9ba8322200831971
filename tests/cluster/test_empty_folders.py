"""A broker comes back without its data: it leads nothing that others have, and is forgotten when it stays away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import ottla.testing
from ottla.cli.main import main
from ottla.client import Admin, Producer, ServerError
from ottla.testing import LocalCluster
from tests.cluster.test_replicated_topics import wait_until

VALUES = [f"v{number}".encode() for number in range(20)]


def lose_folder(cluster: LocalCluster, node_id: int) -> None:
    folder = Path(cluster.folder, f"broker-{node_id}")
    shutil.rmtree(folder)
    folder.mkdir()


def read(cluster: LocalCluster) -> list[bytes | None]:
    return cluster[cluster.wait_for_leader("t")].values("t")


@pytest.mark.parametrize("back_first", [1, 2, 3])
def test_all_are_killed_and_one_has_lost_its_folder(back_first: int) -> None:
    with ottla.testing.cluster(brokers=3) as cluster:
        cluster.topic("t", partitions=1)
        with Producer(cluster.bootstrap) as producer:
            for value in VALUES:
                producer.send("t", value)
        empty = cluster.leader("t")
        for node_id in (1, 2, 3):
            cluster.kill(node_id)
        lose_folder(cluster, empty)
        order = sorted((1, 2, 3), key=lambda node_id: (node_id != back_first, node_id))
        for node_id in order:
            cluster.start(node_id)
        cluster.wait_for_leader("t")
        cluster.wait_until_in_sync()
        assert read(cluster) == VALUES
        cluster.kill(next(node_id for node_id in (1, 2, 3) if node_id != empty))
        cluster.wait_for_leader("t")
        wait_until(lambda: read(cluster) == VALUES)


@pytest.mark.parametrize("is_clean", [True, False])
def test_all_are_killed_and_one_has_an_old_copy_of_its_folder(is_clean: bool, tmp_path: Path) -> None:
    """As when a disk that was taken out is put in again: what was written since is on the other one."""
    with ottla.testing.cluster(brokers=3) as cluster:
        cluster.topic("t", partitions=1)
        with Producer(cluster.bootstrap) as producer:
            producer.send("t", VALUES[0]).result()
        old = cluster.leader("t")
        folder = Path(cluster.folder, f"broker-{old}")
        (cluster.stop if is_clean else cluster.kill)(old)
        shutil.copytree(folder, tmp_path / "copy")
        cluster.start(old)
        cluster.wait_until_in_sync()
        with Producer(cluster.bootstrap) as producer:
            for value in VALUES[1:]:
                producer.send("t", value)
        for node_id in (1, 2, 3):
            cluster.kill(node_id)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "copy", folder)
        for node_id in (old, *({1, 2, 3} - {old})):
            cluster.start(node_id)
        cluster.wait_for_leader("t")
        cluster.wait_until_in_sync()
        assert read(cluster) == VALUES


@pytest.mark.parametrize("is_folder", [False, True])
def test_all_are_killed_and_one_has_lost_the_files_of_a_partition(is_folder: bool) -> None:
    with ottla.testing.cluster(brokers=3) as cluster:
        cluster.topic("t", partitions=1)
        with Producer(cluster.bootstrap) as producer:
            for value in VALUES:
                producer.send("t", value)
        cluster.wait_until_in_sync()
        damaged = cluster.leader("t")
        cluster.restart(damaged)  # so that it has noted what is committed
        cluster.wait_until_in_sync()
        for node_id in (1, 2, 3):
            cluster.kill(node_id)
        [log] = Path(cluster.folder, f"broker-{damaged}", "t-0").glob("*.log")
        if is_folder:
            shutil.rmtree(log.parent)
        else:
            log.unlink()
        for node_id in (damaged, *({1, 2, 3} - {damaged})):
            cluster.start(node_id)
        assert cluster.wait_for_leader("t") != damaged
        cluster.wait_until_in_sync()
        for node_id in (1, 2, 3):
            wait_until(lambda: cluster[node_id].values("t") == VALUES)  # noqa: B023


def test_the_last_one_in_sync_comes_back_empty(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"min.insync.replicas": 1}
    with ottla.testing.cluster(brokers=3, settings=settings) as cluster:
        cluster.topic("t", partitions=1)
        with Producer(cluster.bootstrap) as producer:
            for value in VALUES:
                producer.send("t", value)
        last = cluster.leader("t")
        others = [node_id for node_id in (1, 2, 3) if node_id != last]
        for node_id in others:
            cluster.stop(node_id)
        assert cluster.in_sync("t") == [last]
        cluster.kill(last)
        lose_folder(cluster, last)
        for node_id in (last, *others):
            cluster.start(node_id)
        with Admin(cluster.bootstrap) as admin:
            [topic] = admin.describe_topics(["t"])
            assert topic.partitions[0].leader_id == -1
        assert main(["topics", "elect", "t", "--unclean", "--bootstrap", cluster.bootstrap]) == 0
        assert cluster.wait_for_leader("t") in others
        cluster.wait_until_in_sync()
        assert read(cluster) == VALUES


def test_a_broker_that_is_gone_for_good_is_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    with ottla.testing.cluster(brokers=3) as cluster:
        gone = next(node_id for node_id in (1, 2, 3) if node_id != cluster.controller)
        bootstrap = cluster[cluster.controller].bootstrap
        cluster.topic("t", partitions=2)
        cluster.kill(gone)
        cluster.wait_for_leader("t", 0)
        cluster.wait_for_leader("t", 1)
        wait_until(lambda: gone not in cluster.in_sync("t"))
        with Admin(bootstrap) as admin, pytest.raises(ServerError, match=f"missing: {gone}"):
            admin.expand_in_order({"t": 4})
        capsys.readouterr()
        assert main(["cluster", "unregister", str(gone), "--bootstrap", bootstrap]) == 0
        assert capsys.readouterr().out == f"broker {gone}: unregistered\n"
        assert main(["cluster", "unregister", str(gone), "--bootstrap", bootstrap]) == 1
        assert f"Broker ID {gone} is not currently registered" in capsys.readouterr().err
