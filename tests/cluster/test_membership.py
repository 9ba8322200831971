"""Brokers of one cluster: one of them decides, all know the same, and whoever goes or comes back finds its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.controller import feed
from ottla.broker.controller.applier import Applier
from ottla.config import ConfigError
from ottla.controller import layout
from ottla.controller.changes import ChangedStates
from ottla.controller.cluster import Cluster
from ottla.controller.layout import NOBODY
from ottla.controller.local_store import LocalStore
from ottla.controller.memory_nodes import MemoryNodes
from ottla.controller.store import CommitUncertain, Create, Delete, Operation, Put
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.cluster_feed import ClusterFeedRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.cluster.one_loop import Brokers
from tests.conformance import group_requests, requests
from tests.conformance.cluster_requests import describe_quorum as quorum_of

TOPIC, BROKER = 2, 4


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path)
    brokers.start(1, 2, 3)
    brokers.agree()
    yield brokers
    brokers.close()


def test_topics_are_created_anywhere_and_metadata_is_the_same_everywhere(brokers: Brokers) -> None:
    for node_id in (1, 2, 3):
        made = brokers.create(node_id, f"made-by-{node_id}")
        assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 3, 3)
        names = {topic.name for topic in brokers.ask(node_id, requests.metadata(f"made-by-{node_id}")).topics}
        assert names == {f"made-by-{node_id}"}  # who asks reads what it wrote
    brokers.agree()
    answers = [brokers.ask(node_id, requests.metadata("made-by-1", "made-by-2", "made-by-3")) for node_id in (1, 2, 3)]
    assert answers[0] == answers[1] == answers[2]
    first = answers[0]
    assert first.controller_id == 1
    assert [(broker.node_id, broker.port) for broker in first.brokers] == [
        (node_id, brokers[node_id].address.port) for node_id in (1, 2, 3)
    ]
    for topic in first.topics:
        assert topic.error_code == 0
        assert {partition.leader_id for partition in topic.partitions} == {1, 2, 3}
        for partition in topic.partitions:
            assert sorted(partition.replica_nodes) == sorted(partition.isr_nodes) == [1, 2, 3]
    described = brokers.ask(3, DescribeClusterRequest(include_cluster_authorized_operations=False))
    assert (described.controller_id, len(described.brokers)) == (1, 3)
    assert all(api.api_key < 100 for api in brokers.ask(2, ApiVersionsRequest(), 0).api_keys)


def test_a_refusal_of_the_controller_is_passed_on(brokers: Brokers) -> None:
    brokers.create(3, "t")
    again = brokers.create(2, "t")
    assert (again.error_code, again.error_message) == (36, "Topic 't' already exists.")
    assert brokers.create(3, "u", factor=4).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_dead_broker_is_missed_at_once_and_comes_back_in_sync(brokers: Brokers) -> None:
    brokers.create(1, "t", partitions=6)
    before = brokers.states(1)
    brokers.kill(3)
    brokers.agree()
    for old, new in zip(before, brokers.states(2), strict=True):
        assert new.leader_id in (1, 2)
        assert new.in_sync == tuple(member for member in old.in_sync if member != 3)
        assert new.leader_epoch == old.leader_epoch + (old.leader_id == 3)
    topic = brokers.ask(2, requests.metadata("t")).topics[0]
    assert all(partition.offline_replicas == [3] for partition in topic.partitions)
    brokers.start(3)
    brokers.in_sync()


def test_a_dead_controller_is_replaced(brokers: Brokers) -> None:
    brokers.create(2, "t", partitions=6)
    brokers.agree()
    assert brokers.controller_id == 1
    brokers.kill(1)
    brokers.agree()
    assert brokers.controller_id in (2, 3)
    assert {state.leader_id for state in brokers.states(2)} == {2, 3}
    assert all(1 not in state.in_sync for state in brokers.states(3))
    assert brokers.create(2, "u", factor=2).error_code == 0
    assert brokers.create(3, "v", factor=2).error_code == 0
    brokers.start(1)
    brokers.in_sync()
    assert not brokers[1].membership.is_controller
    assert set(brokers[1].topics.by_name) == {"t", "u", "v"}


def test_the_last_of_three_goes_on_alone_and_all_come_back(brokers: Brokers) -> None:
    brokers.create(2, "t")
    brokers.agree()
    brokers.kill(2)
    brokers.kill(1)
    brokers.agree()
    assert {state.leader_id for state in brokers.states(3)} == {3}
    brokers.kill(3)
    brokers.start(3)
    epochs = [state.leader_epoch for state in brokers.states(3)]
    assert {state.leader_id for state in brokers.states(3)} == {3}
    brokers.start(1, 2)
    brokers.in_sync()
    assert [state.leader_epoch for state in brokers.states(1)] == epochs


def test_who_is_to_decide_opens_its_data_before_the_others_wait_for_it(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.create(1, "t")
    brokers.in_sync()
    for node_id in (1, 2, 3):
        brokers.kill(node_id)
    opened, found = Applier.open, []

    def note(applier: Applier, cluster: Cluster, *, is_up: bool = True) -> None:
        found.append("controller" in MemoryNodes(brokers.tree).children(""))
        opened(applier, cluster, is_up=is_up)

    monkeypatch.setattr(Applier, "open", note)
    brokers.start(2)
    assert found == [False]
    assert brokers[2].membership.is_controller
    assert all(state.leader_id == 2 for state in brokers.states(2))
    brokers.start(1, 3)
    brokers.in_sync()


def test_nothing_is_led_before_the_cluster_knows_of_the_new_start(brokers: Brokers) -> None:
    """Whatever is told meanwhile: it may be the epoch of the last life, which is over."""
    brokers.create(1, "t", partitions=1)
    brokers.in_sync()
    broker, [state] = brokers[2], brokers.states(2)
    [partition] = broker.topics.by_name["t"].partitions
    told = state._replace(leader_id=2, leader_epoch=9, partition_epoch=99)
    broker.membership._applier.takes_roles = False
    applied: list[object] = []
    broker.membership._applier.apply([ChangedStates({"t": {0: told}})], lambda *done: applied.append(done))
    brokers.wait(lambda: bool(applied))
    assert partition.leader_epoch == state.leader_epoch
    broker.cluster.states["t"] = [told]
    broker.membership.view.take_roles(lambda: applied.append(None))
    brokers.wait(lambda: len(applied) == 2)
    assert partition.is_leader


def test_one_that_was_believed_dead_registers_again_and_leads_in_a_new_epoch(brokers: Brokers) -> None:
    brokers.create(1, "t")
    brokers.agree()
    [index] = [index for index, state in enumerate(brokers.states(1)) if state.leader_id == 2]
    before, epoch = brokers.states(1)[index], brokers[2].membership.broker_epoch
    MemoryNodes(brokers.tree).commit([Delete(layout.broker_path(2))])
    brokers.wait(lambda: brokers[2].membership.broker_epoch > epoch)
    brokers.wait(lambda: brokers[1].cluster.brokers[2].epoch == brokers[2].membership.broker_epoch)
    brokers.in_sync()
    assert brokers.states(1)[index].leader_epoch > before.leader_epoch


def test_a_controller_that_lost_its_office_changes_nothing_and_the_request_is_answered_all_the_same(
    brokers: Brokers,
) -> None:
    controller = brokers[1].controller
    epoch = controller.office.epoch
    MemoryNodes(brokers.tree).commit([Put(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(epoch + 1))])
    assert brokers.create(1, "t").error_code == 0  # decided by the next controller, whoever that is
    brokers.agree()
    assert brokers[brokers.controller_id].controller.office.epoch > epoch + 1
    assert all(state.controller_epoch > epoch + 1 for state in brokers.states(2))
    assert controller.cluster.topics == {} or controller.cluster is not brokers[1].cluster


@pytest.mark.parametrize("is_metadata", [True, False], ids=["metadata", "a-coordinator"])
def test_a_topic_that_nobody_asked_to_create_is_created_though_the_controller_loses_its_office(
    brokers: Brokers, is_metadata: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What a client asks for is one thing; a broker's own topics, and those that metadata creates, are another."""
    epoch = brokers[1].controller.office.epoch
    MemoryNodes(brokers.tree).commit([Put(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(epoch + 1))])
    request = requests.metadata("new", create=True) if is_metadata else group_requests.find_coordinators("g")
    brokers.ask(1, request)
    brokers.wait(lambda: ("new" if is_metadata else "__consumer_offsets") in brokers[2].cluster.topics)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("node_id", [1, 2], ids=["the-controller", "a-broker"])
