"""The APIs of clusters on a broker that is alone: it decides, it leads, and there is nowhere to move to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.handlers import (
    alter_partition_reassignments,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
)
from ottla.controller.changes import BrokerDown, BrokerUp, ChangedStates
from ottla.controller.layout import BrokerNode
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.opened_broker import OpenBroker, topic
from tests.conformance.cluster_requests import describe_quorum as quorum_of
from tests.conformance.cluster_requests import elect, list_reassignments, reassign


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[OpenBroker]:
    alone = OpenBroker(tmp_path)
    alone.create(topic("t", 2))
    yield alone
    alone.stop()


def test_an_election_is_not_needed_where_one_broker_leads(alone: OpenBroker) -> None:
    [result] = alone.ask(elect_leaders, elect({"t": [0, 1]})).replica_election_results
    assert [(each.partition_id, each.error_code) for each in result.partition_result] == [(0, 84), (1, 84)]
    assert alone.ask(elect_leaders, elect(None)).replica_election_results == []


def test_somebody_leads_again_after_an_election(alone: OpenBroker) -> None:
    cluster = alone.broker.controller.cluster
    state = cluster.states["t"][0]
    cluster.replay(ChangedStates({"t": {0: state._replace(leader_id=-1)}}))
    [result] = alone.ask(elect_leaders, elect(None)).replica_election_results
    assert [(each.partition_id, each.error_code) for each in result.partition_result] == [(0, 0)]
    assert cluster.states["t"][0].leader_id == 1


def test_many_partitions_are_reassigned_in_parts(alone: OpenBroker) -> None:
    alone.create(topic("many", 1200))
    moves = [("many", index, [1]) for index in range(1200)]
    answer = alone.ask(alter_partition_reassignments, reassign(*moves, ("t", 7, [1]), ("t", 0, [9])))
    codes = [partition.error_code for found in answer.responses for partition in found.partitions]
    assert codes == [0] * 1200 + [3, 39]
    assert alone.ask(list_partition_reassignments, list_reassignments(None)).topics == []


def test_a_move_to_a_broker_that_is_down_goes_on_until_it_is_taken_back(alone: OpenBroker) -> None:
    cluster = alone.broker.controller.cluster
    cluster.replay(BrokerUp(2, 5, BrokerNode({})))
    cluster.replay(BrokerDown(2))
    alone.ask(alter_partition_reassignments, reassign(("t", 1, [2, 1])))
    for asked in (None, {"t": [0, 1]}):
        [found] = alone.ask(list_partition_reassignments, list_reassignments(asked)).topics
        [moving] = found.partitions
        assert (moving.partition_index, moving.replicas) == (1, [2, 1])
        assert (moving.adding_replicas, moving.removing_replicas) == ([2], [])
    [answer] = alone.ask(alter_partition_reassignments, reassign(("t", 1, None))).responses
    assert answer.partitions[0].error_code == 0
    assert alone.ask(list_partition_reassignments, list_reassignments(None)).topics == []
    assert cluster.topics["t"].replicas[1] == [1]


def test_the_broker_that_decides_is_not_forgotten(alone: OpenBroker) -> None:
    answer = alone.ask(unregister_broker, UnregisterBrokerRequest(broker_id=1))
    assert (answer.error_code, answer.error_message) == (42, "Broker ID 1 is the controller; stop it first.")
    assert 1 in alone.broker.cluster.brokers


def test_the_controller_is_told_as_the_leader_of_the_quorum(alone: OpenBroker) -> None:
    answer = alone.ask(describe_quorum, quorum_of({"__cluster_metadata": [0]}))
    [partition] = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (0, 1)
    [voter] = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
    assert voter.log_end_offset > 0
    assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp > 0
    assert [node.node_id for node in answer.nodes] == [1]
