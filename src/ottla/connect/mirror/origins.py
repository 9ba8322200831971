"""Where the topics of a cluster come from, if they are copies: a compacted topic of the cluster that has the copies.

A mirror writes there before it copies the first record, and looks on its source whether a topic comes from its target,
through however many clusters: copied back it would go round for ever.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ottla.client import EARLIEST, LATEST, ClientOptions, NewRecord, Producer, Reader
from ottla.connect.topics import COMPACTED, ensure_topic, topic_exists

TOPIC = "ottla-mirror-origins"


class Origin(NamedTuple):
    """Of a topic that is a copy: the mirror that makes it, and the clusters it came through, the nearest first."""

    mirror: str
    topic: str
    clusters: list[str]


class Origins:
    def __init__(self, bootstrap: str, options: ClientOptions) -> None:
        self._bootstrap = bootstrap
        self._options = options

    def read(self) -> dict[str, Origin]:
        """By the name of the copy."""
        found: dict[str, Origin] = {}
        if not topic_exists(self._bootstrap, self._options, TOPIC):
            return found
        with Reader(self._bootstrap, TOPIC, [0], end=LATEST, reset=EARLIEST, options=self._options) as reader:
            for fetched in reader:
                for record in fetched.records:
                    name = json.loads(record.key)
                    if record.value is None:
                        found.pop(name, None)
                    else:
                        found[name] = Origin(**json.loads(record.value))
        return found

    def write(self, copies: dict[str, Origin | None]) -> None:
        """None: the topic is no copy any more."""
        if not copies:
            return
        ensure_topic(self._bootstrap, self._options, TOPIC, partitions=1, configs=COMPACTED)
        records = [
            NewRecord(None if origin is None else json.dumps(origin._asdict()).encode(), key=json.dumps(name).encode())
            for name, origin in copies.items()
        ]
        with Producer(self._bootstrap, linger_ms=0, options=self._options) as producer:
            producer.send_many(TOPIC, records)