def test_one_that_lost_its_session_finds_its_place_again(brokers: Brokers, node_id: int) -> None:
    brokers.create(1, "t")
    brokers.agree()
    epoch, office = brokers[node_id].membership.broker_epoch, brokers[1].controller.office.epoch
    brokers.end_session(node_id)
    brokers.wait(lambda: brokers[node_id].membership.broker_epoch > epoch)
    brokers.in_sync()
    assert brokers[brokers.controller_id].controller.office.epoch == office + (node_id == 1)
    assert brokers.create(node_id, "u").error_code == 0
    brokers.agree()
    assert set(brokers[1].topics.by_name) == set(brokers[2].topics.by_name) == {"t", "u"}


def test_a_registration_that_outlives_its_broker_is_taken_over(brokers: Brokers) -> None:
    brokers.create(1, "t")
    brokers.agree()
    left = MemoryNodes(brokers.tree)
    data = left.get(layout.broker_path(3)).data
    brokers.kill(3)
    brokers.agree()
    left.commit([Create(layout.broker_path(3), data, is_ephemeral=True)])  # its port is refused
    brokers.start(3)
    brokers.in_sync()


def test_a_second_broker_of_the_same_id_is_refused(brokers: Brokers, tmp_path: Path) -> None:
    other = Brokers(tmp_path / "other")
    (tmp_path / "other").mkdir()
    other.loop, other.tree = brokers.loop, brokers.tree
    port = brokers[2].address.port
    with pytest.raises(ConfigError, match=f"node.id 2: another broker of this id is running at 127.0.0.1:{port}"):
        other.start(2)
    brokers.agree()
    assert brokers[2].membership.is_up


