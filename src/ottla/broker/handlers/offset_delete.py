"""OffsetDelete (47), version 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.slices import Steps, parts_of
from ottla.coordinator.offset_removal import delete_offsets
from ottla.coordinator.offsets import PartitionKey
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

DELETED_AT_ONCE = 500


def handle(broker: Broker, request: OffsetDeleteRequest, context: Context) -> Steps:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])
    asked = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    parts = list(parts_of(list(dict.fromkeys(asked)), DELETED_AT_ONCE)) or [[]]
    codes: dict[PartitionKey, ErrorCode] = {}

    def delete(machine: GroupMachine, operation: Operation, reply: Reply, place: int) -> None:
        operation.answer(reply, _delete(broker, machine, operation, request.group_id, parts[place], codes))

    def done(answers: list[ErrorCode]) -> None:
        refused = [code for code in answers if code]
        context.reply(
            OffsetDeleteResponse(
                error_code=refused[0] if refused else ErrorCode.NONE, topics=[] if refused else _topics(request, codes)
            )
        )

    yield from broker.groups.submit_each([request.group_id] * len(parts), delete, lambda _, code: code, done)
    return None


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
    codes.update(zip(there, delete_offsets(machine, operation, group, there), strict=True))
    return ErrorCode.NONE


def _topics(request: OffsetDeleteRequest, codes: dict[PartitionKey, ErrorCode]) -> list[OffsetDeleteResponseTopic]:
    return [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=codes[topic.name, partition.partition_index],
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
