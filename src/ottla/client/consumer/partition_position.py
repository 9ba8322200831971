"""How far a consumer has come in one partition."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ottla.client.consumer.fetched_data import Portion
from ottla.client.group.offsets import TopicPartition

NOWHERE = -1


class Held(NamedTuple):
    """A portion that waits to be handed out. It is stale if the place has moved since it was asked for."""

    place: Place
    portion: Portion
    version: int

    @property
    def is_stale(self) -> bool:
        return self.version != self.place.version


class Place:
    """Changed by the event loop and by the thread that hands out records, one attribute at a time."""

    __slots__ = (
        "asked_version", "committed", "fetch_offset", "held", "high_watermark", "in_hand", "is_paused", "position",
        "resting_until", "topic_partition", "version",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.position = NOWHERE
        """The next record to hand out; NOWHERE until that is known."""
        self.in_hand: int | None = None
        """The first record that was handed out and may not be processed yet."""
        self.committed = NOWHERE
        self.fetch_offset = NOWHERE
        self.high_watermark = NOWHERE
        self.held: deque[Held] = deque()
        self.asked_version: int | None = None
        """As of which a leader is asked at the moment."""
        self.is_paused = False
        self.resting_until = 0.0
        self.version = 0

    @property
    def is_asked(self) -> bool:
        return self.asked_version == self.version

    def move(self, offset: int) -> None:
        """Go on from there. What was fetched before is stale."""
        self.version += 1
        self.held.clear()
        self.in_hand = None
        self.position = self.fetch_offset = offset

    @property
    def processed(self) -> int:
        """Everything before it is done with."""
        in_hand = self.in_hand
        return self.position if in_hand is None else in_hand

    def put_back(self, held: Held) -> None:
        """What was not handed out of a portion comes next."""
        if not held.is_stale:
            held.portion.start = self.position
            self.held.appendleft(held)