@pytest.mark.parametrize("node_id", [1, 2])
def test_who_is_replaced_by_another_of_its_id_stops(brokers: Brokers, node_id: int) -> None:
    """As when the same machine is started a second time elsewhere: both say that they are at the same address."""
    path, nodes = layout.broker_path(node_id), MemoryNodes(brokers.tree)
    node = layout.decode_broker(nodes.get(path).data)
    other = layout.encode_broker(node._replace(timestamp_ms=node.timestamp_ms + 1))
    nodes.commit([Delete(path), Create(path, other, is_ephemeral=True)])
    brokers.wait(lambda: brokers[node_id].halted is not None)
    assert brokers[node_id].halted == f"node.id {node_id}: another broker of this id was started"
    assert nodes.get(path).data == other


def test_settings_and_quotas_reach_all_brokers(brokers: Brokers) -> None:
    brokers.create(1, "t")
    brokers.ask(2, requests.change_configs(TOPIC, "t", [("retention.ms", 0, "12345")]))
    brokers.ask(3, requests.change_configs(BROKER, "", [("max.connections", 0, "777")]))
    brokers.ask(3, requests.change_configs(BROKER, "3", [("max.connections", 0, "333")]))
    brokers.ask(3, requests.alter_quotas([("client-id", "c")], ("producer_byte_rate", 7.0)))
    other = brokers.ask(2, requests.change_configs(BROKER, "3", [("max.connections", 0, "1")]))
    assert (other.responses[0].error_code, other.responses[0].error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Unexpected broker id, expected 2, but received 3",
    )
    brokers.agree()
    for node_id, broker in brokers.running.items():
        assert [partition.log.config.retention_ms for partition in broker.topics.by_name["t"].partitions] == [12345] * 3
        assert broker.settings.config.max_connections == (333 if node_id == 3 else 777)
        assert broker.quotas.are_set
    brokers.kill(3)
    brokers.start(3)
    assert brokers[3].settings.config.max_connections == 333
    assert brokers[3].quotas.are_set


def test_a_topic_that_was_deleted_while_a_broker_was_down_is_put_aside_there(brokers: Brokers, tmp_path: Path) -> None:
    brokers.create(1, "t")
    brokers.create(1, "kept")
    brokers.agree()
    for index in range(3):
        (tmp_path / "3" / f"t-{index}").mkdir(exist_ok=True)
    brokers.kill(3)
    brokers.agree()
    assert brokers.ask(2, requests.delete_topics("t")).responses[0].error_code == 0
    brokers.agree()
    brokers.start(3)
    brokers.agree()
    for broker in brokers.running.values():
        assert list(broker.topics.by_name) == ["kept"]
    assert not list((tmp_path / "3").glob("t-?"))
    assert len(list((tmp_path / "3").glob("t-*-stray"))) == 3


