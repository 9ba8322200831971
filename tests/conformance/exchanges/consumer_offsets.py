"""Offsets of groups of the new protocol, whose members have epochs."""

from __future__ import annotations

from typing import Any

from tests.conformance.consumers import eager_group, joined, known_topic
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import (
    beat,
    commit,
    delete_groups,
    delete_offsets,
    describe_consumer_groups,
    enter,
    fetch_offsets,
    list_groups,
    owned,
)
from tests.conformance.script import Script

exchanges = Exchanges("consumer_offsets")


@exchanges.versions((2, 7, 8, 9, 10))
def a_commit_by_a_member(script: Script, version: int) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.send(commit(group, topic, generation=member.epoch, member_id=member.id), version)
    script.send(fetch_offsets(group, {topic: [0]}))


IDENTITIES: dict[str, tuple[str | None, int | None]] = {
    "a later epoch": (None, 9),
    "epoch 0": (None, 0),
    "epoch -1": (None, -1),
    "epoch -2": (None, -2),
    "an unknown member": ("nobody", None),
    "no member": ("", None),
    "neither a member nor an epoch": ("", -1),
    "an unknown member and epoch -1": ("nobody", -1),
}


@exchanges.cases(IDENTITIES)
def a_commit_by(script: Script, identity: tuple[str | None, int | None]) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    member_id = member.id if identity[0] is None else identity[0]
    epoch = member.epoch if identity[1] is None else identity[1]
    for version in (2, 8, 9, 10):
        script.send(commit(group, topic, generation=epoch, member_id=member_id), version)


@exchanges.cases(IDENTITIES)
def a_fetch_by(script: Script, identity: tuple[str | None, int | None]) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.ask(commit(group, topic, generation=member.epoch, member_id=member.id))
    member_id = member.id if identity[0] is None else identity[0]
    epoch = member.epoch if identity[1] is None else identity[1]
    for version in (9, 10):
        script.send(fetch_offsets(group, {topic: [0]}, member_id=member_id, epoch=epoch), version)
    script.send(fetch_offsets(group, None, member_id=member_id, epoch=epoch))


@exchanges.versions((1, 7, 8, 9, 10))
def a_fetch_by_nobody_in_particular(script: Script, version: int) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.ask(commit(group, topic, generation=member.epoch, member_id=member.id))
    script.send(fetch_offsets(group, {topic: [0]}, version=version), version)


@exchanges.one
def a_fetch_by_a_member(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    for version in (9, 10):
        script.send(fetch_offsets(group, {topic: [0]}, member_id=member.id, epoch=member.epoch), version)


@exchanges.one
def a_commit_with_an_epoch_the_member_had(script: Script) -> None:
    """Partitions that it had in that epoch and still has may be committed, others not."""
    group, topic, other = eager_group(script), known_topic(script, partitions=2), known_topic(script, "other")
    member = joined(script, group, "member", topic)
    script.ask(beat(group, member.id, member.epoch, subscribed_topic_names=[topic.name, other.name]))
    identity: dict[str, Any] = {"generation": member.epoch, "member_id": member.id}
    script.send(commit(group, topic, (0, 1), (1, 2), **identity))
    script.send(commit(group, other, (0, 3), **identity))
    script.send(commit(group, topic, (0, 4), **identity), 9)
    script.send(commit(group, topic, generation=member.epoch - 1, member_id=member.id))
    script.send(fetch_offsets(group, None))


@exchanges.one
def a_commit_while_partitions_are_given_up(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    first = joined(script, group, "first", topic)
    second = joined(script, group, "second", topic)
    script.ask(beat(group, first.id, first.epoch))
    script.send(commit(group, topic, (0, 1), (1, 2), generation=first.epoch, member_id=first.id))
    script.send(commit(group, topic, (1, 3), generation=second.epoch, member_id=second.id))
    script.ask(beat(group, first.id, first.epoch, topic_partitions=owned({topic: [0]})))
    script.send(commit(group, topic, (0, 4), generation=first.epoch, member_id=first.id))
    script.send(commit(group, topic, (1, 5), generation=first.epoch, member_id=first.id))
    script.send(fetch_offsets(group, {topic: [0, 1]}))


@exchanges.one
def a_commit_of_what_nobody_subscribed_to(script: Script) -> None:
    group, topic, other = script.group(), known_topic(script), script.topic("other")
    member = joined(script, group, "member", topic)
    script.send(commit(group, other, generation=member.epoch, member_id=member.id))


@exchanges.one
def commits_into_a_group_without_members(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.ask(beat(group, member.id, -1))
    script.send(commit(group, topic, generation=member.epoch, member_id=member.id))
    script.send(commit(group, topic))
    script.send(commit(group, topic), 2)
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.one
def a_static_member_that_is_away(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic, instance_id="instance")
    script.ask(beat(group, member.id, -2, instance_id="instance"))
    script.send(commit(group, topic, generation=member.epoch, member_id=member.id))
    script.send(commit(group, topic, generation=-2, member_id=member.id))
    script.send(commit(group, topic))
    script.send(fetch_offsets(group, {topic: [0]}, member_id=member.id, epoch=member.epoch))


@exchanges.one
def offsets_are_deleted(script: Script) -> None:
    group, topic, other = script.group(), known_topic(script), script.topic("other")
    member = joined(script, group, "member", topic)
    for one in (topic, other):
        script.ask(commit(group, one, generation=member.epoch, member_id=member.id))
    script.send(delete_offsets(group, {topic.name: [0, 3], other.name: [0]}))
    script.ask(beat(group, member.id, -1))
    script.send(delete_offsets(group, {topic.name: [0]}))


@exchanges.one
def a_group_is_deleted(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.ask(commit(group, topic, generation=member.epoch, member_id=member.id))
    script.send(delete_groups(group))
    script.ask(beat(group, member.id, -1))
    script.send(delete_groups(group))
    script.send(describe_consumer_groups(group))
    script.send(fetch_offsets(group, {topic: [0]}))
    script.send(list_groups(), only_own=True)
    script.send(enter(group, member.id, topic.name))
