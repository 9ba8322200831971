"""Where to begin to read a partition: where the group has committed, else at the start.

Runs in the background, one attempt after the other, until every position is known; what stays unknown keeps being
asked for, whatever happens to the user's call that wanted it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from ottla.client.consumer.partition_position import NOWHERE, PartitionPosition, Status
from ottla.client.errors import ClientError, OffsetMissing, ServerError, describe_place
from ottla.client.group.committer import Committer
from ottla.client.group.offsets import Offset, TopicPartition
from ottla.client.network.cluster import Cluster
from ottla.client.network.retry import LONGEST_PAUSE_MS
from ottla.client.offsets import EARLIEST, Edge, Isolation, Position, ask_for_offsets
from ottla.wire.errors import ErrorCode

REFUSED_PAUSE_SECONDS = 1.0
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class StartOffsets:
    """`start` is for positions without a committed offset, and those whose offset is not there any more; None:
    neither."""

    def __init__(
        self, cluster: Cluster, positions: Mapping[TopicPartition, PartitionPosition], committer: Committer,
        start: Position | None, isolation: Isolation, tell: Callable[[], None], topic_gone: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.error: ClientError | None = None
        """What a consumer must be told."""
        self._cluster = cluster
        self._positions = positions
        self._committer = committer
        self._start = start
        self._isolation = isolation
        self._tell = tell
        self._topic_gone = topic_gone
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._round_over = asyncio.Event()
        self._trouble_since: float | None = None
        self._mistake: Exception | None = None
        """Of ours: whoever waits for a round is told, for there will be none."""

    def wake(self) -> None:
        self._woken.set()

    async def until_known(self, places: Iterable[PartitionPosition]) -> None:
        """Until all of them are located; the error that keeps one from it."""
        wanted = list(places)
        while any(not place.is_ready and self._has(place) for place in wanted):
            self._raise_error()
            await self.until_round_over()
        self._raise_error()

    def _raise_error(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error.again()

    async def until_round_over(self) -> None:
        """Until another attempt was made, well or not."""
        self._round_over.clear()
        self.wake()
        if self._mistake is None:
            await self._round_over.wait()
        if self._mistake is not None:
            raise self._mistake

    def _has(self, place: PartitionPosition) -> bool:
        return self._positions.get(place.topic_partition) is place

    async def run(self) -> None:
        try:
            await self._run()
        except Exception as error:
            self._mistake = error
            self._round_over.set()
            raise

    async def _run(self) -> None:
        pause_seconds = 0.0
        while True:
            self._woken.clear()
            unknown = [place for place in self._positions.values() if not place.is_ready]
            trouble = await self._locate(unknown) if unknown else None
            if trouble is None:
                self._trouble_since, pause_seconds = None, 0.0
            else:
                first_seconds = self._cluster.options.retry_pause_ms / 1000
                pause_seconds = min(max(2 * pause_seconds, first_seconds), LONGEST_PAUSE_MS / 1000)
                if not trouble.is_retriable:
                    pause_seconds = REFUSED_PAUSE_SECONDS
                self._note(trouble)
            self._round_over.set()
            self._tell()
            if trouble is None:
                await self._woken.wait()
            else:
                await asyncio.sleep(pause_seconds)

    def _note(self, trouble: ClientError) -> None:
        """An error that does not pass is told at once, others when they have lasted as long as the options say."""
        now = self._loop.time()
        if self._trouble_since is None:
            self._trouble_since = now
        is_gone = isinstance(trouble, ServerError) and trouble.code in _GONE
        if is_gone and self._topic_gone():
            return  # the group will take it away
        timeout_ms = self._cluster.options.retry_timeout_ms
        if not trouble.is_retriable or (now - self._trouble_since) * 1000 >= timeout_ms:
            self._trouble_since = now
            self.error = trouble

    async def _locate(self, places: list[PartitionPosition]) -> ClientError | None:
        """One attempt for all of them; the first trouble, if there is some, does not keep others back."""
        troubles: list[ClientError] = []
        starts: defaultdict[tuple[str, Position], list[PartitionPosition]] = defaultdict(list)
        epochs = {place: place.epoch for place in places}
        for place, committed in await self._committed(places, troubles):
            topic = place.topic_partition.topic
            if committed is not None:
                place.locate(epochs[place], committed.offset, committed.offset, committed.leader_epoch)
            elif place.status is Status.REWINDING and place.began != NOWHERE:
                place.locate(epochs[place], place.began)
            else:
                position = self._rule_of(place)
                if position is None:
                    troubles.append(_missing(place))
                else:
                    starts[topic, position].append(place)
        asked = [self._find(topic, position, found, epochs) for (topic, position), found in starts.items()]
        for result in await asyncio.gather(*asked):
            troubles += result
        return min(troubles, key=lambda trouble: trouble.is_retriable, default=None)

    async def _committed(
        self, places: list[PartitionPosition], troubles: list[ClientError]
    ) -> list[tuple[PartitionPosition, Offset | None]]:
        """Where the group has committed; None where it has not, or where that does not count."""
        asked = {place.topic_partition: place for place in places if place.status is not Status.OUT_OF_RANGE}
        found: list[tuple[PartitionPosition, Offset | None]] = [
            (place, None) for place in places if place.status is Status.OUT_OF_RANGE
        ]
        if not asked:
            return found
        if not self._committer.has_group:
            return found + [(place, None) for place in asked.values()]
        try:
            committed = await self._committer.ask(list(asked))
        except ClientError as error:
            troubles.append(error)
            return found
        for one, place in asked.items():
            offset = committed.get(one)
            if isinstance(offset, ClientError):
                troubles.append(offset)
            else:
                found.append((place, offset))
        return found

    def _rule_of(self, place: PartitionPosition) -> Position | None:
        if place.status is not Status.OUT_OF_RANGE or self._start is None or isinstance(self._start, Edge):
            return self._start
        return EARLIEST  # an offset, or a time, that was not there once will not be there now

    async def _find(
        self, topic: str, position: Position, places: list[PartitionPosition], epochs: dict[PartitionPosition, int]
    ) -> list[ClientError]:
        by_index = {place.topic_partition.partition: place for place in places}
        troubles: list[ClientError] = []
        try:
            found = await ask_for_offsets(self._cluster, topic, list(by_index), position, self._isolation)
        except ClientError as error:
            return [error]
        for index, offset in found.items():
            if isinstance(offset, ClientError):
                troubles.append(offset)
            else:
                by_index[index].locate(epochs[by_index[index]], offset)
        return troubles


def _missing(place: PartitionPosition) -> OffsetMissing:
    topic, partition = place.topic_partition
    is_gone = place.status is Status.OUT_OF_RANGE
    reason = "its offset is not there any more" if is_gone else "there is no committed offset"
    where = describe_place(topic, partition)
    return OffsetMissing(f"{where}: {reason}, and no start is given", topic=topic, partition=partition)
