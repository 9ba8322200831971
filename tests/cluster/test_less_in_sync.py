"""`min.insync.replicas` is lowered and raised again, and nothing that was acknowledged meanwhile is lost."""

from __future__ import annotations

import ottla.testing
from ottla.client import Admin, ConfigChange, ConfigOperation, Producer, Resource, ResourceKind
from tests.cluster.test_replicated_topics import wait_until

LEAST = "min.insync.replicas"


def test_a_replica_that_was_away_when_one_was_enough_does_not_lead() -> None:
    topic = Resource(ResourceKind.TOPIC, "t")
    with ottla.testing.cluster(brokers=2) as cluster:
        cluster.topic("t", replication=2, config={LEAST: "2"})
        cluster.wait_until_in_sync()
        leader = cluster.leader("t")
        away = 3 - leader
        cluster.kill(away)
        wait_until(lambda: cluster.in_sync("t") == [leader])
        with Admin(cluster[leader].bootstrap) as admin, Producer(cluster[leader].bootstrap) as producer:
            admin.alter_configs(topic, [ConfigChange(LEAST, ConfigOperation.SET, "1")])
            producer.send("t", b"acknowledged").result()
            admin.alter_configs(topic, [ConfigChange(LEAST, ConfigOperation.SET, "2")])
        cluster.kill(leader)
        cluster.start(away)
        assert cluster.leader("t") == -1
        cluster.start(leader)
        assert cluster.wait_for_leader("t") == leader
        cluster.wait_until_in_sync()
        assert cluster[leader].values("t") == [b"acknowledged"]
