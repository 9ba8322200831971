"""What coordinators see of the topics: whoever keeps them gives a view of this shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ottla.records.growth import Growths


class TopicView(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partition_count(self) -> int: ...

    @property
    def growths(self) -> Growths: ...


class TopicsView(Protocol):
    @property
    def by_name(self) -> Mapping[str, TopicView]: ...

    @property
    def by_id(self) -> Mapping[bytes, TopicView]: ...
