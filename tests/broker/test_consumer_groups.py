"""Consumer groups behind the handlers of a broker: what they go by, and that they outlive it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import GeneratorType, SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.dispatch import Context
from ottla.broker.handlers import consumer_group_describe, consumer_group_heartbeat, incremental_alter_configs
from ottla.broker.loop.slices import run_to_end
from ottla.controller.configs import ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.schema import Request
from tests.broker.opened_broker import OpenBroker


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenBroker]:
    opened = OpenBroker(tmp_path, group_consumer_assignment_interval_ms="0")
    opened.create(CreatableTopic(name="t", num_partitions=3, replication_factor=1, assignments=[], configs=[]))
    yield opened
    opened.stop()


def ask(opened: OpenBroker, module: Any, request: Request) -> Any:
    """The answer, whether it comes at once or by the way back."""
    answers: list[Any] = []
    context = SimpleNamespace(
        origin=None,
        version=request.api.highest,
        client_id="test",
        connection=SimpleNamespace(listener="PLAINTEXT", address="127.0.0.1"),
        reply=answers.append,
    )
    response = module.handle(opened.broker, request, cast(Context, context))
    if isinstance(response, GeneratorType):
        response = run_to_end(opened.loop, response)
    if response is not None:
        return response
    opened.loop.run_until(lambda: bool(answers))
    return answers[0]


def join(opened: OpenBroker, member_id: str = "m", group_id: str = "g") -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    return ask(opened, consumer_group_heartbeat, request)


def describe(opened: OpenBroker, *group_ids: str) -> list[Any]:
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=False)
    groups: list[Any] = ask(opened, consumer_group_describe, request).groups
    return groups


def test_a_group_outlives_the_broker(opened: OpenBroker) -> None:
    joined = join(opened)
    assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 2)
    before = describe(opened, "g")
    opened.crash()
    opened.start()
    opened.broker.groups.start()
    while opened.broker.groups.is_loading:
        opened.loop.run_once()
    assert describe(opened, "g") == before
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=2)
    assert ask(opened, consumer_group_heartbeat, request).member_epoch == 2


def test_a_group_goes_by_its_own_configuration(opened: OpenBroker) -> None:
    change = AlterableConfig(name="consumer.heartbeat.interval.ms", config_operation=0, value="9000")
    resource = AlterConfigsResource(resource_type=ResourceType.GROUP, resource_name="g", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    assert ask(opened, incremental_alter_configs, request).responses[0].error_code == ErrorCode.NONE
    assert join(opened).heartbeat_interval_ms == 9000
    assert join(opened, group_id="other").heartbeat_interval_ms == 5000


def test_a_topic_that_grows_reaches_the_group(opened: OpenBroker) -> None:
    join(opened)
    asked = CreatePartitionsTopic(name="t", count=5, assignments=None)
    run_to_end(opened.loop, opened.broker.topic_requests.expand([asked]))
    while len(opened.broker.coordinator_slices) or opened.loop.is_busy():
        opened.loop.run_once()
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=2)
    beat = ask(opened, consumer_group_heartbeat, request)
    assert beat.member_epoch == 3
    assert beat.assignment.topic_partitions[0].partitions == [0, 1, 2, 3, 4]


def test_groups_are_described_in_the_order_asked_for(opened: OpenBroker) -> None:
    join(opened)
    codes = [group.error_code for group in describe(opened, "nobody", "g", "")]
    assert codes == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE, ErrorCode.INVALID_GROUP_ID]


def test_a_broker_may_serve_only_the_classic_protocol(tmp_path: Path) -> None:
    opened = OpenBroker(tmp_path, group_coordinator_rebalance_protocols="classic")
    try:
        assert join(opened).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [group.error_code for group in describe(opened, "g")] == [ErrorCode.UNSUPPORTED_VERSION]
    finally:
        opened.stop()
