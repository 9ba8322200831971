"""How offsets go: deleted by request, with their group, with their topic, or of age."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.group import Group
from ottla.coordinator.offsets.offsets import PartitionKey
from ottla.coordinator.operation import Operation, Work
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_and_group_records import OffsetCommitKey, OffsetCommitValue
from ottla.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine

EXPIRY = "offset expiry"  # the kind of its timer
LOOKED_AT_ONCE = 100
"""How many offsets one operation looks at, and perhaps removes, where there may be very many."""
DELETED_AT_ONCE = 300  # with their group


class OffsetRemoval:
    def __init__(self, machine: GroupMachine) -> None:
        self._machine = machine

    def delete_offsets(self, operation: Operation, group: Group, partitions: Iterable[PartitionKey]) -> list[ErrorCode]:
        """What became of each partition; topics that members are subscribed to keep their offsets."""
        codes = []
        for partition in partitions:
            is_subscribed = group.is_subscribed_to(partition[0])
            if not is_subscribed:
                self._remove(operation, group.group_id, partition)
            codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE)
        return codes

    def _remove(self, operation: Operation, group_id: str, partition: PartitionKey) -> None:
        offsets = self._machine.offsets
        if partition in offsets.of_group(group_id) or offsets.is_pending(group_id, partition):
            operation.write(OffsetCommitKey(group=group_id, topic=partition[0], partition=partition[1]), None)

    def delete_group(self, operation: Operation, group_id: str) -> ErrorCode | None:
        """Delete a group that has no members. None: only some of its very many offsets; the rest must be asked for."""
        group = self._machine.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        offsets = self._machine.offsets
        both = itertools.chain(offsets.of_group(group_id), offsets.pending(group_id))
        for partition in list(itertools.islice(both, DELETED_AT_ONCE)):
            self._remove(operation, group_id, partition)
        if offsets.of_group(group_id) or offsets.has_pending(group_id):
            return None
        group.write_tombstones(operation)
        return ErrorCode.NONE

    def forget_topics(self, names: Iterable[str]) -> Work:
        """Of these topics, drop the offsets of those that are gone, or that others of the same name have replaced."""
        by_group: dict[str, set[str]] = {}
        for name in names:
            for group_id in self._machine.offsets.groups_with(name):
                by_group.setdefault(group_id, set()).add(name)
        for group_id, gone in by_group.items():
            for partitions in self._portions(group_id):
                concerned = [partition for partition in partitions if partition[0] in gone]
                yield functools.partial(self._forget, group_id, concerned)

    def _portions(self, group_id: str) -> Iterator[list[PartitionKey]]:
        """The partitions that a group has offsets for, some at a time."""
        partitions = self._machine.offsets.partitions(group_id)
        for start in range(0, len(partitions), LOOKED_AT_ONCE):
            yield partitions[start : start + LOOKED_AT_ONCE]

    def _forget(self, group_id: str, partitions: list[PartitionKey], operation: Operation) -> None:
        for partition in partitions:
            latest = self._machine.offsets.latest(group_id, partition)
            if latest is not None and self._is_gone(partition[0], latest.value):
                self._remove(operation, group_id, partition)

    def _is_gone(self, name: str, value: OffsetCommitValue) -> bool:
        """Whether the topic that an offset was committed for is there no more."""
        topic = self._machine.topics.by_name.get(name)
        return topic is None or value.topic_id not in (topic.topic_id, ZERO_UUID)

    # Age

    def watch_age(self, operation: Operation) -> None:
        operation.set_timer((EXPIRY,), self._machine.settings().offsets_retention_check_interval_ms)

    def expire(self, operation: Operation) -> None:
        """Drop what is too old or of no use, and groups that have neither members nor offsets any more."""
        operation.go_on_with(self._expiring())

    def _expiring(self) -> Work:
        for group_id in list(self._machine.groups):
            for partitions in self._portions(group_id):
                yield functools.partial(self._expire_offsets, group_id, partitions)
            yield functools.partial(self._drop_if_abandoned, group_id)
        yield self.watch_age

    def _expire_offsets(self, group_id: str, partitions: list[PartitionKey], operation: Operation) -> None:
        group = self._machine.groups.get(group_id)
        if group is None:
            return
        retention_ms, now_ms = self._machine.settings().offsets_retention_ms, operation.aging_ms
        for partition in partitions:
            latest = self._machine.offsets.latest(group_id, partition)
            if latest is None:
                continue
            is_old = (
                _is_expired(group, latest.value, now_ms, retention_ms)
                and not group.is_subscribed_to(partition[0])
                and not self._machine.offsets.is_pending(group_id, partition)
            )
            if is_old or self._is_gone(partition[0], latest.value):  # perhaps while nobody was there to see it
                self._remove(operation, group_id, partition)

    def _drop_if_abandoned(self, group_id: str, operation: Operation) -> None:
        group = self._machine.groups.get(group_id)
        if group is not None and self.is_abandoned(group):
            group.write_tombstones(operation)

    def is_abandoned(self, group: Group) -> bool:
        """Whether a group has nothing that is worth keeping."""
        offsets = self._machine.offsets
        has_offsets = bool(offsets.of_group(group.group_id)) or offsets.has_pending(group.group_id)
        is_awaited = isinstance(group, ClassicGroup) and bool(group.pending_members)
        return group.is_empty and not has_offsets and not is_awaited


def _is_expired(group: Group, value: OffsetCommitValue, now_ms: int, retention_ms: int) -> bool:
    since_ms = group.offset_age_from_ms(value.commit_timestamp)
    if since_ms is None:
        return False
    if value.expire_timestamp >= 0:  # an old client said how long
        return now_ms >= value.expire_timestamp
    return now_ms - since_ms >= retention_ms
