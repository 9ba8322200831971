"""What the checks ask of a client, whoever made it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, Self

Headers = tuple[tuple[str, bytes | None], ...]
WAIT_S = 60.0
"""Long: a busy machine is not a wrong result."""


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


class Fetched(NamedTuple):
    offset: int
    record: Record


class Refused(Exception):
    """The broker said no, with this code of Kafka's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


class Client(Protocol):
    """Writes and reads records; a context manager that lets go of its connections."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_exception: object) -> None: ...

    def write(self, topic: str, partition: int, records: Sequence[Record], *, codec: str, acks: int) -> None:
        """Send the records, in one batch if the client can; back when all are acknowledged."""

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Fetched]:
        """So many records from an offset on."""

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset, and the one after the last."""

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older."""

    def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic has."""


class AdminClient(Client, Protocol):
    """Also administers; a refusal is raised as Refused."""

    def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def add_partitions(self, topic: str, partition_count: int) -> None:
        """Give the topic so many partitions in all."""

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """The first offset that is left."""

    def topic_configs(self, topic: str) -> dict[str, str]:
        """All configurations of a topic."""

    def set_topic_config(self, topic: str, key: str, value: str) -> None: ...

    def broker_configs(self, node_id: int) -> dict[str, str]: ...


class Deadline:
    """Ends the wait for what does not come."""

    def __init__(self) -> None:
        self._due = time.monotonic() + WAIT_S

    def check(self, waited_for: str) -> None:
        if time.monotonic() > self._due:
            raise TimeoutError(f"waited {WAIT_S:.0f} s for {waited_for}")
