"""What a consumer reads as a member of its group: who it is there, and the change that its user is being told of.

A change has three steps, each between two calls of the user. First it is prepared: offsets of lost partitions are
committed, and the positions of new ones are found. Then the user is told, and then the change is applied. A step that
is cancelled is done again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.client.consumer.options import CoreOptions
from ottla.client.consumer.partition_position import PartitionPosition
from ottla.client.consumer.start_offsets import StartOffsets
from ottla.client.consumer.statistics import Counters
from ottla.client.errors import ClientError
from ottla.client.group.committer import Committer
from ottla.client.group.coordinator import Coordinator
from ottla.client.group.machine import NOTHING, Change
from ottla.client.group.member import Member
from ottla.client.group.offsets import Membership, TopicPartition
from ottla.client.group.subscription import Subscription

_logger = logging.getLogger("ottla.client")

MOST_LOCATING_SECONDS = 10.0
"""For how long the user is not told of partitions, because it is not known where to begin."""


class AssignmentTold(NamedTuple):
    """Whom it asks and tells."""

    has_news: Callable[[], None]
    """The group has something to say: nothing more is handed out before."""
    is_stuck: Callable[[], bool]
    """Whether the user has asked for nothing for too long."""
    raise_errors: Callable[[], None]


class Assignment:
    """`positions` are those of its consumer, whether they come from a group or not. Without a coordinator there is no
    group to join."""

    def __init__(
        self, coordinator: Coordinator | None, positions: dict[TopicPartition, PartitionPosition],
        committer: Committer, starts: StartOffsets, options: CoreOptions, told: AssignmentTold, counters: Counters,
    ) -> None:  # fmt: skip
        self._coordinator = coordinator
        self._positions = positions
        self._committer = committer
        self._starts = starts
        self._options = options
        self._told = told
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._member: Member | None = None
        self._telling: Change | None = None
        self._is_told = False
        self._held = NOTHING
        """What its user was told that it has, and not that it has it no more."""
        self._tell_by = 0.0
        self._leaving: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None
        """Of what is given up: it goes on when nobody waits for it any longer."""

    @property
    def is_of_group(self) -> bool:
        """Whether a group says what is read."""
        return self._member is not None and self._leaving is None

    @property
    def membership(self) -> Membership:
        return Membership(self._options.group or "") if self._member is None else self._member.membership

    def part(self) -> Change:
        """What the user is to be told before the group is left, once."""
        if self._member is None:
            return Change()
        if self._telling is not None and self._is_told:
            self._hold(self._telling)
        held, self._held = self._held, NOTHING
        return self._member.parting(held)

    @property
    def is_rejoining(self) -> bool:
        return self._member is not None and self._member.is_rejoining

    def may_commit(self, one: TopicPartition) -> bool:
        """Of what comes from a group, only what the user has been told of, and what is not another's again by then."""
        return self._member is None or one in self._member.owned

    def look_again(self) -> None:
        """A topic is not there any more."""
        if self._member is not None:
            self._member.look_again()

    def learn_standing(self) -> None:
        """A commit was refused."""
        if self._member is not None:
            self._member.beat_soon()

    def take_error(self) -> ClientError | None:
        return None if self._member is None else self._member.take_error()

    # Coming and going.

    async def subscribe(self, subscription: Subscription) -> None:
        if self._member is not None and self._leaving is None:
            self._member.resubscribe(subscription)
            return
        await self.leave()  # what was assigned by hand
        self.join(subscription)

    def join(self, subscription: Subscription) -> None:
        assert self._coordinator is not None
        assert self._options.group is not None
        self._member = Member(
            self._coordinator, self._options.group, subscription, self._options.member, self._told.has_news,
            self._told.is_stuck, is_classic=self._options.is_classic,
        )  # fmt: skip
        self._member.start()

    async def leave(self) -> None:
        """Nothing is read any more. Once begun it is done to its end, whoever waits for it."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._leave())
        await self.until_left()

    async def until_left(self) -> None:
        leaving = self._leaving
        if leaving is None:
            return
        try:
            await asyncio.shield(leaving)
        finally:
            if leaving.done() and self._leaving is leaving:
                self._leaving = None

    async def _leave(self) -> None:
        if self._committing is not None:
            await asyncio.wait([self._committing])
            self._committing = None
        await self.commit_last()
        member, self._member = self._member, None
        self._telling = None
        self._held = NOTHING
        self._positions.clear()
        if member is not None:
            await member.close()

    async def commit_last(self) -> None:
        if self._options.commits_what_it_gives_up and self._options.group is not None:
            try:
                await self._committer.commit_finished(self._positions)
            except ClientError as error:
                _logger.warning("group %s: the last offsets were not committed: %s", self._options.group, error)

    async def close(self) -> None:
        """Commits what is finished, and leaves the group."""
        await self.until_left()
        await self.commit_last()
        if self._member is not None:
            await self._member.close()

    def begin_to_close(self) -> list[asyncio.Task[None]]:
        """At once: what is about to end."""
        ending = [task for task in (self._leaving, self._committing) if task is not None]
        for task in ending:
            task.cancel()
        return ending if self._member is None else ending + self._member.begin_to_close()

    # Changes.

    def finish_told(self) -> None:
        """The user knows of the last change."""
        if self._leaving is None and self._telling is not None and self._is_told:
            self._finish(self._telling)

    @property
    def about_to_lose(self) -> frozenset[TopicPartition]:
        """What is others' already, and its user is to be told so next."""
        is_next = self._member is not None and self._leaving is None and self._telling is None
        return self._member.about_to_lose if is_next and self._member is not None else NOTHING

    async def step(self, deadline: float | None) -> tuple[bool, Change | None]:
        """Whether records may be handed out now; if not, the change that the user is to be told of, if there is one
        already. The next step finds that it has been told."""
        if self._leaving is not None:
            if not await is_over(self._leaving, deadline):
                return False, None
            await self.until_left()
        self.finish_told()
        self._told.raise_errors()
        if self._member is None:
            return True, None
        self._member.polled()
        if self._telling is None:
            self._telling, self._is_told = self._member.take_pending(), False
            self._tell_by = self._loop.time() + MOST_LOCATING_SECONDS
        if self._telling is None:
            return True, None
        self._is_told = await self._prepare(self._telling, deadline)
        return False, self._telling if self._is_told else None

    async def _prepare(self, change: Change, deadline: float | None) -> bool:
        """Before the user is told; whether that can be now. May be done again, if it was cancelled."""
        if change.revoked and self._options.commits_what_it_gives_up:
            if self._committing is None:
                self._committing = asyncio.create_task(self._commit_revoked(change.revoked))
            if not await is_over(self._committing, deadline):
                return False
            self._committing = None
        if self._telling is not change:  # it was left meanwhile
            return False
        for one in sorted(change.assigned):
            self._positions.setdefault(one, PartitionPosition(one))
        return await self._located_by(change.assigned, deadline)

    async def _commit_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        try:
            await self._committer.commit_finished(revoked)
        except ClientError as error:
            _logger.warning("group %s: offsets of what is given up were not committed: %s", self._options.group, error)

    def _has(self, place: PartitionPosition) -> bool:
        return self._positions.get(place.topic_partition) is place

    async def _located_by(self, assigned: Iterable[TopicPartition], deadline: float | None) -> bool:
        """Find their positions, because a user who is told of them may ask. False if there was no time for that now.

        Not for ever: one may be of a topic that is gone, and only the next change says so.
        """
        end = self._tell_by if deadline is None else min(deadline, self._tell_by)
        places = [self._positions[one] for one in assigned]
        try:
            async with asyncio.timeout_at(end):
                while any(not place.is_ready and self._has(place) for place in places):
                    await self._starts.until_round_over()
                    self._told.raise_errors()
        except TimeoutError:
            return end == self._tell_by
        return True

    def _finish(self, change: Change) -> None:
        """After the user was told."""
        self._telling = None
        self._hold(change)
        self._counters.rebalances += 1
        for one in change.revoked | change.lost:
            self._positions.pop(one, None)
        assert self._member is not None
        self._member.apply(change)

    def _hold(self, change: Change) -> None:
        self._held = self._held - change.revoked - change.lost | change.assigned


async def is_over(task: asyncio.Task[None], deadline: float | None) -> bool:
    """Whether it is before the user's time is; else it goes on."""
    timeout_seconds = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0)
    done, _ = await asyncio.wait([task], timeout=timeout_seconds)
    return bool(done)
