"""The topics of a mirror: which of the source are copied, and their copies kept like them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client import (
    Admin,
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    NewTopic,
    Resource,
    ResourceKind,
    ServerError,
    Topic,
)
from ottla.connect.interface import ConnectorRefused

OWN_TOPICS = re.compile(r"__.*|ottla-connect.*|ottla-mirror.*")
"""What a cluster keeps for itself is never copied."""
UNLIKE = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
"""Configurations that name brokers of the source."""
AS_THEY_CAME = {"message.timestamp.type": "CreateTime"}
"""A copy keeps the timestamps of its records, whoever has set them."""
NO_LIMIT = {
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "9223372036854775807",
}
"""Where the source has such a limit, what it holds has passed: the clock would be another one when it is copied."""


class TopicChoice:
    """Names by regular expressions, each for a whole name, and what the copies are called."""

    def __init__(self, topics: Sequence[str], exclude: Sequence[str], prefix: str) -> None:
        self._topics = [pattern("topics", text) for text in topics]
        self._exclude = [pattern("exclude", text) for text in exclude]
        self._prefix = prefix

    def takes(self, name: str) -> bool:
        return (
            OWN_TOPICS.fullmatch(name) is None
            and any(chosen.fullmatch(name) for chosen in self._topics)
            and not any(chosen.fullmatch(name) for chosen in self._exclude)
        )

    def target(self, name: str) -> str:
        return self._prefix + name


def pattern(setting: str, text: str) -> re.Pattern[str]:
    """ValueError, in words, where a text is no regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{setting}: {text!r} is no regular expression: {error}") from None


def for_copy(configs: Mapping[str, str]) -> dict[str, str]:
    """Those of a copy whose original has these."""
    return {name: NO_LIMIT.get(name, value) for name, value in configs.items() if name not in UNLIKE} | AS_THEY_CAME


class Pair(NamedTuple):
    """A topic and its copy."""

    source: Topic
    target: Topic


class CopiedTopics:
    """Makes the copies, and gives them the partitions and configurations of what they are copies of."""

    def __init__(self, source: Admin, target: Admin, choice: TopicChoice) -> None:
        self._source = source
        self._target = target
        self._choice = choice

    def chosen(self, topics: Iterable[Topic]) -> list[Topic]:
        return [topic for topic in topics if self._choice.takes(topic.name)]

    def pairs(self, topics: Iterable[Topic]) -> dict[str, Pair]:
        """Each topic with its copy, which is made or changed if need be; by the name of the topic."""
        wanted = list(topics)
        there = {topic.name: topic for topic in self._target.list_topics()}
        for topic in wanted:
            name = self._choice.target(topic.name)
            configs = for_copy(self._configs(self._source, topic.name))
            copy = there.get(name)
            if copy is None:
                self._create(NewTopic(name, len(topic.partitions), configs=configs))
            else:
                if len(copy.partitions) < len(topic.partitions):
                    self._expand(name, len(topic.partitions))
                self._configure(name, configs)
        names = [self._choice.target(topic.name) for topic in wanted]
        found = {topic.name: topic for topic in self._target.describe_topics(names)} if names else {}
        return {topic.name: Pair(topic, found[self._choice.target(topic.name)]) for topic in wanted}

    def is_compacted(self, name: str) -> bool:
        """Of the source."""
        [described] = self._source.describe_configs([Resource(ResourceKind.TOPIC, name)], ["cleanup.policy"])
        return any("compact" in (entry.value or "") for entry in described.entries)

    def _create(self, topic: NewTopic) -> None:
        try:
            self._target.create_topics([topic])
        except ServerError as error:
            if error.name != "TOPIC_ALREADY_EXISTS":  # another task was first
                raise ConnectorRefused(f"topic {topic.name} cannot be created on the target: {error}") from None

    def _expand(self, name: str, count: int) -> None:
        try:
            self._target.expand_topics({name: count})
        except ServerError as error:
            if error.name != "INVALID_PARTITIONS":  # likewise
                raise

    @staticmethod
    def _configs(admin: Admin, name: str) -> dict[str, str]:
        """Those that are set for the topic itself."""
        [described] = admin.describe_configs([Resource(ResourceKind.TOPIC, name)])
        return {
            entry.name: entry.value
            for entry in described.entries
            if entry.source is ConfigSource.TOPIC and entry.value is not None
        }

    def _configure(self, name: str, wanted: dict[str, str]) -> None:
        present = self._configs(self._target, name)
        changes = [
            ConfigChange(key, ConfigOperation.SET, value) for key, value in wanted.items() if present.get(key) != value
        ]
        changes += [
            ConfigChange(key, ConfigOperation.DELETE) for key in present if key not in wanted and key not in UNLIKE
        ]
        if changes:
            try:
                self._target.alter_configs(Resource(ResourceKind.TOPIC, name), changes)
            except ServerError as error:
                raise ConnectorRefused(f"topic {name} cannot be configured on the target: {error}") from None
