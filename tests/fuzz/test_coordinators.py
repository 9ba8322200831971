"""Requests of groups and transactions in any order, with any values: no coordinator ever fails over one.

A coordinator that fails starts over, and costs all of its clients a moment: a single client must not bring that about.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.broker.coordinators import groups
from ottla.broker.coordinators.shard import Shard
from ottla.coordinator.group_machine import GroupMachine
from ottla.wire import apis
from ottla.wire.apis import Api
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.wire.messages.join_group import JoinGroupRequestProtocol
from ottla.wire.registry import REQUESTS
from ottla.wire.schema import Request, Struct
from ottla.wire.versioned import encode_versioned
from tests.sim.simulated_broker import SimulatedBroker
from tests.wire.strategies import structs

MEMBERSHIP = apis.JOIN_GROUP, apis.SYNC_GROUP, apis.CONSUMER_GROUP_HEARTBEAT
TRANSACTIONS = apis.INIT_PRODUCER_ID, apis.ADD_PARTITIONS_TO_TXN, apis.TXN_OFFSET_COMMIT, apis.END_TXN
OTHERS = (
    apis.HEARTBEAT, apis.LEAVE_GROUP, apis.OFFSET_COMMIT, apis.OFFSET_FETCH, apis.OFFSET_DELETE, apis.DELETE_GROUPS,
    apis.DESCRIBE_GROUPS, apis.CONSUMER_GROUP_DESCRIBE, apis.LIST_GROUPS, apis.ADD_OFFSETS_TO_TXN,
    apis.DESCRIBE_TRANSACTIONS, apis.LIST_TRANSACTIONS,
)  # fmt: skip
APIS: tuple[Api, ...] = (*MEMBERSHIP * 5, *TRANSACTIONS * 2, *OTHERS)


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """A value that gets far, and now and then one that does not."""
    return st.sampled_from([*[usual] * 2 * max(len(others), 2), *others])


GENERATED = [f"simulated-{uuid.UUID(int=number)}" for number in range(3)]
MEMBERS = st.sampled_from(["", "", "", "a", "b", GENERATED[0], *GENERATED])
INSTANCES = mostly(None, "", "i", "j")
EPOCHS = st.sampled_from([-3, -2, -1, -1, 0, 0, 0, 1, 1, 2, 3, 32766, 32767])
TOPICS = mostly("t", "u", "", "__consumer_offsets")
PARTITIONS = st.sampled_from([0, 0, 1, 2, -1])
GROUPS = mostly("g", "h", "")
IDS = mostly("x", "y", "")
TIMES = mostly(10_000, -1, 0, 1, 2**31 - 1)
SUBSCRIPTION = encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 1)
METADATA = st.one_of(
    st.just(SUBSCRIPTION),
    st.just(SUBSCRIPTION),
    st.binary(max_size=6),
    st.builds(
        lambda topics, version, owned: encode_versioned(
            ConsumerProtocolSubscription(
                topics=topics, owned_partitions=[TopicPartition(topic="t", partitions=owned)], rack_id=None
            ),
            version,
        ),
        st.lists(TOPICS, max_size=2),
        st.integers(0, 3),
        st.lists(PARTITIONS, max_size=2),
    ),
)
ASSIGNMENTS = st.one_of(
    st.binary(max_size=6),
    st.lists(PARTITIONS, max_size=3).map(
        lambda numbers: encode_versioned(
            ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="t", partitions=numbers)]), 1
        )
    ),
)
NARROW: dict[str, st.SearchStrategy[Any]] = {
    "group_id": GROUPS,
    "groups_names": st.lists(GROUPS, max_size=2),
    "group_ids": st.lists(GROUPS, max_size=2),
    "member_id": MEMBERS,
    "group_instance_id": INSTANCES,
    "instance_id": INSTANCES,
    "generation_id": mostly(1, -1, 0, 2),
    "generation_id_or_member_epoch": EPOCHS,
    "member_epoch": EPOCHS,
    "producer_epoch": EPOCHS,
    "v3_and_below_producer_epoch": EPOCHS,
    "producer_id": st.integers(-1, 2),
    "v3_and_below_producer_id": st.integers(-1, 2),
    "transactional_id": IDS,
    "v3_and_below_transactional_id": IDS,
    "transactional_ids": st.lists(IDS, max_size=2),
    "session_timeout_ms": TIMES,
    "rebalance_timeout_ms": TIMES,
    "transaction_timeout_ms": TIMES,
    "protocol_type": mostly("consumer", "connect"),
    "protocol_name": mostly("range", "sticky"),
    "assignment": ASSIGNMENTS,
    "server_assignor": mostly(None, "uniform", "range", "none"),
    "rack_id": mostly(None, "", "r"),
    "subscribed_topic_names": mostly(["t"], None, [], ["t", "u"]),
    "subscribed_topic_regex": mostly(None, "", "t|u", "(", "."),
    "partition_index": PARTITIONS,
    "partitions": st.lists(PARTITIONS, max_size=2),
    "partition_indexes": st.lists(PARTITIONS, max_size=2),
}


def narrow(struct: type[Struct], field: str) -> st.SearchStrategy[Any] | None:
    if field == "protocols":
        protocol = st.builds(JoinGroupRequestProtocol, name=mostly("range", "sticky"), metadata=METADATA)
        return st.lists(protocol, min_size=1, max_size=2)
    if field == "name":
        return TOPICS
    if field == "topic_partitions":
        return mostly([], None) if struct is ConsumerGroupHeartbeatRequest else None
    if field == "partitions" and struct.__name__.startswith(("OffsetCommit", "OffsetDelete", "TxnOffsetCommit")):
        return None  # not numbers
    return NARROW.get(field)


def requests_of(api: Api) -> st.SearchStrategy[tuple[Request, int]]:
    def in_version(version: int) -> st.SearchStrategy[tuple[Request, int]]:
        return st.tuples(structs(REQUESTS[api.key], version, narrow), st.just(version))

    return st.integers(api.least_served, api.highest).flatmap(in_version)


REQUEST = st.sampled_from(APIS).flatmap(requests_of)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(REQUEST, st.sampled_from([0.0, 0.0, 0.1, 6.0])), min_size=20, max_size=40),
    st.sampled_from(["0", "50"]),
)
def test_no_request_makes_a_coordinator_fail(
    steps: list[tuple[tuple[Request, int], float]], rebalance_delay_ms: str
) -> None:
    numbers = itertools.count()
    failures: list[Any] = []
    start_over = Shard._start_over

    def noted(shard: Any, failed: Any, code: Any) -> None:
        failures.append(code)
        start_over(shard, failed, code)

    make = functools.partial(GroupMachine, make_uuid=lambda: uuid.UUID(int=next(numbers)))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shard, "_start_over", noted)
        patch.setattr(groups, "GroupMachine", make)
        broker = SimulatedBroker(
            Path(folder),
            offsets_topic_num_partitions="1",
            transaction_state_log_num_partitions="1",
            group_initial_rebalance_delay_ms=rebalance_delay_ms,
            group_min_session_timeout_ms="1",
            group_consumer_assignment_interval_ms="0",
        )
        broker.create("t", 2)
        for (request, version), seconds in steps:
            client = broker.client()
            client.send(request, version)
            broker.advance(0.01 + seconds)
            client.step()
        broker.advance(100)
        assert not failures, failures
        assert broker.broker.metrics.failures == 0
        broker.stop()
