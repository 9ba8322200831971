"""The handlers of topics and of the cluster, called as dispatch calls them, and the catalog over restarts."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.handlers import (
    create_partitions,
    delete_topics,
    describe_cluster,
    describe_log_dirs,
    describe_topic_partitions,
    list_config_resources,
    metadata,
)
from ottla.controller.layout import decode_broker
from ottla.controller.store import Node, StoreError
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.replica.partition import Partition
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.uuids import ZERO_UUID
from tests.broker.opened_broker import OpenBroker, topic


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenBroker]:
    opened = OpenBroker(tmp_path)
    yield opened
    opened.stop()


def named(name: str | None = None, topic_id: bytes = ZERO_UUID) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=name, topic_id=topic_id)


# CreateTopics


def test_a_created_topic_tells_all_of_itself(opened: OpenBroker) -> None:
    [created] = opened.create(topic("t", 2, retention_ms="5000", cleanup_policy="compact"))
    assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 2, 1)
    assert created.topic_id == opened.broker.topics.by_name["t"].topic_id != ZERO_UUID
    assert created.configs is not None
    assert len(created.configs) == 33
    assert [config.name for config in created.configs] == sorted(config.name for config in created.configs)
    sources = {config.name: (config.value, config.config_source) for config in created.configs}
    assert sources["retention.ms"] == ("5000", 1)
    assert sources["min.insync.replicas"] == ("1", 3)
    assert sources["segment.bytes"] == ("1073741824", 5)


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates(opened: OpenBroker, version: int) -> None:
    [created] = opened.create(topic("t", -1), version=version)
    assert created.error_code == 0
    assert len(opened.broker.topics.by_name["t"].partitions) == 1


def test_validating_creates_nothing(opened: OpenBroker) -> None:
    [validated] = opened.create(topic("t", 3), validate_only=True)
    assert (validated.error_code, validated.num_partitions) == (0, 3)
    assert len(opened.broker.topics) == 0
    assert not (opened.folder / "t-0").exists()


def test_a_refused_topic_tells_why_and_nothing_else(opened: OpenBroker) -> None:
    good, bad = opened.create(topic("good"), topic("bad", 0))
    assert good.error_code == 0
    assert (bad.error_code, bad.num_partitions, bad.replication_factor, bad.configs) == (37, -1, -1, [])
    assert bad.error_message == "Number of partitions was set to an invalid non-positive value."


# Metadata


def test_metadata_by_name_and_by_id(opened: OpenBroker) -> None:
    [created] = opened.create(topic("t", 2))
    by_name = opened.metadata(named("t"), named("t"))
    by_id = opened.metadata(named(None, created.topic_id), named("another"))
    assert by_name.topics == by_id.topics
    [found] = by_name.topics
    assert (found.error_code, found.name, found.topic_id, found.is_internal) == (0, "t", created.topic_id, False)
    assert [(one.partition_index, one.leader_id, one.leader_epoch) for one in found.partitions] == [
        (0, 1, 0),
        (1, 1, 0),
    ]
    assert [(one.replica_nodes, one.isr_nodes, one.offline_replicas) for one in found.partitions] == [
        ([1], [1], [])
    ] * 2
    [broker] = by_name.brokers
    assert (broker.node_id, broker.host, broker.port, broker.rack) == (1, "here", 9092, None)
    assert by_name.controller_id == 1
    assert by_name.cluster_id == opened.broker.cluster_id
    assert len(opened.broker.cluster_id) == 22


def test_all_topics_are_null_or_in_version_0_none(opened: OpenBroker) -> None:
    opened.create(topic("a"), topic("b"))
    everything = opened.ask(metadata, MetadataRequest(topics=None))
    assert [found.name for found in everything.topics] == ["a", "b"]
    assert len(opened.metadata(version=0).topics) == 2
    assert opened.metadata(version=1).topics == []


def test_unknown_topics(opened: OpenBroker) -> None:
    answer = opened.metadata(named("nope"), named(""), named("a b"), named("__consumer_offsets"))
    codes = [(found.name, found.error_code, found.is_internal) for found in answer.topics]
    assert codes == [("nope", 3, False), ("", 17, False), ("a b", 17, False), ("__consumer_offsets", 3, True)]
    [unknown] = opened.metadata(named(None, b"\1" * 16)).topics
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (100, None, b"\1" * 16)


def test_an_asked_for_topic_is_created_and_found_by_the_next(opened: OpenBroker) -> None:
    assert opened.metadata(named("new"), creates=False).topics[0].error_code == 3
    assert opened.metadata(named("new"), creates=True).topics[0].error_code == 3
    assert opened.metadata(named("new"), creates=True).topics[0].error_code == 0
    for name in ("a b", "__consumer_offsets", "__cluster_metadata"):
        opened.metadata(named(name), creates=True)
    assert list(opened.broker.topics.by_name) == ["new"]


def test_no_topic_is_created_where_that_is_switched_off(tmp_path: Path) -> None:
    opened = OpenBroker(tmp_path, auto_create_topics_enable="false")
    opened.metadata(named("new"), creates=True)
    assert len(opened.broker.topics) == 0
    opened.stop()


def test_ids_before_version_12_and_topics_without_any_name_refuse_the_whole(opened: OpenBroker) -> None:
    early = opened.metadata(named(None, b"\1" * 16), named("t"), version=11)
    assert [(found.error_code, found.name, found.topic_id) for found in early.topics] == [
        (42, "", b"\1" * 16),
        (42, "t", ZERO_UUID),
    ]
    assert (early.brokers, early.controller_id, early.cluster_id) == ([], -1, None)
    nameless = opened.metadata(named())
    assert (nameless.error_code, nameless.topics[0].error_code, nameless.brokers) == (-1, -1, [])


def test_allowed_operations_are_told_to_who_asks(opened: OpenBroker) -> None:
    opened.create(topic("t"))
    request = MetadataRequest(
        topics=[named("t"), named("nope")],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = opened.ask(metadata, request, 8)
    assert answer.cluster_authorized_operations == 8096
    assert [found.topic_authorized_operations for found in answer.topics] == [3576, 3576]


# DeleteTopics


def delete(opened: OpenBroker, *topics: DeleteTopicState, version: int = 6) -> list[tuple[str | None, int, str | None]]:
    request = DeleteTopicsRequest(topics=list(topics), timeout_ms=0)
    if version < 6:
        request = DeleteTopicsRequest(topic_names=[topic.name or "" for topic in topics], timeout_ms=0)
    answer = opened.ask(delete_topics, request, version)
    return [(result.name, result.error_code, result.error_message) for result in answer.responses]


def test_a_deleted_topic_is_gone_and_may_come_again(opened: OpenBroker) -> None:
    [first] = opened.create(topic("t", 2))
    assert delete(opened, DeleteTopicState(name=None, topic_id=first.topic_id)) == [("t", 0, None)]
    assert opened.metadata(named("t")).topics[0].error_code == 3
    assert not (opened.folder / "t-0").exists()
    [second] = opened.create(topic("t"))
    assert second.error_code == 0
    assert second.topic_id != first.topic_id
    assert delete(opened, DeleteTopicState(name="t", topic_id=ZERO_UUID), version=1) == [("t", 0, None)]


def test_who_waits_for_a_deleted_partition_is_woken(opened: OpenBroker) -> None:
    opened.create(topic("t"))
    woken: list[object] = []
    partition = opened.broker.topics.by_name["t"].partitions[0]
    partition.wait_for_records(Waiter(woken))
    delete(opened, DeleteTopicState(name="t", topic_id=ZERO_UUID))
    assert woken == [partition]


class Waiter:
    def __init__(self, woken: list[object]) -> None:
        self._woken = woken

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        self._woken.append(partition)


@pytest.mark.parametrize(("version", "code"), [(2, 42), (6, 73)])
def test_deletion_can_be_switched_off(tmp_path: Path, version: int, code: int) -> None:
    opened = OpenBroker(tmp_path, delete_topic_enable="false")
    opened.create(topic("t"))
    [(name, found, _)] = delete(opened, DeleteTopicState(name="t", topic_id=ZERO_UUID), version=version)
    assert (name, found) == ("t", code)
    assert "t" in opened.broker.topics.by_name
    opened.stop()


# CreatePartitions


def test_partitions_are_added_unless_only_validated(opened: OpenBroker) -> None:
    opened.create(topic("t"))
    asked = [CreatePartitionsTopic(name="t", count=3, assignments=None)]
    for validate_only in (True, False):
        request = CreatePartitionsRequest(topics=asked, timeout_ms=0, validate_only=validate_only)
        [result] = opened.ask(create_partitions, request).results
        assert (result.name, result.error_code) == ("t", 0)
        assert len(opened.metadata(named("t")).topics[0].partitions) == (1 if validate_only else 3)
    [again] = opened.ask(create_partitions, request).results
    assert (again.error_code, again.error_message) == (37, "Topic already has 3 partition(s).")
    assert opened.broker.topics.by_name["t"].partitions[2].log.end_offset == 0


# The catalog over restarts


def test_everything_is_there_after_a_restart(opened: OpenBroker) -> None:
    [created] = opened.create(topic("t", 2, retention_ms="5000"))
    opened.ask(
        create_partitions,
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=0, validate_only=False
        ),
    )
    cluster_id = opened.broker.cluster_id
    for end in (opened.stop, opened.crash):
        end()
        opened.start()
        found = opened.broker.topics.by_name["t"]
        assert opened.broker.cluster_id == cluster_id
        assert found.topic_id == created.topic_id
        assert found.overrides == {"retention.ms": "5000"}
        assert [partition.log.config.retention_ms for partition in found.partitions] == [5000] * 3


def test_each_start_leads_in_a_new_epoch(opened: OpenBroker) -> None:
    opened.create(topic("t"))
    for epoch in range(3):
        assert opened.broker.topics.by_name["t"].partitions[0].leader_epoch == epoch
        opened.stop()
        opened.start()


def test_a_broker_is_registered_while_it_is_there(opened: OpenBroker) -> None:
    for end in (opened.stop, opened.crash):
        node = stored_node(opened, "/brokers/ids/1")
        assert decode_broker(node.data).endpoints == {}
        assert node.created_in == opened.broker.membership.broker_epoch
        assert stored_node(opened, "/controller").is_ephemeral
        epoch = int(stored_node(opened, "/controller_epoch").data)
        end()
        opened.start()
        assert int(stored_node(opened, "/controller_epoch").data) == epoch + 1
        assert stored_node(opened, "/brokers/ids/1").created_in > node.created_in


def stored_node(opened: OpenBroker, path: str) -> Node:
    answers: list[Node | StoreError] = []
    opened.broker.membership.store.get(path, answers.append)
    opened.loop.run_until(lambda: bool(answers))
    if isinstance(answers[0], StoreError):
        raise answers[0]
    return answers[0]


def test_a_partition_without_a_folder_has_no_records(opened: OpenBroker) -> None:
    opened.create(topic("t"), topic("u"))
    write(opened, "u")
    assert [path.name for path in opened.folder.iterdir() if path.is_dir()] == ["u-0"]
    opened.crash()
    shutil.rmtree(opened.folder / "u-0")
    opened.start()
    for name in ("t", "u"):
        assert opened.broker.topics.by_name[name].partitions[0].log.end_offset == 0
        write(opened, name)
    assert sorted(path.name for path in opened.folder.iterdir() if path.is_dir()) == ["t-0", "u-0"]


def test_folders_that_the_store_does_not_know_are_put_aside_with_all_they_hold(
    opened: OpenBroker, caplog: pytest.LogCaptureFixture
) -> None:
    opened.create(topic("t"), topic("u"))
    write(opened, "t")
    write(opened, "u")
    opened.stop()
    (opened.folder / "stranger-0").mkdir()
    (opened.folder / "stranger-0" / "00000000000000000000.log").touch()
    (opened.folder / "t-0").rename(opened.folder / "t-7")
    (opened.folder / "u-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    opened.start()
    strays = sorted(folder.name.split(".")[0] for folder in opened.folder.glob("*-stray"))
    assert strays == ["stranger-0", "t-7", "u-0"]
    [stranger] = opened.folder.glob("stranger*")
    assert (stranger / "00000000000000000000.log").exists()
    assert [opened.broker.topics.by_name[name].partitions[0].log.end_offset for name in "tu"] == [0, 0]
    assert "still there" not in caplog.text
    opened.stop()
    opened.start()
    assert len(list(opened.folder.glob("*-stray"))) == 3
    [told] = [record for record in caplog.records if "folders that were put aside are still there" in record.message]
    assert {("folders", 3), ("first", str(min(opened.folder.glob("*-stray"))))} <= told.__dict__["ottla_fields"].items()


def test_a_topic_that_finds_no_place_on_the_disk_is_taken_back(
    opened: OpenBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (opened.folder / "t-1").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(opened.broker.logs.files, "rename", refuse)
        [refused] = opened.create(topic("t", 2))
    assert refused.error_code == 56
    assert len(opened.broker.topics) == 0
    [created] = opened.create(topic("t", 2))
    assert created.error_code == 0
    write(opened, "t", 1)


def refuse(_old: str, _new: str) -> None:
    raise OSError("no")


def write(opened: OpenBroker, name: str, index: int = 0) -> None:
    batch = build_batch([b"value"], timestamp=1000)
    log = opened.broker.topics.by_name[name].partitions[index].log
    log.append(batch, read_header(batch), log.epochs.latest + 1, 1000)


# Describing


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(opened: OpenBroker, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = opened.ask(describe_cluster, request, version)
    assert (answer.error_code, answer.cluster_id) == (0, opened.broker.cluster_id)
    assert (answer.controller_id, answer.cluster_authorized_operations) == (1, 8096)
    assert [(broker.broker_id, broker.host, broker.port) for broker in answer.brokers] == [(1, "here", 9092)]


@pytest.mark.parametrize(
    ("endpoint_type", "code", "message"),
    [
        (2, 114, "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"),
        (7, 115, "Unsupported endpoint type 7"),
    ],
)
def test_other_endpoints_are_not_described(opened: OpenBroker, endpoint_type: int, code: int, message: str) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
    answer = opened.ask(describe_cluster, request)
    assert (answer.error_code, answer.error_message, answer.brokers, answer.cluster_id) == (code, message, [], "")


def test_log_folders_are_described(opened: OpenBroker) -> None:
    opened.create(topic("t", 2), topic("u"))
    [everything] = opened.ask(describe_log_dirs, DescribeLogDirsRequest(topics=None)).results
    assert everything.log_dir == str(opened.folder)
    assert everything.total_bytes >= everything.usable_bytes > 0
    assert [(found.name, len(found.partitions)) for found in everything.topics] == [("t", 2), ("u", 1)]
    asked = [DescribableLogDirTopic(topic=name, partitions=[1, 9]) for name in ("t", "nope")]
    [some] = opened.ask(describe_log_dirs, DescribeLogDirsRequest(topics=asked), 1).results
    [found] = some.topics
    assert [(one.partition_index, one.partition_size, one.offset_lag) for one in found.partitions] == [(1, 0, 0)]
    [nothing] = opened.ask(describe_log_dirs, DescribeLogDirsRequest(topics=[])).results
    assert nothing.topics == []


Page = tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]


def page(opened: OpenBroker, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Page:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = opened.ask(describe_topic_partitions, request)
    following = answer.next_cursor
    return [
        (found.name, found.error_code, [partition.partition_index for partition in found.partitions])
        for found in answer.topics
    ], None if following is None else (following.topic_name, following.partition_index)


@pytest.mark.parametrize(
    ("names", "limit", "cursor", "topics", "following"),
    [
        (["x", "e"], 2, None, [("e", 0, [0, 1])], ("x", 0)),
        (["x", "e"], 3, None, [("e", 0, [0, 1]), ("x", 0, [0])], ("x", 1)),
        (["x", "e"], 2, ("x", 1), [("x", 0, [1, 2])], ("x", 3)),
        (["x"], 2, ("x", 2), [("x", 0, [2, 3])], None),
        (["x"], 0, None, [("x", 0, [0])], ("x", 1)),
        (["x"], 2, ("x", 99), [("x", 0, [])], None),
        ([], 5, None, [("e", 0, [0, 1]), ("x", 0, [0, 1, 2])], ("x", 3)),
        (["e", "e", "zzz"], 9, None, [("e", 0, [0, 1]), ("zzz", 3, [])], None),
        (["e", "zzz"], 2, None, [("e", 0, [0, 1])], ("zzz", 0)),
        (["a b"], 2, None, [("a b", 17, [])], None),
        ([""], 2, None, [("", -1, [])], None),
        (["x", "e"], 2, ("f", 1), [("x", 42, []), ("e", 42, [])], None),
        (["x"], 2, ("x", -1), [("x", 42, [])], None),
    ],
)
def test_partitions_are_described_page_by_page(
    opened: OpenBroker,
    names: list[str],
    limit: int,
    cursor: tuple[str, int] | None,
    topics: list[tuple[str, int, list[int]]],
    following: tuple[str, int] | None,
) -> None:
    opened.create(topic("x", 4), topic("e", 2))
    assert page(opened, names, limit, cursor) == (topics, following)


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ([], [("1", 8), ("1", 4), ("t", 2)]),
        ([2], [("t", 2)]),
        ([4, 4], [("1", 4)]),
        ([16, 32], []),
    ],
)
def test_resources_with_configurations_are_listed(
    opened: OpenBroker, kinds: list[int], found: list[tuple[str, int]]
) -> None:
    opened.create(topic("t"))
    answer = opened.ask(list_config_resources, ListConfigResourcesRequest(resource_types=kinds))
    assert answer.error_code == 0
    assert [(resource.resource_name, resource.resource_type) for resource in answer.config_resources] == found


def test_an_unknown_kind_of_resource_refuses_the_whole(opened: OpenBroker) -> None:
    answer = opened.ask(list_config_resources, ListConfigResourcesRequest(resource_types=[2, 99]))
    assert (answer.error_code, answer.config_resources) == (35, [])
    assert opened.ask(list_config_resources, ListConfigResourcesRequest(), 0).config_resources == []
