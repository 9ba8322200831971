"""OffsetCommit and TxnOffsetCommit: whether a group's offsets may be written, and how they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.group import Committer, OffsetToCommit
from ottla.coordinator.operation import Operation
from ottla.wire.errors import NO_ERROR, ErrorCode
from ottla.wire.messages.offset_and_group_records import OffsetCommitKey, OffsetCommitValue
from ottla.wire.texts import size_bytes

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine

RECORD_VERSION = 4
RECORD_VERSION_WITH_EXPIRY = 1
FIRST_VERSION_OF_MEMBER_EPOCHS = 9
NO_EXPIRY = -1
MOST_PENDING = 50_000
"""Offsets of one transaction in one partition of the coordinator's topic: they count all at once, when it is ended."""
RECORD_BYTES = 75  # what a record has besides names and metadata
MOST_NAME_BYTES = 249  # of a topic
MOST_CHARACTER_BYTES = 4


def commit(
    machine: GroupMachine,
    operation: Operation,
    group_id: str,
    committer: Committer,
    offsets: Sequence[OffsetToCommit],
    retention_ms: int = NO_EXPIRY,
) -> list[ErrorCode]:
    """Commit offsets of partitions that are there; what became of each of them, in their order."""
    code = _check(machine, group_id, committer, offsets)
    if code is not NO_ERROR:
        return [code] * len(offsets)
    group = machine.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        group.keep_alive(operation, committer.member_id)
    longest = machine.settings().offset_metadata_max_bytes
    if committer.is_transactional and _is_too_many(machine, operation.producer[0], group_id, offsets):
        return [ErrorCode.UNKNOWN_SERVER_ERROR] * len(offsets)
    if len(offsets) > 1 and _is_too_large(group_id, offsets, longest, operation.most_bytes):
        return [ErrorCode.UNKNOWN_SERVER_ERROR] * len(offsets)  # as Kafka says it
    now_ms = operation.now_ms
    expires_ms = NO_EXPIRY if retention_ms < 0 else now_ms + retention_ms
    version = RECORD_VERSION if retention_ms < 0 else RECORD_VERSION_WITH_EXPIRY
    codes = []
    for topic, topic_id, partition, offset, leader_epoch, metadata in offsets:
        if metadata is not None and len(metadata) > longest:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        value = OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=expires_ms,
            topic_id=topic_id,
        )
        operation.write(key, value, version)
        codes.append(NO_ERROR)
    return codes


def _is_too_many(machine: GroupMachine, producer_id: int, group_id: str, offsets: Sequence[OffsetToCommit]) -> bool:
    partitions = ((topic, partition) for topic, _, partition, *_ in offsets)
    return machine.offsets.pending_with(producer_id, group_id, partitions) > MOST_PENDING


def _is_too_large(group_id: str, offsets: Sequence[OffsetToCommit], longest: int, most_bytes: int) -> bool:
    """Whether the records take more than a batch may have."""
    names_bytes = size_bytes(group_id) + RECORD_BYTES
    if len(offsets) * (names_bytes + MOST_NAME_BYTES + longest * MOST_CHARACTER_BYTES) <= most_bytes:
        return False
    sizes = [size_bytes(offset.topic) + size_bytes(offset.metadata or "") for offset in offsets]
    return sum(sizes) + len(offsets) * names_bytes > most_bytes


def _check(machine: GroupMachine, group_id: str, committer: Committer, offsets: Sequence[OffsetToCommit]) -> ErrorCode:
    group = machine.groups.get(group_id)
    if group is not None:
        return group.check_commit(committer, offsets)
    if committer.epoch < 0:
        return NO_ERROR  # nobody's group: it comes into being with its first offset
    if committer.is_transactional or committer.version < FIRST_VERSION_OF_MEMBER_EPOCHS:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.GROUP_ID_NOT_FOUND
