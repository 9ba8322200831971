"""The answer that refuses a request with one error everywhere an error can stand, without doing anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.wire import apis
from ottla.wire.apis import Api
from ottla.wire.messages import (
    add_partitions_to_txn,
    create_topics,
    delete_topics,
    fetch,
    find_coordinator,
    list_offsets,
    offset_commit,
    offset_fetch,
    produce,
    txn_offset_commit,
)
from ottla.wire.registry import RESPONSES
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.uuids import ZERO_UUID

FIRST_FETCH_WITH_SESSIONS = 7
FIRST_FIND_COORDINATOR_OF_MANY = 4
FIRST_OFFSET_FETCH_OF_MANY = 8
FIRST_ADD_PARTITIONS_OF_BROKERS = 4

# What the answers with one error for the whole request need beside it.
_ONE_ERROR: dict[Api, dict[str, Any]] = {
    apis.JOIN_GROUP: {"protocol_name": "", "leader": "", "member_id": "", "members": []},
    apis.SYNC_GROUP: {"assignment": b""},
    apis.HEARTBEAT: {},
    apis.LEAVE_GROUP: {},
    apis.CONSUMER_GROUP_HEARTBEAT: {"member_epoch": 0, "heartbeat_interval_ms": 0},
    apis.INIT_PRODUCER_ID: {"producer_epoch": -1},
    apis.ADD_OFFSETS_TO_TXN: {},
    apis.END_TXN: {},
    apis.LIST_GROUPS: {"groups": []},
}


class ByPartition(NamedTuple):
    """How an answer names the partitions that its request names, each with an error of its own."""

    asked_topics: str
    asked_partitions: str
    asked_index: str | None  # None: the partitions are numbers
    topic: type[Struct]
    topic_names: tuple[str, ...]  # what a topic of the answer has from that of the request
    partitions: str
    partition: type[Struct]
    number: str  # the field with the partition's
    error: str = "error_code"
    rest: Mapping[str, Any] = MappingProxyType({})

    def topics(self, request: Any, code: int) -> list[Struct]:
        return [
            self.topic(
                **{name: getattr(asked, name) for name in self.topic_names},
                **{self.partitions: [self._refused(each, code) for each in getattr(asked, self.asked_partitions)]},
            )
            for asked in getattr(request, self.asked_topics) or ()
        ]

    def _refused(self, asked: Any, code: int) -> Struct:
        index = asked if self.asked_index is None else getattr(asked, self.asked_index)
        return self.partition(**{self.number: index, self.error: code}, **self.rest)


_PRODUCE = ByPartition(
    "topic_data", "partition_data", "index",
    produce.TopicProduceResponse, ("name", "topic_id"), "partition_responses",
    produce.PartitionProduceResponse, "index", rest={"base_offset": -1},
)  # fmt: skip
_FETCH = ByPartition(
    "topics", "partitions", "partition",
    fetch.FetchableTopicResponse, ("topic", "topic_id"), "partitions",
    fetch.PartitionData, "partition_index",
    rest={"high_watermark": -1, "aborted_transactions": None, "records": b""},
)  # fmt: skip
_LIST_OFFSETS = ByPartition(
    "topics", "partitions", "partition_index",
    list_offsets.ListOffsetsTopicResponse, ("name",), "partitions",
    list_offsets.ListOffsetsPartitionResponse, "partition_index",
)  # fmt: skip
_OFFSET_COMMIT = ByPartition(
    "topics", "partitions", "partition_index",
    offset_commit.OffsetCommitResponseTopic, ("name", "topic_id"), "partitions",
    offset_commit.OffsetCommitResponsePartition, "partition_index",
)  # fmt: skip
_TXN_OFFSET_COMMIT = ByPartition(
    "topics", "partitions", "partition_index",
    txn_offset_commit.TxnOffsetCommitResponseTopic, ("name",), "partitions",
    txn_offset_commit.TxnOffsetCommitResponsePartition, "partition_index",
)  # fmt: skip
_OFFSET_FETCH = ByPartition(
    "topics", "partition_indexes", None,
    offset_fetch.OffsetFetchResponseTopic, ("name",), "partitions",
    offset_fetch.OffsetFetchResponsePartition, "partition_index", rest={"committed_offset": -1, "metadata": ""},
)  # fmt: skip
_ADD_PARTITIONS = ByPartition(
    "v3_and_below_topics", "partitions", None,
    add_partitions_to_txn.AddPartitionsToTxnTopicResult, ("name",), "results_by_partition",
    add_partitions_to_txn.AddPartitionsToTxnPartitionResult, "partition_index", "partition_error_code",
)  # fmt: skip


def refusal(request: Request, version: int, code: int) -> Response:
    """ValueError where there is none."""
    api = request.api
    if api in _ONE_ERROR:
        return RESPONSES[api.key](error_code=code, **_ONE_ERROR[api])
    refuse = _REFUSALS.get(api)
    if refuse is None:
        known = ", ".join(sorted(each.name for each in (*_ONE_ERROR, *_REFUSALS)))
        raise ValueError(f"{api.name} cannot be refused by a fault; these can: {known}")
    return refuse(request, version, code)


def can_be_refused(api: Api) -> bool:
    return api in _ONE_ERROR or api in _REFUSALS


def _fetch(request: Any, version: int, code: int) -> Response:
    """One of a session may name no partitions, and is refused as a whole."""
    if not request.topics and version >= FIRST_FETCH_WITH_SESSIONS:
        return fetch.FetchResponse(error_code=code, responses=[])
    return RESPONSES[apis.FETCH.key](responses=_FETCH.topics(request, code))


def _find_coordinator(request: Any, version: int, code: int) -> Response:
    if version < FIRST_FIND_COORDINATOR_OF_MANY:
        return find_coordinator.FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    return find_coordinator.FindCoordinatorResponse(
        coordinators=[
            find_coordinator.Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code)
            for key in request.coordinator_keys
        ]
    )


def _offset_fetch(request: Any, version: int, code: int) -> Response:
    if version < FIRST_OFFSET_FETCH_OF_MANY:
        return RESPONSES[apis.OFFSET_FETCH.key](error_code=code, topics=_OFFSET_FETCH.topics(request, code))
    return offset_fetch.OffsetFetchResponse(
        groups=[
            offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
            for group in request.groups
        ]
    )


def _add_partitions_to_txn(request: Any, version: int, code: int) -> Response:
    if version >= FIRST_ADD_PARTITIONS_OF_BROKERS:
        return add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=code)
    topics = _ADD_PARTITIONS.topics(request, code)
    return RESPONSES[apis.ADD_PARTITIONS_TO_TXN.key](results_by_topic_v3_and_below=topics)


def _create_topics(request: Any, _version: int, code: int) -> Response:
    return create_topics.CreateTopicsResponse(
        topics=[create_topics.CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics]
    )


def _delete_topics(request: Any, _version: int, code: int) -> Response:
    states = [(name, ZERO_UUID) for name in request.topic_names]
    states += [(topic.name, topic.topic_id) for topic in request.topics]
    return delete_topics.DeleteTopicsResponse(
        responses=[
            delete_topics.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code)
            for name, topic_id in states
        ]
    )


def _of_topics(api: Api, field: str, shape: ByPartition) -> Callable[[Any, int, int], Response]:
    return lambda request, _version, code: RESPONSES[api.key](**{field: shape.topics(request, code)})


_REFUSALS: dict[Api, Callable[[Any, int, int], Response]] = {
    apis.PRODUCE: _of_topics(apis.PRODUCE, "responses", _PRODUCE),
    apis.FETCH: _fetch,
    apis.LIST_OFFSETS: _of_topics(apis.LIST_OFFSETS, "topics", _LIST_OFFSETS),
    apis.FIND_COORDINATOR: _find_coordinator,
    apis.OFFSET_COMMIT: _of_topics(apis.OFFSET_COMMIT, "topics", _OFFSET_COMMIT),
    apis.OFFSET_FETCH: _offset_fetch,
    apis.TXN_OFFSET_COMMIT: _of_topics(apis.TXN_OFFSET_COMMIT, "topics", _TXN_OFFSET_COMMIT),
    apis.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    apis.CREATE_TOPICS: _create_topics,
    apis.DELETE_TOPICS: _delete_topics,
}
