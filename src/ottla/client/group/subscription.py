"""Which topics a consumer wants: by their names, or by a pattern that names match."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.network.cluster import Cluster
from ottla.client.network.metadata import Topic


class Subscription(NamedTuple):
    """A pattern has to match the whole name. Internal topics are never matched by one."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None

    async def find(self, cluster: Cluster) -> dict[str, Topic]:
        """The topics that there are at the moment, by name."""
        if self.pattern is None:
            return await existing_topics(cluster, self.names)
        topics = (await cluster.refresh(None)).topics.values()
        return {
            topic.name: topic
            for topic in topics
            if isinstance(topic, Topic) and not topic.is_internal and self.pattern.fullmatch(topic.name)
        }

    def wanted(self, found: Iterable[str]) -> frozenset[str]:
        """The names to subscribe to: also those of topics that do not exist yet."""
        return self.names if self.pattern is None else frozenset(found)


async def existing_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, Topic]:
    topics = (await cluster.refresh(sorted(names))).topics
    return {name: topic for name, topic in topics.items() if isinstance(topic, Topic)}
