"""The answer that refuses a request with one error everywhere an error can stand, without doing anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from ottla.wire.schema import Request, Response
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


def _produce(request: Any, _version: int, code: int) -> Response:
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    produce.PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: Any, version: int, code: int) -> Response:
    """With the partitions that the request names; one of a session may name none, and is refused as a whole."""
    if not request.topics and version >= FIRST_FETCH_WITH_SESSIONS:
        return fetch.FetchResponse(error_code=code, responses=[])
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    fetch.PartitionData(
                        partition_index=each.partition,
                        error_code=code,
                        high_watermark=-1,
                        aborted_transactions=None,
                        records=b"",
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list_offsets(request: Any, _version: int, code: int) -> Response:
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    list_offsets.ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _find_coordinator(request: Any, version: int, code: int) -> Response:
    if version < FIRST_FIND_COORDINATOR_OF_MANY:
        return find_coordinator.FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    return find_coordinator.FindCoordinatorResponse(
        coordinators=[
            find_coordinator.Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code)
            for key in request.coordinator_keys
        ]
    )


def _offset_commit(request: Any, _version: int, code: int) -> Response:
    return offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    offset_commit.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: Any, version: int, code: int) -> Response:
    if version < FIRST_OFFSET_FETCH_OF_MANY:
        topics = [
            offset_fetch.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    offset_fetch.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
        return offset_fetch.OffsetFetchResponse(error_code=code, topics=topics)
    return offset_fetch.OffsetFetchResponse(
        groups=[
            offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
            for group in request.groups
        ]
    )


def _txn_offset_commit(request: Any, _version: int, code: int) -> Response:
    return txn_offset_commit.TxnOffsetCommitResponse(
        topics=[
            txn_offset_commit.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    txn_offset_commit.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _add_partitions_to_txn(request: Any, version: int, code: int) -> Response:
    if version >= FIRST_ADD_PARTITIONS_OF_BROKERS:
        return add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=code)
    return add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


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


_REFUSALS: dict[Api, Callable[[Any, int, int], Response]] = {
    apis.PRODUCE: _produce,
    apis.FETCH: _fetch,
    apis.LIST_OFFSETS: _list_offsets,
    apis.FIND_COORDINATOR: _find_coordinator,
    apis.OFFSET_COMMIT: _offset_commit,
    apis.OFFSET_FETCH: _offset_fetch,
    apis.TXN_OFFSET_COMMIT: _txn_offset_commit,
    apis.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    apis.CREATE_TOPICS: _create_topics,
    apis.DELETE_TOPICS: _delete_topics,
}
