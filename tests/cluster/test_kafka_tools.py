"""Kafka's own tools for clusters work on one of Ottla unchanged: moves, elections, folders, the quorum, brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.apache_kafka.distribution import KafkaUnavailable, classpath
from tests.apache_kafka.harness import run_tool
from tests.cluster.processes import Cluster
from tests.conformance.script import Script

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
SECONDS = 60

pytestmark = pytest.mark.xdist_group("three brokers")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        classpath()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with Cluster(tmp_path_factory.mktemp("tools")) as cluster:
        yield cluster


def tool(cluster: Cluster, name: str, *arguments: str) -> str:
    return run_tool(name, "--bootstrap-server", cluster.bootstrap, *arguments)


def on_two(cluster: Cluster, label: str) -> str:
    """A topic with one partition, on brokers 1 and 2."""
    with Script(cluster.addresses[1], "tools", cluster.addresses) as script:
        return script.replicated([1, 2], label=label).name


def partition_of(cluster: Cluster, topic: str) -> tuple[int, list[int], list[int]]:
    """Its leader, its replicas and who is in sync."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    with Script(cluster.addresses[1], "tools") as script:
        [partition] = script.ask(request).topics[0].partitions
    return partition.leader_id, partition.replica_nodes, sorted(partition.isr_nodes)


def moves(folder: Path, topic: str, replicas: list[int], log_dirs: list[str] | None = None) -> str:
    path = folder / "moves.json"
    partition = {"topic": topic, "partition": 0, "replicas": replicas}
    if log_dirs is not None:
        partition["log_dirs"] = log_dirs
    path.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return str(path)


def verified(cluster: Cluster, path: str) -> str:
    until = time.monotonic() + SECONDS
    while "still in progress" in (told := tool(cluster, REASSIGN, "--reassignment-json-file", path, "--verify")):
        assert time.monotonic() < until, told
    return told


def test_a_partition_moves_and_its_preferred_leader_is_elected(cluster: Cluster, tmp_path: Path) -> None:
    topic = on_two(cluster, "moved")
    path = moves(tmp_path, topic, [3, 1])
    told = tool(cluster, REASSIGN, "--reassignment-json-file", path, "--execute", "--throttle", "100000000")
    assert "Successfully started partition reassignment" in told
    assert f"Reassignment of partition {topic}-0 is completed." in verified(cluster, path)
    assert partition_of(cluster, topic) == (1, [3, 1], [1, 3])
    assert "No partition reassignments found." in tool(cluster, REASSIGN, "--list")
    told = tool(cluster, ELECT, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Successfully completed leader election" in told
    assert partition_of(cluster, topic)[0] == 3
    told = tool(cluster, ELECT, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected" in told


def described(cluster: Cluster, topic: str) -> dict[int, dict[str, list[bool]]]:
    """The folders of each broker; of those with the topic whether it is only on its way there."""
    told = tool(cluster, LOG_DIRS, "--describe", "--topic-list", topic)
    found = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
    return {
        broker["broker"]: {
            folder["logDir"]: [partition["isFuture"] for partition in folder["partitions"]]
            for folder in broker["logDirs"]
        }
        for broker in found["brokers"]
    }


def test_a_replica_moves_to_another_folder(cluster: Cluster, tmp_path: Path) -> None:
    topic = on_two(cluster, "folders")
    before = described(cluster, topic)
    assert sorted(before) == [1, 2, 3]
    assert [sum(map(len, folders.values())) for _, folders in sorted(before.items())] == [1, 1, 0]
    [target] = [folder for folder, partitions in before[1].items() if not partitions]
    path = moves(tmp_path, topic, [1, 2], [target, "any"])
    tool(cluster, REASSIGN, "--reassignment-json-file", path, "--execute")
    assert f"Reassignment of replica {topic}-0-1 completed successfully." in verified(cluster, path)
    assert described(cluster, topic)[1][target] == [False]


def test_the_quorum_and_the_brokers_are_told(cluster: Cluster) -> None:
    told = tool(cluster, QUORUM, "describe", "--status")
    assert "LeaderId:" in told
    assert "CurrentVoters:" in told
    assert "Cluster ID:" in run_tool(CLUSTER, "cluster-id", "--bootstrap-server", cluster.bootstrap)
