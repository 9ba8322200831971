"""`ottla topics reassign --throttle`: replicas come as slowly as they shall, and nothing is left of that in the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla import testing
from ottla.cli.main import main
from ottla.client import Admin, NewTopic, Producer, Resource, ResourceKind
from ottla.testing.local_cluster import LocalCluster

RATES = ["leader.replication.throttled.rate", "follower.replication.throttled.rate"]
REPLICAS = ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"]
SLOW, FAST = "10000", "100000000"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with testing.cluster(brokers=2) as cluster:
        yield cluster


def throttles(cluster: LocalCluster, admin: Admin) -> list[str | None]:
    """The rates that the brokers go by, which are not described, as with Kafka; and the replicas of the topic."""
    [of_topic] = admin.describe_configs([Resource(ResourceKind.TOPIC, "t")], REPLICAS)
    rates = [broker.call(lambda found: dict(found.settings.of_broker)) for broker in cluster]
    return [texts.get(name) for texts in rates for name in RATES] + [
        {entry.name: entry.value for entry in of_topic.entries}[name] for name in REPLICAS
    ]


def test_a_throttle_is_set_with_the_move_and_goes_when_it_is_over(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        assert main(["topics", "reassign", "t", "--bootstrap", cluster.bootstrap, *arguments]) == 0
        return capsys.readouterr().out

    with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        admin.create_topics([NewTopic("t", 1, 1)])
        here = cluster.leader("t")
        there = 3 - here
        for _ in range(6):
            producer.send("t", bytes(50_000))
            producer.flush()
        untouched = throttles(cluster, admin)
        assert run("--to", str(there), "--throttle", SLOW) == f"t-0: moves to {there}\n"
        assert throttles(cluster, admin) == [SLOW] * 4 + [f"0:{here}", f"0:{there}"]
        assert run("--verify") == f"t-0: coming {there}, going {here}\n"
        assert throttles(cluster, admin)[:4] == [SLOW] * 4, "it is not over"
        assert run("--to", str(there), "--throttle", FAST, "--wait", "60") == f"t-0: moved to {there}\n"
        assert throttles(cluster, admin) == untouched
        assert run("--verify") == "no partition is on its way\n"
        assert run("--to", str(here), "--throttle", SLOW) == f"t-0: moves to {here}\n"
        run("--cancel")
        assert throttles(cluster, admin) == untouched
