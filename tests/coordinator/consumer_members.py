"""Members of consumer groups for tests, that speak to a machine as clients do."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.settings import ConsumerSettings
from ottla.coordinator.group import Client, GroupSettings
from ottla.coordinator.group_machine import GroupMachine
from ottla.records.growth import Growths
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.coordinator.driver import Driver

GROUP = "g"
CLIENT = Client("client", "/127.0.0.1")
UNSET: Any = object()


@dataclasses.dataclass
class FakeTopic:
    name: str
    topic_id: bytes
    partition_count: int
    growths: Growths = ()


class FakeTopics:
    def __init__(self) -> None:
        self.by_name: dict[str, FakeTopic] = {}
        self.by_id: dict[bytes, FakeTopic] = {}
        self._added = 0  # a topic that is made again has another id

    def add(self, name: str, partition_count: int) -> bytes:
        self._added += 1
        topic = FakeTopic(name, uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {self._added}").bytes, partition_count)
        self.by_name[name] = topic
        self.by_id[topic.topic_id] = topic
        return topic.topic_id

    def remove(self, name: str) -> None:
        del self.by_id[self.by_name.pop(name).topic_id]


class World:
    """A machine with topics and settings around it."""

    def __init__(self, settings: ConsumerSettings | None = None, classic: GroupSettings | None = None) -> None:
        self.topics = FakeTopics()
        self.settings = settings or ConsumerSettings(assignment_interval_ms=0)
        self.classic_settings = classic or GroupSettings(initial_rebalance_delay_ms=0)
        self._uuids = 0
        self.driver = Driver(self._make_machine)

    def _make_machine(self) -> GroupMachine:
        return GroupMachine(
            self.topics, lambda: self.classic_settings, self._make_uuid, consumer_settings=lambda _: self.settings
        )

    def _make_uuid(self) -> uuid.UUID:
        self._uuids += 1
        return uuid.UUID(int=self._uuids)

    @property
    def group(self) -> ConsumerGroup:
        group = self.driver.machine.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def crash(self) -> None:
        """The coordinator falls over; what its log tells is what it was."""
        before = lasting(self.driver.machine)
        self.driver.crash()
        assert lasting(self.driver.machine) == before

    def change_topic(self, name: str) -> None:
        self.driver.run(lambda machine, operation: machine.topics_changed(operation, {name}))

    def add_topic(self, name: str, partition_count: int) -> bytes:
        topic_id = self.topics.add(name, partition_count)
        self.change_topic(name)
        return topic_id

    def beat(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        asked = self.driver.ask(
            lambda machine, operation, reply: machine.consumer_heartbeat(operation, reply, request, version, CLIENT)
        )
        assert isinstance(asked.response, ConsumerGroupHeartbeatResponse)
        return asked.response

    def record_types(self) -> list[str]:
        """What was written since this was last asked, by the names of the keys; tombstones with a minus."""
        records = self.driver.records()
        new, self._seen = records[getattr(self, "_seen", 0) :], len(records)
        return [("-" if value is None else "") + type(key).__name__.removesuffix("Key") for key, value in new]


def lasting(machine: GroupMachine) -> dict[str, Any]:
    """All of a group that its records tell."""
    group = machine.groups.get(GROUP)
    if not isinstance(group, ConsumerGroup):
        return {}
    marks = {"are_topics_changed", "are_topics_new", "is_resolving", "is_being_computed", "_topic_names", "held"}
    marks |= {"_has_found_more", "_too_wide"}
    parts = {"subscriptions", "target", "timers", "_settings", "_offsets"}
    owners = (group, group.subscriptions, group.target)
    return {
        f"{type(owner).__name__}.{name}": value
        for owner in owners
        for name, value in vars(owner).items()
        if name not in marks | parts
    }


class FakeMember:
    """A client that does as it is told: it works on what it is assigned, and lets go at once."""

    def __init__(self, world: World, member_id: str, topics: Iterable[str] | None = ("t",), **fields: Any) -> None:
        self.world = world
        self.member_id = member_id
        self.topics = None if topics is None else list(topics)
        self.fields = fields
        self.epoch = 0
        self.owned: dict[bytes, set[int]] = {}

    def join(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        self.epoch, self.owned = 0, {}
        told = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": self.topics, "topic_partitions": []}
        return self.beat(**{**told, **self.fields, **fields})

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        if "instance_id" in self.fields:
            fields.setdefault("instance_id", self.fields["instance_id"])
        fields = {"group_id": GROUP, "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        response = self.world.beat(ConsumerGroupHeartbeatRequest(**fields))
        if response.error_code == 0:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                parts = response.assignment.topic_partitions
                self.owned = {part.topic_id: set(part.partitions) for part in parts}
        return response

    def acknowledge(self) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that tells what it works on."""
        return self.beat(topic_partitions=self.told_owned())

    def told_owned(self) -> list[TopicPartitions]:
        return [TopicPartitions(topic_id=key, partitions=sorted(value)) for key, value in self.owned.items()]

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        return self.beat(member_epoch=epoch)

    @property
    def numbers(self) -> list[int]:
        return sorted(number for numbers in self.owned.values() for number in numbers)


def settle(*members: FakeMember) -> None:
    """Let members beat until nothing moves any more."""
    for _ in range(10):
        before = [(member.epoch, member.owned) for member in members]
        for member in members:
            member.acknowledge()
        if before == [(member.epoch, member.owned) for member in members]:
            return
    raise AssertionError("the group does not come to rest")


def check_counts(group: ConsumerGroup) -> None:
    """What a group counts of its members is what one finds who asks them all."""
    profiles = [member.profile for member in group.members.values()]
    assert group.subscriptions.topic_names == frozenset().union(
        *[group.subscriptions.topics_of(profile) for profile in profiles]
    )
    assert group.subscriptions.counts.names == Counter(name for profile in profiles for name in profile.topic_names)
    assert group.subscriptions.counts.regexes == Counter(profile.regex for profile in profiles if profile.regex)
    offers = [dict(profile.classic.protocols) for profile in profiles if profile.classic is not None]
    assert group.subscriptions.counts.classic == len(offers)
    assert group.subscriptions.counts.protocols == Counter(name for offer in offers for name in offer)
