"""The offsets of a stream, as its checkpoint holds them: {"topic": {"id": "…", "0": 23}}.

The form is that of Spark's own Kafka source, with the topic's id beside its partitions: a topic that was deleted and
created again has the same name and other records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.client import TopicPartition

_ID = "id"


@dataclass
class StreamOffsets:
    """The next offset of each partition, and the ids of their topics."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, found: Mapping[str, Mapping[str, Any]]) -> StreamOffsets:
        offsets = cls()
        for topic, entries in found.items():
            for name, value in entries.items():
                if name == _ID:
                    offsets.topic_ids[topic] = value
                else:
                    offsets.offsets[TopicPartition(topic, int(name))] = value
        return offsets

    def to_json(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {topic: {_ID: topic_id} for topic, topic_id in self.topic_ids.items()}
        for (topic, index), offset in sorted(self.offsets.items()):
            found.setdefault(topic, {})[str(index)] = offset
        return found
