"""Client libraries on three brokers, of which one after the other is restarted in good order, or killed with -9.

What was acknowledged is there once, and what is there was read. A rolling restart, as docs/cluster.md has it, leaves
no error to the users of a library; a kill leaves none that lasts.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.client import EARLIEST, LATEST, Admin, NewTopic, Reader
from tests.apache_kafka.distribution import KafkaUnavailable, classpath
from tests.apache_kafka.harness import JAVA, LOG_WARNINGS
from tests.cluster.loads import JAVA_PROGRAM, LIBRARIES, PARTITIONS, Load, loads, python_load
from tests.cluster.processes import Cluster
from tests.zookeeper.servers import ZookeeperServers, missing

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
}
STATUS_SECONDS = 90


@pytest.fixture(params=["local", "zookeeper"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        store = None
        if request.param == "zookeeper":
            if (reason := missing()) is not None:
                pytest.skip(reason)
            servers = stack.enter_context(ZookeeperServers(tmp_path / "zookeeper"))
            store = f"zookeeper://{servers.hosts}/ottla"
        yield stack.enter_context(Cluster(tmp_path, settings=SETTINGS, store=store))


def commands(cluster: Cluster, clients: Sequence[str]) -> dict[str, Sequence[str]]:
    """How to start each of them, with a topic of its own."""
    found: dict[str, Sequence[str]] = {client: python_load(client, cluster.bootstrap, client) for client in clients}
    if "java" in found:
        try:
            found["java"] = [*JAVA, LOG_WARNINGS, "-cp", classpath(), str(JAVA_PROGRAM), cluster.bootstrap, "java"]
        except KafkaUnavailable:
            del found["java"]
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(client, PARTITIONS, 3) for client in found])
    return found


def wait_until_in_sync(cluster: Cluster) -> None:
    """As somebody would who restarts brokers one by one."""
    command = [sys.executable, "-m", "ottla", "cluster", "status", "--bootstrap", cluster.bootstrap]
    ended = subprocess.run(
        [*command, "--wait", str(STATUS_SECONDS)],
        capture_output=True,
        text=True,
        timeout=2 * STATUS_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert "every replica is in sync" in ended.stdout


def controller_last(cluster: Cluster) -> list[int]:
    with Admin(cluster.bootstrap) as admin:
        controller_id = admin.describe_cluster().controller_id
    return sorted(cluster.brokers, key=lambda node_id: (node_id == controller_id, node_id))


def check(cluster: Cluster, working: dict[str, Load]) -> None:
    for load in working.values():
        load.begin_stop()
    for client, load in working.items():
        load.await_stop()
        acknowledged = load.numbers("acknowledged")
        with Reader(cluster.bootstrap, client, start=EARLIEST, end=LATEST) as reader:
            stored = Counter(int(record.value) for fetched in reader for record in fetched.records)
        assert len(acknowledged) > 0
        assert set(acknowledged) <= stored.keys(), client
        assert not [number for number, count in stored.items() if count > 1], client
        assert set(acknowledged) <= set(load.numbers("received")), f"{client}: {load.told}"


def test_a_rolling_restart_leaves_no_error_to_anybody(cluster: Cluster, tmp_path: Path) -> None:
    with loads(tmp_path, commands(cluster, ["confluent-kafka", "ottla.client"])) as working:
        for node_id in controller_last(cluster):
            cluster.brokers[node_id].stop()
            cluster.brokers[node_id].start()
            wait_until_in_sync(cluster)
            for load in working.values():
                load.wait_for_more()
                load.wait_for_more("received")
        check(cluster, working)
        assert {client: load.said("error") for client, load in working.items()} == {client: [] for client in working}


@pytest.mark.parametrize("cluster", ["local"], indirect=True)
def test_clients_go_on_when_leaders_and_the_controller_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    with loads(tmp_path, commands(cluster, [*LIBRARIES, "java"])) as working:
        for node_id in controller_last(cluster)[1:]:  # the controller, and one that is not
            cluster.brokers[node_id].kill()
            for load in working.values():
                load.wait_for_more()
            cluster.brokers[node_id].start()
            wait_until_in_sync(cluster)
        check(cluster, working)
        failed = {client: [told for told in load.said("error") if "write" in told] for client, load in working.items()}
        assert failed == {client: [] for client in working}
