"""OffsetDelete (47), version 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps, TopicPart, parts_by_topic, parts_of
from ottla.coordinator.offsets.offsets import PartitionKey
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.coordinator.group_machine import GroupMachine

DELETED_AT_ONCE = 200
NAMED_AT_ONCE = 1000


def handle(broker: Broker, request: OffsetDeleteRequest, context: Context) -> Steps:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])
    asked: dict[PartitionKey, None] = {}
    for part in parts_by_topic(request.topics, NAMED_AT_ONCE):
        asked.update({(topic.name, partition.partition_index): None for topic, named, _ in part for partition in named})
        yield None
    parts = list(parts_of(list(asked), DELETED_AT_ONCE)) or [[]]
    codes: dict[PartitionKey, ErrorCode] = {}

    def delete(machine: GroupMachine, operation: Operation, reply: Reply, place: int) -> None:
        operation.answer(reply, _delete(broker, machine, operation, request.group_id, parts[place], codes))

    answers = yield from broker.groups.ask_each([request.group_id] * len(parts), delete, lambda _, code: code)
    refused = [code for code in answers if code]
    if refused:
        return OffsetDeleteResponse(error_code=refused[0], topics=[])
    topics: list[OffsetDeleteResponseTopic] = []
    for part in parts_by_topic(request.topics, NAMED_AT_ONCE):
        _answer(part, codes, topics)
        yield None
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)


def _delete(
    broker: Broker,
    machine: GroupMachine,
    operation: Operation,
    group_id: str,
    partitions: Sequence[PartitionKey],
    codes: dict[PartitionKey, ErrorCode],
) -> ErrorCode:
    """Delete some offsets and note what became of each, unless the group as a whole keeps its own."""
    group = machine.groups.get(group_id)
    code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
    if group is None or code is not ErrorCode.NONE:
        return code
    there = [key for key in partitions if broker.topics.partition(*key) is not None]
    codes.update(dict.fromkeys(partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    codes.update(zip(there, machine.removal.delete_offsets(operation, group, there), strict=True))
    return ErrorCode.NONE


def _answer(
    part: Iterable[TopicPart],
    codes: dict[PartitionKey, ErrorCode],
    answered: list[OffsetDeleteResponseTopic],
) -> None:
    for topic, named, goes_on in part:
        partitions = [
            OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=codes[topic.name, partition.partition_index]
            )
            for partition in named
        ]
        if goes_on:
            answered[-1].partitions += partitions
        else:
            answered.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
