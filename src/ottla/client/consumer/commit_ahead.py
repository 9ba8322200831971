"""At most once: what is about to be handed out is committed before, a portion at a time.

A commit that takes longer than the user waits goes on, and what it is for is handed out by a later call. What was
committed and never handed out is given back when its partition is given up, by a commit of where the user is. A member
that was thrown out cannot: it hands out the rest of what it has committed before all else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from ottla.client.consumer.assignment import is_over
from ottla.client.consumer.partition_position import NOWHERE, Entry, PartitionPosition
from ottla.client.group.committer import Committer
from ottla.client.group.offsets import TopicPartition

AT_MOST_ONCE_RECORDS = 500
"""How many records are committed together before they are handed out."""


class CommitAhead:
    def __init__(self, committer: Committer, positions: Mapping[TopicPartition, PartitionPosition]) -> None:
        self._committer = committer
        self._positions = positions
        self._task: asyncio.Task[None] | None = None
        self._entries: list[Entry] = []
        self._owed: list[Entry] = []

    @property
    def is_pending(self) -> bool:
        """Whether there is something that is not handed out."""
        return self._task is not None

    def begin(self, entries: list[Entry]) -> None:
        """A few records of each are committed, where the last ones have all been handed out."""
        self._entries = entries
        self._owed = [entry for entry in entries if entry.place.is_owed]
        if not entries:
            return
        for entry in self._owed:
            entry.end = entry.place.ahead
        new = [entry for entry in entries if entry.end is None]
        for entry in new:
            entry.end = entry.place.ahead = entry.data.sound(entry.start, AT_MOST_ONCE_RECORDS).next_offset
        offsets = {
            entry.place.topic_partition: entry.place.to_be_committed(entry.place.ahead)
            for entry in new
            if entry.place.ahead > entry.start
        }
        work = self._committer.commit(offsets) if offsets and self._committer.has_group else asyncio.sleep(0)
        self._task = asyncio.create_task(work)
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # perhaps nobody will ask

    async def committed(self, deadline: float | None) -> list[Entry]:
        """What may be handed out now. What cannot be committed stays, and is an error."""
        task = self._task
        if task is None or not await is_over(task, deadline):
            return []
        self._task = None
        # While the commit was on its way, one may have been paused or moved, or be another's.
        entries = [entry for entry in self._entries if self._has(entry) and entry.place.is_next(entry)]
        if task.exception() is None:
            return entries
        for entry in self._entries:
            if not entry.place.is_owed:
                entry.place.ahead = entry.place.committed = NOWHERE  # it may have been carried out, or not
        owed = [entry for entry in entries if entry in self._owed]
        if entries and not owed:  # else it does not matter what became of it, or is told the next time
            task.result()
        return owed

    def rest_of(self, about_to_lose: Iterable[TopicPartition]) -> list[Entry]:
        """What is committed of them and not handed out. From one position once: an error there keeps nobody."""
        found = []
        for one in about_to_lose:
            place = self._positions.get(one)
            entry = None if place is None or not place.is_owed else place.peek()
            if entry is not None and entry.place.offered < entry.start:
                entry.place.offered = entry.start
                entry.end = entry.place.ahead
                found.append(entry)
        return found

    def drop(self) -> None:
        """At once: nothing of it is handed out, for it is about to be given back."""
        self._entries = []

    def begin_to_close(self) -> list[asyncio.Task[None]]:
        """At once: what is about to end."""
        if self._task is None:
            return []
        self._task.cancel()
        return [self._task]

    def _has(self, entry: Entry) -> bool:
        return self._positions.get(entry.place.topic_partition) is entry.place
