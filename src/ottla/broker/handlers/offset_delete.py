"""OffsetDelete (47), version 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def handle(broker: Broker, request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse | None:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])

    def run(machine: GroupMachine, operation: Operation) -> None:
        operation.answer(reply, _delete(broker, machine, operation, request))

    reply = Reply(context.reply, lambda code: OffsetDeleteResponse(error_code=code, topics=[]))
    broker.groups.submit(request.group_id, reply, run)
    return None


def _delete(
    broker: Broker, machine: GroupMachine, operation: Operation, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    group = machine.groups.get(request.group_id)
    code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
    if group is None or code is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=code, topics=[])
    codes: dict[PartitionKey, ErrorCode] = {}
    there: list[PartitionKey] = []
    for topic in request.topics:
        for partition in topic.partitions:
            key = topic.name, partition.partition_index
            if broker.topics.partition(*key) is None:
                codes[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                there.append(key)
    codes.update(zip(there, delete_offsets(machine, operation, group, there), strict=True))
    topics = [
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
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)
