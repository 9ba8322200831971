"""The topics and brokers of the cluster as they were decided: what decisions look at."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.controller.layout import TopicNode


class Cluster:
    def __init__(self, brokers: Iterable[int] = ()) -> None:
        self.brokers = sorted(brokers)
        self.topics: dict[str, TopicNode] = {}
        self.names: dict[bytes, str] = {}  # by topic id
        self._alike: dict[str, dict[str, None]] = {}  # names that differ only in dots and underscores

    def add(self, name: str, topic: TopicNode) -> None:
        self.topics[name] = topic
        self.names[topic.topic_id] = name
        if "." in name or "_" in name:
            self._alike.setdefault(name.replace(".", "_"), {})[name] = None

    def replace(self, name: str, topic: TopicNode) -> None:
        self.topics[name] = topic

    def remove(self, name: str) -> TopicNode:
        topic = self.topics.pop(name)
        del self.names[topic.topic_id]
        alike = self._alike.get(name.replace(".", "_"), {})
        alike.pop(name, None)
        if not alike:
            self._alike.pop(name.replace(".", "_"), None)
        return topic

    def collision(self, name: str) -> str | None:
        """A topic whose metrics would have the same name, in which dots are underscores."""
        if "." not in name and "_" not in name:
            return None
        return next(iter(self._alike.get(name.replace(".", "_"), ())), None)
