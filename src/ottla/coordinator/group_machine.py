"""The groups of one partition of __consumer_offsets, and their offsets."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from ottla.coordinator.classic_group import ClassicGroup
from ottla.coordinator.consumer_replay import CONSUMER_REPLAYS
from ottla.coordinator.consumer_settings import ConsumerSettings
from ottla.coordinator.consumer_topics import note_changed_topics
from ottla.coordinator.group import Group
from ottla.coordinator.group_settings import GroupSettings
from ottla.coordinator.offsets import Offsets
from ottla.coordinator.operation import Operation, Reply
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.messages.group_records import GROUP_RECORDS
from ottla.wire.messages.offset_and_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.schema import Message
from ottla.wire.uuids import ZERO_UUID

Replay: TypeAlias = Callable[["GroupMachine", Any, Any], None]


class GroupMachine:
    record_types = GROUP_RECORDS

    def __init__(
        self,
        topics: TopicsView,
        settings: Callable[[], GroupSettings],
        make_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
        consumer_settings: Callable[[str], ConsumerSettings] = lambda _group_id: ConsumerSettings(),
    ) -> None:
        """`consumer_settings`: those of a consumer group, by its id."""
        self.topics = topics
        self.settings = settings
        self.make_uuid = make_uuid
        self.consumer_settings = consumer_settings
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    # Replay

    def replay(self, key: Message, value: Message | None, producer_id: int) -> None:
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            self._replay_offset(key, value, producer_id)
            return
        replay = _REPLAYS.get(type(key))
        if replay is not None:
            replay(self, key, value)

    def _replay_offset(
        self, key: OffsetCommitKey | LegacyOffsetCommitKey, value: Message | None, producer_id: int
    ) -> None:
        if isinstance(value, LegacyOffsetCommitValue):
            value = OffsetCommitValue(
                offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
            )
        partition = key.topic, key.partition
        if value is None:
            self.offsets.remove(key.group, partition)
            return
        assert isinstance(value, OffsetCommitValue)
        if key.group not in self.groups:  # one that only keeps offsets here
            self.groups[key.group] = ClassicGroup(key.group)
        self.offsets.put(key.group, partition, value, producer_id)

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        self.offsets.end_transaction(producer_id, is_commit)

    # The world around

    def topics_changed(self, operation: Operation, names: set[str]) -> None:
        """Topics have come, gone or got more partitions: what was committed for those that are gone goes, too."""
        note_changed_topics(self, names)
        for group_id in self.offsets.groups():
            for partition, (value, _) in list(self.offsets.of_group(group_id).items()):
                name, index = partition
                if name in names and self.is_outdated(name, value.topic_id):
                    operation.write(OffsetCommitKey(group=group_id, topic=name, partition=index), None)

    def is_outdated(self, name: str, topic_id: bytes) -> bool:
        """Whether the topic that an offset was committed for is there no more."""
        topic = self.topics.by_name.get(name)
        return topic is None or topic_id not in (topic.topic_id, ZERO_UUID)

    def loaded(self, operation: Operation) -> None:
        for group in self.groups.values():
            group.set_timers(operation)

    def expired(self, operation: Operation, timer: Hashable) -> None:
        """Timers are named by what they are for, then the group, then the rest."""
        assert isinstance(timer, tuple)
        kind, *details = timer
        _TIMERS[kind](self, operation, *details)

    def resigned(self) -> list[Reply]:
        return [reply for group in self.groups.values() for reply in group.waiting()]


def _replay_classic_group(machine: GroupMachine, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
    group = machine.groups.get(key.group)
    if value is None:
        if isinstance(group, ClassicGroup):
            del machine.groups[key.group]
        return
    if not isinstance(group, ClassicGroup):
        group = machine.groups[key.group] = ClassicGroup(key.group)
    group.replay(value)


_REPLAYS: dict[type[Message], Replay] = {
    GroupMetadataKey: _replay_classic_group,
    **CONSUMER_REPLAYS,
}
"""What takes in a record, by its key; other records are passed over."""

_TIMERS: dict[str, Callable[..., None]] = {}
"""What to do when a timer is due, by its kind."""