def test_a_topic_with_fewer_replicas_is_only_where_it_belongs(brokers: Brokers) -> None:
    brokers.create(3, "t", partitions=6, factor=1)
    brokers.agree()
    for node_id, broker in brokers.running.items():
        topic = broker.topics.by_name["t"]
        led = {index for index, state in enumerate(brokers.states(node_id)) if state.leader_id == node_id}
        assert topic.partition_count == 6
        assert set(topic.replicas) == led
        assert {index for name, index in broker.logs.logs if name == "t"} == led
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], response_partition_limit=100, cursor=None)
    [described] = brokers.ask(2, asked).topics
    assert [partition.partition_index for partition in described.partitions] == list(range(6))
    brokers.kill(3)
    brokers.agree()
    states = brokers.states(1)
    lost = {partition.partition_index for partition in described.partitions if partition.leader_id == 3}
    assert {index for index, state in enumerate(states) if state.leader_id == NOBODY} == lost
    topic = brokers.ask(1, requests.metadata("t")).topics[0]
    codes = {partition.partition_index: partition.error_code for partition in topic.partitions}
    assert codes == {index: ErrorCode.LEADER_NOT_AVAILABLE if index in lost else 0 for index in range(6)}
    brokers.start(3)
    assert {index for index, state in enumerate(brokers.states(3)) if state.leader_id == 3} == lost


def test_who_stops_in_good_order_has_others_lead_first(brokers: Brokers) -> None:
    brokers.create(1, "t", partitions=6)
    brokers.agree()
    seen: list[int] = []
    for node_id in (2, 1):  # the second is the controller
        leaders = {index for index, state in enumerate(brokers.states(node_id)) if state.leader_id == node_id}
        assert leaders
        broker = brokers[node_id]
        brokers.stop(node_id)
        final = [broker.cluster.states["t"][index].leader_id for index in leaders]
        assert set(final) <= set(brokers.running)  # before it stopped
        seen += final
        brokers.agree()
    assert seen
    assert {state.leader_id for state in brokers.states(3)} == {3}


def test_preferred_leaders_lead_again(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, leader_imbalance_check_interval_seconds="1")
    brokers.start(1, 2, 3)
    brokers.create(1, "t", partitions=6)
    brokers.agree()
    brokers.kill(3)
    brokers.agree()
    brokers.start(3)
    brokers.in_sync()
    replicas = brokers[1].cluster.topics["t"].replicas
    brokers.wait(lambda: [state.leader_id for state in brokers.states(2)] == [each[0] for each in replicas])
    brokers.close()


def test_one_whose_machine_was_started_anew_gives_way_to_others(brokers: Brokers) -> None:
    brokers.create(1, "t")
    brokers.agree()
    for node_id in (2, 3, 1):
        brokers.kill(node_id)
    brokers.start(1, boot_id="second")  # all three died together, and nobody decided on anything
    brokers.start(2)
    brokers.in_sync()
    for state in brokers.states(1):
        assert state.leader_id == 2  # one that may lack records does not lead where another has them


def test_the_whole_cluster_comes_in_parts(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        brokers.create(1, f"t{number}")
    monkeypatch.setattr(feed, "MOST_AT_ONCE", 2)
    brokers.kill(3)
    brokers.agree()
    brokers.start(3)
    brokers.in_sync("t3")
    assert len(brokers[3].topics) == 7


def test_who_makes_up_the_number_of_a_broker_is_not_remembered(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.create(1, "t")
    brokers.agree()
    monkeypatch.setattr(feed, "MOST_AT_ONCE", 2)  # so that each of them would have more to ask for
    told = brokers[1].controller.feed
    for node_id in range(100, 150):
        assert brokers.ask(1, ClusterFeedRequest(broker_id=node_id, broker_epoch=-1)).parts > 1
    assert len(told._snapshots) <= feed.MOST_STRANGERS
    assert set(told.following) == {2, 3}


def test_who_says_that_it_is_a_broker_that_runs_is_not_in_its_way(brokers: Brokers) -> None:
    told = brokers[1].controller.feed
    brokers.wait(lambda: set(told._parked) == {2, 3})
    parked = told._parked[2]
    answer = brokers.ask(1, ClusterFeedRequest(broker_id=2, broker_epoch=brokers[2].membership.broker_epoch - 1))
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert told._parked.get(2) is parked
    made = brokers.create(1, "t")
    brokers.agree()
    assert made.error_code == 0


def test_proposals_of_leaders_are_checked(brokers: Brokers) -> None:
    made = brokers.create(1, "t")
    brokers.agree()
    [index] = [index for index, state in enumerate(brokers.states(1)) if state.leader_id == 2]
    state = brokers.states(1)[index]

    def propose(epoch: int, partition_epoch: int, members: list[int], topic_id: bytes = made.topic_id) -> list[int]:
        data = PartitionData(
            partition_index=index,
            leader_epoch=state.leader_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=each) for each in members],
            partition_epoch=partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=2, broker_epoch=epoch, topics=[TopicData(topic_id=topic_id, partitions=[data])]
        )
        answer = brokers.ask(3, request)
        return [answer.error_code, *(each.error_code for topic in answer.topics for each in topic.partitions)]

    epoch = brokers[2].membership.broker_epoch
    assert propose(epoch + 1, 0, [2]) == [ErrorCode.STALE_BROKER_EPOCH]
    assert propose(epoch, 5, [2]) == [0, ErrorCode.NOT_CONTROLLER]
    assert propose(epoch, 0, [1]) == [0, ErrorCode.INVALID_REQUEST]
    assert propose(epoch, 0, [2], bytes(range(16))) == [0, ErrorCode.UNKNOWN_TOPIC_ID]
    assert propose(epoch, state.partition_epoch, [2, 3]) == [0, 0]
    brokers.wait(lambda: set(brokers.states(3)[index].in_sync) == {2, 3})


