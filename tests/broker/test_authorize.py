"""Every request passes one step that knows who asks, through which listener, and for what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.broker import handlers
from ottla.broker.access.authorizer import ANONYMOUS, Operation, Permission, Principal, ResourceType
from ottla.broker.api_table import BY_KEY, ROUTES
from ottla.broker.dispatch import STEPS_FROM_BYTES, Dispatch
from ottla.broker.network.acquaintance import Acquaintance
from ottla.broker.network.connection import Connection
from ottla.broker.network.listeners import Endpoint
from ottla.broker.network.slot import Slot
from ottla.wire.apis import Api
from ottla.wire.frames import encode_request
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.fetch import FetchRequest, FetchTopic, ReplicaState
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.registry import REQUESTS
from ottla.wire.schema import Request
from tests.broker.opened_broker import OpenBroker, topic
from tests.wire.strategies import filled

FOR_EVERYBODY = {"ApiVersions", "DescribeCluster", "ListTransactions"}
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


class Deny:
    """Keeps what it was asked, and allows it or not."""

    allows_everything = False

    def __init__(self, *, allows: bool = False) -> None:
        self.asked: list[tuple[Principal, str, Permission]] = []
        self._allows = allows

    def allows(self, principal: Principal, listener: str, permission: Permission) -> bool:
        self.asked.append((principal, listener, permission))
        return self._allows


class Client:
    """Stands where the connection does."""

    def __init__(self) -> None:
        self.listener = "INSIDE"
        self.principal = ANONYMOUS
        self.is_open = True
        self.acquaintance = Acquaintance()
        self.refusals: list[str] = []
        self.slots: list[Slot] = []

    def expect_answer(self, slot: Slot) -> None:
        self.slots.append(slot)

    def answered(self) -> None:
        pass

    @property
    def answers(self) -> list[Any]:
        return [slot.parts for slot in self.slots if slot.parts is not None]

    def refuse(self, reason: str) -> None:
        self.refusals.append(reason)

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenBroker]:
    opened = OpenBroker(tmp_path)
    opened.broker.frontend.endpoints["INSIDE"] = Endpoint("here", 9093)
    yield opened
    opened.stop()


def send(opened: OpenBroker, authorizer: Deny, request: Request, version: int) -> Client:
    opened.broker.authorizer = authorizer
    client = Client()
    frame = b"".join(map(bytes, encode_request(1, "client", request, version)))[4:]  # type: ignore[arg-type]
    Dispatch(opened.broker).handle(cast(Connection, client), memoryview(frame))
    return client


def test_every_handler_stands_in_the_table_and_nothing_else() -> None:
    [folder] = handlers.__path__
    modules = {path.stem for path in Path(folder).glob("*.py")} - {"__init__"}
    assert sorted(route.module for route in ROUTES) == sorted(modules)
    assert len(BY_KEY) == len(ROUTES)
    for route in ROUTES:
        assert callable(route.load())


@pytest.mark.parametrize("api", [route.api for route in ROUTES], ids=lambda api: api.name)
def test_no_api_is_answered_without_permission(opened: OpenBroker, api: Api) -> None:
    for version in range(api.least_served, api.highest + 1):
        authorizer = Deny()
        client = send(opened, authorizer, filled(REQUESTS[api.key], version), version)
        if api.name in FOR_EVERYBODY:
            assert (authorizer.asked, client.refusals) == ([], [])
            continue
        [(principal, listener, permission)] = authorizer.asked
        assert (principal, listener) == (ANONYMOUS, "INSIDE")
        assert client.refusals == [f"User:ANONYMOUS has no permission to {permission}"]
        assert client.answers == []


def test_a_large_request_takes_the_same_step(opened: OpenBroker) -> None:
    topics = [MetadataRequestTopic(name=f"{number:0200}") for number in range(200)]
    request = MetadataRequest(topics=topics)
    assert sum(len(topic.name or "") for topic in topics) > STEPS_FROM_BYTES
    authorizer = Deny()
    client = send(opened, authorizer, request, 9)
    assert len(authorizer.asked) == 1
    assert client.refusals
    assert client.answers == []


def asked_for(opened: OpenBroker, request: Request) -> list[Permission]:
    route = BY_KEY[request.api.key]
    return list(route.permissions(request, opened.broker.topics.name_of))


def test_topics_are_known_by_name_and_by_id(opened: OpenBroker) -> None:
    [created] = opened.create(topic("orders"))
    for state in (DeleteTopicState(name="orders", topic_id=bytes(16)), DeleteTopicState(topic_id=created.topic_id)):
        request = DeleteTopicsRequest(topics=[state], timeout_ms=1)
        assert asked_for(opened, request) == [Permission(Operation.DELETE, TOPIC, "orders")]
    request = DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1)
    assert [permission.name for permission in asked_for(opened, request)] == ["a", "b"]


def test_groups_and_their_topics_are_described(opened: OpenBroker) -> None:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics), OffsetFetchRequestGroup(group_id="h", topics=None)]
    assert asked_for(opened, OffsetFetchRequest(groups=groups)) == [
        Permission(Operation.DESCRIBE, GROUP, "g"),
        Permission(Operation.DESCRIBE, TOPIC, "t"),
        Permission(Operation.DESCRIBE, GROUP, "h"),
    ]


def test_configurations_are_of_topics_groups_or_the_cluster(opened: OpenBroker) -> None:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, "t"), (4, "1"), (32, "g"))
    ]
    assert asked_for(opened, DescribeConfigsRequest(resources=resources)) == [
        Permission(Operation.DESCRIBE_CONFIGS, TOPIC, "t"),
        Permission(Operation.DESCRIBE_CONFIGS, CLUSTER, "kafka-cluster"),
        Permission(Operation.DESCRIBE_CONFIGS, GROUP, "g"),
    ]


def test_requests_known_by_their_bytes_are_asked_about_each_time(opened: OpenBroker) -> None:
    """The same bytes may come from somebody else."""
    authorizer = Deny(allows=True)
    data = TopicProduceData(name="nobody-made-this", partition_data=[PartitionProduceData(index=0, records=b"")])
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])
    opened.broker.authorizer = authorizer
    dispatch = Dispatch(opened.broker)
    frame = b"".join(map(bytes, encode_request(1, "client", request, 12)))[4:]  # type: ignore[arg-type]
    for count in (1, 2, 3):
        dispatch.handle(cast(Connection, Client()), memoryview(bytearray(frame)))
        assert len(authorizer.asked) == count


def test_a_fetch_of_another_broker_is_an_action_of_the_cluster(opened: OpenBroker) -> None:
    topics = [FetchTopic(topic="t", partitions=[])]
    assert asked_for(opened, FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)) == [
        Permission(Operation.READ, TOPIC, "t")
    ]
    action = Permission(Operation.CLUSTER_ACTION, CLUSTER, "kafka-cluster")
    of_replica = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics, replica_state=ReplicaState(replica_id=2))
    assert asked_for(opened, of_replica) == [action]
    assert asked_for(opened, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], replica_id=2)) == [action]
    client = send(opened, Deny(), of_replica, 17)
    assert client.refusals == [f"User:ANONYMOUS has no permission to {action}"]
