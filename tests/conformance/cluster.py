"""The cluster that exchanges with several brokers run on: three, of which the second coordinates everything."""

from __future__ import annotations

from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.conformance.requests import creatable
from tests.conformance.script import Addresses, PreparationFailed, Script, Topic

BROKERS = 3
COORDINATOR = 2
COORDINATOR_REPLICAS = [2, 3, 1]
CLUSTER_SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}


def prepare_cluster(brokers: Addresses) -> None:
    """The topics of the coordinators are made with leaders that are known."""
    with Script(brokers[1], "first", brokers) as script:
        script.patience_s = 60
        for name in ("__consumer_offsets", "__transaction_state"):
            topic = creatable(
                name,
                partitions=-1,
                factor=-1,
                configs=[("cleanup.policy", "compact")],
                assignments={0: COORDINATOR_REPLICAS},
            )
            [created] = script.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
            if created.error_code:
                raise PreparationFailed(f"{name} was not created: {created}")
            script.await_leader(Topic(name, created.topic_id), COORDINATOR, in_sync=BROKERS)
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
            script.ask_until(request, until=lambda answer: answer.coordinators[0].error_code == 0)


def without(brokers: Addresses, down: int | None) -> Addresses:
    """The brokers that are left, once they know it."""
    left = {node_id: address for node_id, address in brokers.items() if node_id != down}
    with Script(left[1], "first", left) as script:
        script.patience_s = 60
        for node_id in left:
            script.ask_until(
                MetadataRequest(topics=[]),
                until=lambda answer: len(answer.brokers) == len(left),
                on=f"broker {node_id} prepare",
            )
    return left