def test_a_running_broker_that_is_unregistered_takes_no_part_until_it_is_started_anew(brokers: Brokers) -> None:
    brokers.create(1, "t")
    brokers.in_sync()
    assert brokers.ask(3, UnregisterBrokerRequest(broker_id=1)).error_code == ErrorCode.INVALID_REQUEST
    assert brokers.ask(3, UnregisterBrokerRequest(broker_id=2)).error_code == 0
    brokers.wait(lambda: not any(partition.is_leader for partition in brokers[2].topics.by_name["t"].partitions))
    for node_id in (1, 2, 3):
        cluster = brokers[node_id].cluster
        brokers.wait(lambda: cluster.live == [1, 3])  # noqa: B023
        assert all(2 not in (state.leader_id, *state.in_sync) for state in cluster.states["t"])
    assert not MemoryNodes(brokers.tree).children(layout.BROKER_IDS).count("2")
    brokers.create(1, "u", factor=2)
    brokers.wait(lambda: "u" in brokers[2].cluster.topics)
    assert brokers[2].cluster.live == [1, 3], "it hears of what is decided, and is not taken in"
    brokers.stop(2)
    brokers.start(2)
    brokers.in_sync()
    assert brokers[1].cluster.live == [1, 2, 3]


def test_what_unregisters_a_broker_is_committed_together_however_much_changes_with_it(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would register again in between."""
    brokers.create(1, "t", partitions=20)
    brokers.in_sync()
    monkeypatch.setattr(LocalStore, "max_commit_bytes", 1500)
    commit, removing = MemoryNodes.commit, []

    def note(nodes: MemoryNodes, operations: list[Operation], *, is_vital: bool = False) -> object:
        removing.append([each.path for each in operations if isinstance(each, Delete)])
        return commit(nodes, operations, is_vital=is_vital)

    monkeypatch.setattr(MemoryNodes, "commit", note)
    assert brokers.ask(3, UnregisterBrokerRequest(broker_id=2)).error_code == 0
    brokers.wait(lambda: all(2 not in state.in_sync for state in brokers.states(1)))
    assert [layout.broker_path(2), layout.broker_epoch_path(2)] in removing
    assert len(removing) > 1


def test_the_quorum_tells_how_far_each_broker_has_followed(brokers: Brokers) -> None:
    brokers.create(1, "t")
    brokers.in_sync()
    feed_position = brokers[1].controller.feed.position

    def voters() -> dict[int, int]:
        [topic] = brokers.ask(2, quorum_of({"__cluster_metadata": [0]})).topics
        [partition] = topic.partitions
        assert (partition.leader_id, partition.high_watermark) == (1, feed_position)
        assert all(voter.last_fetch_timestamp > 0 for voter in partition.current_voters)
        return {voter.replica_id: voter.log_end_offset for voter in partition.current_voters}

    brokers.wait(lambda: set(voters().values()) == {feed_position})
    assert set(voters()) == {1, 2, 3}


def test_a_registration_that_could_not_be_made_again_is_tried_until_it_is_there(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a broker that takes the office meanwhile: the others find the controller by its registration."""
    commit = MemoryNodes.commit
    refused: list[list[Operation]] = []

    def lose_some(nodes: MemoryNodes, operations: list[Operation], *, is_vital: bool = False) -> object:
        if len(refused) < 2 and any(isinstance(each, Create) and each.path == "/brokers/ids/2" for each in operations):
            refused.append(operations)
            raise CommitUncertain("the connection was lost")
        return commit(nodes, operations, is_vital=is_vital)

    monkeypatch.setattr(MemoryNodes, "commit", lose_some)
    brokers.kill(3)
    brokers.end_session(2)
    brokers.kill(1)
    brokers.wait(lambda: brokers[2].membership.is_controller)
    brokers.wait(lambda: "2" in MemoryNodes(brokers.tree).children(layout.BROKER_IDS))
    brokers.start(1)
    brokers.agree()
    assert refused
