"""What the scenarios of consumers share: a log with aborted records in it, users who keep count, and the rules."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

from ottla.client import ClientError, ClientOptions, TopicPartition, aio
from ottla.client.group.blobs import read_assignment
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.testing.world import FaultKind, RequestFault, World

TOPIC = "t"
GROUP = "g"
OPTIONS = ClientOptions(request_timeout_ms=3_000, retry_timeout_ms=10_000, metadata_age_ms=5_000)


class UsersMistake(Exception):
    """Leaves the user's block."""


def maybe_fail(random: Random, likely: float) -> None:
    if random.random() < likely:
        raise UsersMistake


async def fill(world: World, partitions: int) -> None:
    """Plain records, and transactions that were committed or aborted, small batches of all of them mixed."""
    random = world.random
    async with (
        aio.Producer(world.bootstrap, linger_ms=0) as plain,
        aio.Producer(world.bootstrap, linger_ms=0, transactional_id="one") as one,
        aio.Producer(world.bootstrap, linger_ms=0, transactional_id="two") as two,
    ):
        number = 0
        for _ in range(random.randint(4, 14)):
            partition = random.randrange(partitions)
            values = [b"%d" % (number + index) for index in range(random.randint(1, 12))]
            number += len(values)
            if random.random() < 0.3:
                for value in values:
                    await plain.send(TOPIC, value, partition=partition)
                continue
            try:
                async with random.choice([one, two]).transaction() as transaction:
                    producer = one if transaction._manager is one._transactions else two
                    for value in values:
                        await producer.send(TOPIC, value, partition=random.randrange(partitions))
                    maybe_fail(random, 0.5)
            except UsersMistake:
                pass


class History:
    """What users were given, and what of that they were done with."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.seen: defaultdict[int, set[int]] = defaultdict(set)
        self.finished: defaultdict[int, set[int]] = defaultdict(set)
        self.count = 0
        self.early: list[str] = []
        self.foreign: list[str] = []
        self.visible = {(record.partition, record.offset): record.value for record in world.committed(TOPIC)}

    def give(self, partition: int, records: list[Any]) -> None:
        for record in records:
            assert (partition, record.offset) in self.visible, f"{partition}@{record.offset} may not be seen"
            assert self.visible[partition, record.offset] == record.value
            self.seen[partition].add(record.offset)
            self.count += 1

    def check_new(self, partition: int, offsets: list[int]) -> None:
        """Nobody was given any of these before."""
        twice = self.seen[partition].intersection(offsets)
        assert not twice, f"{partition}@{sorted(twice)} came twice\n{self._world.trace()}"

    def finish(self, partition: int, offsets: list[int]) -> None:
        self.finished[partition].update(offsets)

    def watch_commits(self) -> None:
        """From now on: whatever a user asks to commit, all before it is finished at that moment; and what its group
        would let it commit is not another's."""

        def look(request: Any) -> bool:
            for topic in request.topics:
                for row in topic.partitions:
                    early = self._before(row.partition_index, row.committed_offset, self.finished)
                    if early:
                        self.early.append(f"commit of {row.partition_index}@{row.committed_offset}: {early}")
                    owner = owner_of(self._world, request, row.partition_index)
                    if owner not in (None, request.member_id):
                        self.foreign.append(f"{request.member_id} commits {row.partition_index}, which {owner} has")
            return False

        self._world.faults.add("OffsetCommit", RequestFault(FaultKind.PASS), times=1, when=look)

    def _before(self, partition: int, committed: int, done: dict[int, set[int]]) -> list[int]:
        return [
            offset
            for one, offset in self.visible
            if one == partition and offset < committed and offset not in done[partition]
        ]

    def check_committed(self, done: dict[int, set[int]], what: str) -> None:
        """Everything before a committed offset is `done`."""
        assert not self.early, f"not finished when it was committed: {self.early}\n{self._world.trace()}"
        assert not self.foreign, f"{self.foreign}\n{self._world.trace()}"
        if not self._world.is_up:
            return
        for place, committed in committed_offsets(self._world).items():
            early = self._before(place.partition, committed, done)
            assert not early, f"{place} is committed up to {committed}, and not {what}: {early}\n{self._world.trace()}"

    def check_all_seen(self) -> None:
        hidden = sorted(one for one in self.visible if one[1] not in self.seen[one[0]])
        assert not hidden, f"never seen: {hidden}\n{self._world.trace()}"


def committed_offsets(world: World) -> dict[TopicPartition, int]:
    return {TopicPartition(lag.topic, lag.partition): lag.committed_offset for lag in world.broker.lags.of_group(GROUP)}


def owner_of(world: World, request: Any, partition: int) -> str | None:
    """Who has a partition in the generation that a commit is of. None if nobody, or if the commit is refused anyhow."""
    if not world.is_up:
        return None
    for shard in world.broker.groups.shards():
        group = shard.machine.groups.get(request.group_id)
        if (
            isinstance(group, ClassicGroup)
            and group.generation == request.generation_id_or_member_epoch
            and request.member_id in group.members  # a crash may forget a generation, and its number is given again
        ):
            for member_id, member in group.members.items():
                if TopicPartition(TOPIC, partition) in read_assignment(member.assignment):
                    return str(member_id)
        if isinstance(group, ConsumerGroup):
            own = group.members.get(request.member_id)
            topic_id = world.broker.topics.by_name[TOPIC].topic_id
            if own is not None and own.progress.epoch == request.generation_id_or_member_epoch:
                return group._owners.get((topic_id, partition))
    return None


async def opened(make: Callable[[], aio.Consumer]) -> aio.Consumer:
    """A consumer, as soon as the cluster lets it open."""
    while True:
        try:
            return await make().open()
        except ClientError:
            await asyncio.sleep(0.5)
