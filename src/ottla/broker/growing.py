"""What this broker does for topics that grow in order: it reports on the parents that it leads.

In the first step, parents refuse everything that is written for a moment, as when a leader changes. So producers ask
for metadata, and learn of the new partitions. A producer that wrote nothing in that moment has not learned of them.
Its connection is closed once all its requests are answered, and it asks for metadata when it connects again. Clients
that do not know the topic are left alone, and so are administrators (`network/acquaintance`). A parent is drained when
no batch has come for a while with keys that belong to new partitions. In the second step its log refuses such batches
(`records/placement`). Where the log ends then is the fence, once that is committed. A fence is lowered later if less of
the log is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.events import Events
from ottla.controller.growing import LIFTED
from ottla.log.errors import LogError
from ottla.log.log import Log
from ottla.log.segment import Segment
from ottla.log.visible import Counting, visible_end
from ottla.records.growth import Growth, Phase, is_growing
from ottla.wire.messages.report_growth import LoweredFence, PartitionReport, ReportGrowthRequest, TopicReport

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.loop.loop import Timer
    from ottla.broker.network.connection import Connection
    from ottla.broker.topics import Topic
    from ottla.replica.partition import Partition

events = Events("ottla.broker")

VERSION = 0
LOOK_SECONDS = 0.1  # while a topic grows
REST_SECONDS = 5.0  # while fences stand
MOST_FINDING_SECONDS = 0.01  # for which logs are read in one look: what is left is found in the next
PAUSE_SECONDS = 0.3  # for which parents refuse everything
TOLD_AGAIN_SECONDS = 2.0  # after which they do so again, if keys that go still come
NEW_LEADER_QUIET_SECONDS = 10.0  # librdkafka's longest pause before it connects again


class _Watch:
    """One parent that this broker leads, in one step of a growth and one epoch."""

    def __init__(self, partition: Partition, now: float, quiet_seconds: float) -> None:
        self.strays = 0
        self.quiet_since = self.told_at = now
        self.quiet_seconds = quiet_seconds
        partition.writer.write_gathered()
        self.end_offset = partition.log.end_offset
        self.is_committed = False
        self.fence: int | None = None  # once it is found


class _Step(NamedTuple):
    topic_id: bytes
    partition: int
    leader_epoch: int
    first: int
    phase: Phase


class _LastVisible(NamedTuple):
    """What lies before a fence, as long as compaction leaves it alone: that may remove the last record."""

    end_offset: int  # behind the last record that a consumer gets
    segment: Segment  # with that record

    def stands(self, log: Log) -> bool:
        return _segment_with(log, self.end_offset - 1) is self.segment


class Growing:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._names: set[str] = set()  # topics that grow, or whose fences stand
        self._watches: dict[_Step, _Watch] = {}
        self._found: dict[_Step, _LastVisible] = {}  # before fences that stand
        self._searches: dict[_Step, Counting] = {}  # for the ends of what can be seen, under way
        self._begun: set[tuple[bytes, int]] = set()  # growths of which producers here were told
        self._sent_away: dict[str, set[Connection]] = {}  # by topic, while producers are told of its growth
        self._led_before: set[_Step] = set()  # parents that this broker has led since before they were to drain
        self._timer: Timer | None = None
        self._found_for = 0.0  # seconds, in the look at hand
        self._is_finding = False  # whether there was no time for all of it
        self._is_asking = False
        self._is_stopped = False
        broker.topics.watch(self._topic_changed)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _topic_changed(self, name: str) -> None:
        topic = self._broker.topics.by_name.get(name)
        if topic is None or not _is_watched(topic):
            self._names.discard(name)
            return
        self._names.add(name)
        growth = topic.growths[-1]
        key = topic.topic_id, growth.first
        if growth.phase is Phase.DRAINING and key not in self._begun:
            self._begun.add(key)
            self._tell_producers(topic, growth)
        self._set_timer(LOOK_SECONDS if is_growing(topic.growths) else REST_SECONDS)

    def _tell_producers(self, topic: Topic, growth: Growth) -> None:
        """Have all clients that know the topic ask for metadata."""
        sent_away: set[Connection] = set()
        self._sent_away[topic.name] = sent_away
        connections = [
            each for each in self._broker.frontend.connections if each.acquaintance.is_concerned_with(topic.name)
        ]
        reason = f"topic {topic.name} grows to {growth.total} partitions, of which clients are to learn"

        def end_others() -> None:
            if self._sent_away.get(topic.name) is sent_away:
                del self._sent_away[topic.name]
            for connection in connections:
                if connection.is_open and connection not in sent_away:
                    connection.end(reason)

        for index in growth.parents:
            partition = topic.replicas.get(index)
            if partition is not None:
                self._pause(partition)
        self._broker.loop.call_later(PAUSE_SECONDS, end_others)

    def sent_away(self, name: str, connection: Connection) -> None:
        """What a client wrote was refused because its topic grows: it asks for metadata."""
        sent_away = self._sent_away.get(name)
        if sent_away is not None:
            sent_away.add(connection)

    def _pause(self, partition: Partition) -> None:
        """Refuse for a moment all that is written: who writes asks for metadata then."""
        placement = partition.log.placement
        if placement is None:
            return
        placement.is_paused = True

        def go_on() -> None:
            placement.is_paused = False

        self._broker.loop.call_later(PAUSE_SECONDS, go_on)

    # Looking

    def _set_timer(self, seconds: float) -> None:
        if self._is_stopped:
            return
        loop = self._broker.loop
        if self._timer is not None:
            if self._timer.callback is not None and self._timer.due <= loop.now() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._is_stopped or not self._names:
            return
        try:
            if not self._is_asking and self._broker.has_joined:
                self._report()
        finally:
            topics = self._broker.topics.by_name
            grows = any(is_growing(topics[name].growths) for name in self._names if name in topics)
            self._set_timer(LOOK_SECONDS if grows or self._is_finding else REST_SECONDS)

    def _report(self) -> None:
        self._found_for, self._is_finding = 0.0, False
        steps: set[_Step] = set()
        topics = []
        for name in sorted(self._names):
            topic = self._broker.topics.by_name.get(name)
            if topic is not None:
                partitions = list(self._reports(topic, steps))
                if partitions:
                    topics.append(TopicReport(topic_id=topic.topic_id, partitions=partitions))
        self._watches = {step: watch for step, watch in self._watches.items() if step in steps}
        self._found = {step: found for step, found in self._found.items() if step in steps}
        self._searches = {step: search for step, search in self._searches.items() if step in steps}
        self._led_before &= steps | {step._replace(phase=Phase.DRAINING) for step in steps}
        if not topics:
            return
        membership = self._broker.membership
        request = ReportGrowthRequest(
            broker_id=self._broker.node_id, broker_epoch=membership.broker_epoch, topics=topics
        )
        self._is_asking = True
        membership.ask_controller(request, VERSION, self._answered)

    def _answered(self, _answer: object) -> None:
        """Whatever it is: as long as nothing has changed, the next look tells the same again."""
        self._is_asking = False

    def _reports(self, topic: Topic, steps: set[_Step]) -> Iterator[PartitionReport]:
        for index, partition in topic.replicas.items():
            if not partition.is_leader:
                continue
            report = PartitionReport(partition_index=index, leader_epoch=partition.leader_epoch, lowered=[])
            is_growing_here = False
            for growth in topic.growths:
                if index not in growth.parents:
                    continue
                step = _Step(topic.topic_id, index, partition.leader_epoch, growth.first, growth.phase)
                steps.add(step)
                if growth.phase is Phase.PREPARING:
                    self._led_before.add(step._replace(phase=Phase.DRAINING))
                if growth.phase is not Phase.OPEN:
                    is_growing_here = True
                    self._tell_growing(report, partition, growth, step)
                elif (fence := self._lowered(partition, growth.fences.get(index), step)) is not None:
                    report.lowered.append(LoweredFence(first=growth.first, fence=fence))
            if is_growing_here or report.lowered:
                yield report

    def _tell_growing(self, report: PartitionReport, partition: Partition, growth: Growth, step: _Step) -> None:
        now = self._broker.loop.now()
        watch = self._watches.get(step)
        if watch is None:
            watch = self._watches[step] = _Watch(partition, now, self._quiet_seconds(growth, step))
            if growth.phase is Phase.FENCING:
                self._await_commit(partition, step, watch)
        if growth.phase is Phase.DRAINING:
            placement = partition.log.placement
            strays = 0 if placement is None else placement.strays
            if strays != watch.strays:
                watch.strays, watch.quiet_since = strays, now
                if now - watch.told_at >= TOLD_AGAIN_SECONDS:
                    watch.told_at = now
                    self._pause(partition)
            report.is_drained = now - watch.quiet_since >= watch.quiet_seconds
        elif watch.is_committed:
            if watch.fence is None:
                watch.fence = self._visible_end(partition, watch.end_offset, step)
            fence = watch.fence
            if fence is not None:
                report.has_fence = True
                report.fence = fence if fence > partition.log.log_start_offset else LIFTED

    def _quiet_seconds(self, growth: Growth, step: _Step) -> float:
        """How long no keys that go must have come. Clients of a leader that is new may still be on their way."""
        asked = growth.quiet_ms / 1000
        return asked if step in self._led_before else max(asked, NEW_LEADER_QUIET_SECONDS)

    def _await_commit(self, partition: Partition, step: _Step, watch: _Watch) -> None:
        """Ask the disk for it where that is needed: maybe nobody else does."""

        def done(failure: LogError | None) -> None:
            watch.is_committed = failure is None
            if failure is not None and self._watches.get(step) is watch:
                del self._watches[step]  # the next look tries again

        partition.when_committed(watch.end_offset, done)

    def _lowered(self, partition: Partition, fence: int | None, step: _Step) -> int | None:
        """What is left of a fence, told until the controller knows it; None if it stands as it is."""
        if fence is None:
            return None
        log = partition.log
        if log.log_start_offset >= fence:
            return LIFTED
        if log.end_offset < fence:
            return log.end_offset  # what lay before it was lost
        known = self._found.get(step)
        if known is None or not known.stands(log):
            if log.last_stable_offset < fence:
                return None
            found = self._visible_end(partition, fence, step)
            if found is None:
                return None
            known = self._found[step] = _LastVisible(found, _segment_with(log, found - 1))
        return known.end_offset if known.end_offset < fence else None

    def _visible_end(self, partition: Partition, end_offset: int, step: _Step) -> int | None:
        """Behind the last record before an offset that a consumer gets: some never come further. None: ask later."""
        log = partition.log
        if log.last_stable_offset < end_offset:
            return end_offset  # nobody knows yet what will be seen
        now = self._broker.loop.now
        while self._found_for <= MOST_FINDING_SECONDS:
            started = now()
            search = self._searches.get(step)
            if search is None:
                search = self._searches[step] = visible_end(log, end_offset)
            try:
                next(search)
            except StopIteration as end:
                del self._searches[step]
                found: int = end.value
                return found
            except (LogError, OSError) as error:
                del self._searches[step]
                events.warning("a fence cannot be found", partition=partition.name, reason=error)
                return None
            finally:
                self._found_for += now() - started
        self._is_finding = True
        return None


def _segment_with(log: Log, offset: int) -> Segment:
    return log.segments[log.segments.number_for(offset)]


def _is_watched(topic: Topic) -> bool:
    return any(growth.phase is not Phase.OPEN or growth.fences for growth in topic.growths)
