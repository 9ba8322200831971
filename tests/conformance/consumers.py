"""Members of groups of the new protocol made ready for an exchange."""

from __future__ import annotations

import itertools
import time
from typing import Any, NamedTuple

from tests.conformance.group_requests import beat, enter, owned
from tests.conformance.requests import GROUP, SET, change_configs, describe_configs
from tests.conformance.script import PreparationFailed, Script, Topic

ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


class Consumer(NamedTuple):
    id: str
    epoch: int
    partitions: list[int]
    """Of the one topic it reads."""


def eager_group(script: Script, label: str = "group") -> str:
    """A group whose assignment is computed at once, and not only once in a while."""
    group = script.group(label)
    script.ask(change_configs(GROUP, group, [(ASSIGNMENT_INTERVAL, SET, "0")]))
    script.ask_until(
        describe_configs(GROUP, group, [ASSIGNMENT_INTERVAL]),
        until=lambda answer: answer.results[0].configs[0].value == "0",
    )
    return group


def known_topic(script: Script, label: str = "topic", *, partitions: int = 1) -> Topic:
    """A topic that the coordinator of groups knows of: Kafka's learns of it a moment after others do."""
    topic = script.topic(label, partitions=partitions)
    script.group()
    deadline = time.monotonic() + script.patience_s
    for attempt in itertools.count():
        probe = f"probe-{attempt}-{label}-{script.token}"
        answer = script.ask(enter(probe, script.name("prober"), topic.name))
        script.ask(beat(probe, script.name("prober"), -1))
        if assigned(answer, topic):
            return topic
        if time.monotonic() > deadline:
            break
    raise PreparationFailed(f"the coordinator did not learn of {label}")


def joined(script: Script, group: str, label: str, topic: Topic, **options: Any) -> Consumer:
    """A member that has just joined, with what it was given at once."""
    member = script.name(label)
    answer = script.ask(enter(group, member, topic.name, **options))
    return Consumer(member, answer.member_epoch, assigned(answer, topic))


def assigned(answer: Any, topic: Topic) -> list[int]:
    if answer.assignment is None:
        return []
    return [
        partition
        for entry in answer.assignment.topic_partitions
        if entry.topic_id == topic.id
        for partition in entry.partitions
    ]


def settled(script: Script, group: str, topic: Topic, *members: Consumer) -> list[Consumer]:
    """Members beat, give up and take over until nothing changes any more."""
    now = list(members)
    for _ in range(3 * len(members)):
        for index, member in enumerate(now):
            answer = script.ask(
                beat(group, member.id, member.epoch, topic_partitions=owned({topic: member.partitions}))
            )
            partitions = member.partitions if answer.assignment is None else assigned(answer, topic)
            now[index] = Consumer(member.id, answer.member_epoch, partitions)
    return now
