"""What a client knows of its cluster: the brokers, the topics it has asked for, and who leads their partitions.

Answers come from different brokers, which learn of changes one after the other. So a later answer may tell of an
earlier state. What is older by the leader's epoch, or by the id of the topic, never replaces what is known. No I/O.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from typing import NamedTuple

from ottla.client.errors import ServerError
from ottla.client.network.address import Address
from ottla.client.network.metadata import ClusterMetadata, Partition, Topic
from ottla.wire.errors import ErrorCode

_logger = logging.getLogger("ottla.client")


class _Known(NamedTuple):
    topic: Topic
    since: float


class ClusterView:
    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.controller_id = -1
        self._topics: dict[str, _Known] = {}
        self._gone: set[str] = set()
        """Topics that were asked for last when they were not there."""
        self._former_ids: defaultdict[str, set[bytes]] = defaultdict(set)
        """Of topics that were deleted and created again: ids do not come back."""

    def take(self, metadata: ClusterMetadata, now: float) -> ClusterMetadata:
        """The answer of a broker; what is known of its topics then."""
        known_before, self.brokers = self.brokers, dict(metadata.brokers)
        self.controller_id = metadata.controller_id
        topics = {name: self._take_topic(name, found, now) for name, found in metadata.topics.items()}
        for found in topics.values():
            for partition in found.partitions if isinstance(found, Topic) else ():
                leader_id = partition.leader_id
                if leader_id in known_before:  # it leads by news that this broker did not have
                    self.brokers.setdefault(leader_id, known_before[leader_id])
        return metadata._replace(topics=topics)

    def _take_topic(self, name: str, found: Topic | ServerError, now: float) -> Topic | ServerError:
        known = self._topics.get(name)
        if isinstance(found, ServerError):
            self._topics.pop(name, None)
            if found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._gone.add(name)
                if known is not None:
                    self._former_ids[name].add(known.topic.topic_id)
            return found
        if known is not None and found.has_id and found.topic_id in self._former_ids[name]:
            return known.topic
        topic = found
        if known is not None:
            if known.topic.topic_id != found.topic_id:
                self._former_ids[name].add(known.topic.topic_id)
            elif found.has_id:  # without one, an epoch that is lower may be of another topic of this name
                topic = _newest(known.topic, found)
            _tell_leaders(known.topic, topic)
        self._topics[name] = _Known(topic, now)
        self._gone.discard(name)
        return topic

    def meet(self, node_id: int, address: Address) -> None:
        """A broker that another has named."""
        self.brokers[node_id] = address

    def lead(self, name: str, index: int, leader_id: int, leader_epoch: int) -> None:
        """A broker has said who leads a partition, instead of it. What is known already, or better, stays."""
        known = self._topics.get(name)
        if known is None or not 0 <= index < len(known.topic.partitions):
            return
        topic = known.topic
        if leader_epoch <= topic.partitions[index].leader_epoch:
            return
        partitions = list(topic.partitions)
        partitions[index] = partitions[index]._replace(leader_id=leader_id, leader_epoch=leader_epoch)
        moved = topic._replace(partitions=tuple(partitions))
        _tell_leaders(topic, moved)
        self._topics[name] = known._replace(topic=moved)

    def forget(self, name: str) -> None:
        """What is known of a topic is old. Leaders and epochs are remembered until there is something newer."""
        known = self._topics.get(name)
        if known is not None:
            self._topics[name] = known._replace(since=-math.inf)

    def doubt_id(self, name: str, topic_id: bytes) -> None:
        """A broker does not know this id. It may be the former one, told by a broker that was behind when the new one
        was known already: the next answer counts, whatever it is."""
        known = self._topics.get(name)
        if known is not None and known.topic.topic_id == topic_id:
            self._former_ids.pop(name, None)
            self.forget(name)

    def topic(self, name: str) -> Topic | None:
        """However old it is."""
        known = self._topics.get(name)
        return None if known is None else known.topic

    def topic_since(self, name: str, since: float) -> Topic | None:
        known = self._topics.get(name)
        return None if known is None or known.since <= since else known.topic

    def is_gone(self, name: str) -> bool:
        """Whether the cluster has said that there is no such topic."""
        return name in self._gone

    def leader(self, name: str, index: int) -> Partition | None:
        """A partition whose leader is known, and where that is."""
        topic = self.topic(name)
        if topic is None or index >= len(topic.partitions):
            return None
        partition = topic.partitions[index]
        return partition if partition.leader_id in self.brokers else None


def _newest(before: Topic, after: Topic) -> Topic:
    """Partition by partition. None is ever taken away from a topic."""
    partitions = [_newer(old, new) for old, new in zip(before.partitions, after.partitions, strict=False)]
    longer = before if len(before.partitions) > len(after.partitions) else after
    return after._replace(partitions=(*partitions, *longer.partitions[len(partitions) :]))


def _newer(old: Partition, new: Partition) -> Partition:
    """A broker that does not tell epochs tells -1."""
    return old if 0 <= new.leader_epoch < old.leader_epoch else new


def _tell_leaders(before: Topic, after: Topic) -> None:
    for old, new in zip(before.partitions, after.partitions, strict=False):
        if old.leader_id != new.leader_id:
            _logger.info(
                "topic %s, partition %d: the leader was %d and is %d",
                after.name,
                new.index,
                old.leader_id,
                new.leader_id,
            )
