"""How far each task of a source is: a compacted topic of the connector's own, with a partition for each task.

Only the transactional producer of a task writes to its partition, so whoever has opened that producer finds there what
was committed last: nobody else's open transaction is in the way. The same topic is what the group of the runners
divides: whoever has a partition runs its task.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ottla.client import EARLIEST, LATEST, Admin, ClientOptions, Isolation, NewRecord, Producer, Reader
from ottla.connect.interface import ConnectorRefused
from ottla.connect.topics import COMPACTED, ensure_topic, topic_exists

NEAR_THE_END = 200
CONFIGS = COMPACTED | {"max.message.bytes": str(15 << 20)}
"""A position may be large: `files-source` has an entry for each file in it, the mirror one for each partition. A
segment must have room for it."""


class StoredPosition(NamedTuple):
    position: Any
    task_count: int
    time_ms: int


def topic_of(connector: str) -> str:
    return f"ottla-connect.{connector}"


def group_of(connector: str) -> str:
    return f"connect-{connector}"


def transactional_id_of(connector: str, task: int) -> str:
    return f"connect-{connector}-{task}"


class Positions:
    def __init__(self, bootstrap: str, options: ClientOptions, connector: str, task_count: int) -> None:
        self.topic = topic_of(connector)
        self._bootstrap = bootstrap
        self._options = options
        self._connector = connector
        self._task_count = task_count

    def ensure(self) -> None:
        ensure_topic(self._bootstrap, self._options, self.topic, partitions=self._task_count, configs=CONFIGS)

    def record(self, task: int, position: Any) -> NewRecord:
        """What says that a task is so far. A position of None is forgotten by compaction."""
        value = None if position is None else _json({"position": position, "tasks": self._task_count})
        return NewRecord(value, key=_json({"connector": self._connector, "task": task}), partition=task)

    def read(self, task: int) -> StoredPosition | None:
        """What was committed last. To be asked by whoever has opened the task's producer, or to look at it."""
        with Admin(self._bootstrap, self._options) as admin:
            end = admin.find_offsets(self.topic, LATEST, [task], Isolation.READ_COMMITTED)[task]
        found = self._read_between(task, max(0, end - NEAR_THE_END), end)
        if not found and end > NEAR_THE_END:
            found = self._read_between(task, 0, end)
        return found[-1] if found else None

    def _read_between(self, task: int, start: int, end: int) -> list[StoredPosition | None]:
        """What was said there, in its order. None: the position was forgotten."""
        found: list[StoredPosition | None] = []
        if end == 0:
            return found
        with Reader(
            self._bootstrap, self.topic, [task], start=start, end=end, reset=EARLIEST, options=self._options
        ) as reader:
            for fetched in reader:
                for record in fetched.records:
                    document = None if record.value is None else json.loads(record.value)
                    found.append(document and StoredPosition(document["position"], document["tasks"], record.timestamp))
        return found

    def read_own(self, task: int) -> Any:
        """As `read`; refuses a position that was made with another number of tasks."""
        stored = self.read(task)
        if stored is None:
            return None
        if stored.task_count != self._task_count:
            raise ConnectorRefused(
                f"its positions were made with tasks = {stored.task_count}, and it is {self._task_count} now: "
                "set it back, or forget the positions with 'ottla connect reset'"
            )
        return stored.position

    def reset(self, position: Any = None, *, only_task: int | None = None) -> list[int]:
        """Forgets the positions, or sets one. Fences whoever runs the tasks. The tasks that were changed."""
        if not topic_exists(self._bootstrap, self._options, self.topic):
            return []
        with Admin(self._bootstrap, self._options) as admin:
            count = len(admin.describe_topics([self.topic])[0].partitions)
        tasks = [only_task] if only_task is not None else list(range(count))
        for task in tasks:
            with (
                Producer(
                    self._bootstrap,
                    transactional_id=transactional_id_of(self._connector, task),
                    options=self._options,
                ) as producer,
                producer.transaction(),
            ):
                producer.send_many(self.topic, [self.record(task, position)])
        return tasks


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
