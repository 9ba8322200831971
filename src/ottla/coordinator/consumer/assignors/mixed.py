"""The uniform assignor where members subscribe to different topics.

What members have of topics they still subscribe to stays; what nobody has goes to the least loaded; then partitions
move from the most loaded to the least loaded as long as that evens them out.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Mapping
from typing import TypeAlias, TypeVar

from ottla.coordinator.consumer.assignors.subscriber import AssignorSteps, Partitions, Pause, Subscriber, frozen

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

MOST_ROUNDS = 16
NOBODY = -1


def assign_mixed(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> AssignorSteps:
    balance = _Balance(list(members.values()), partition_counts)
    yield from balance.place_held()
    yield from balance.place_unassigned()
    for _ in range(MOST_ROUNDS):
        if not (yield from balance.even_out()):
            break
    assigned = yield from balance.assigned()
    return dict(zip(members, assigned, strict=True))


class _Balance:
    """Members by their index; the owner of each partition; and how many partitions each member has."""

    def __init__(self, members: list[Subscriber], partition_counts: Mapping[bytes, int]) -> None:
        self._members = members
        self._pause = Pause()
        self._loads = [0] * len(members)
        self._subscribers: dict[bytes, list[int]] = {}
        for index, member in enumerate(members):
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(index)
        # The topics with the least choice come first: those of which each subscriber has to take most.
        self._topics = sorted(self._subscribers, key=lambda topic_id: self._difficulty(topic_id, partition_counts))
        self._owners: dict[bytes, list[int]] = {
            topic_id: [NOBODY] * partition_counts[topic_id] for topic_id in self._topics
        }

    def place_held(self) -> Steps[None]:
        """What members were to have of topics they still subscribe to stays.

        A target that was not written to its end gives some partitions to two: the first of them has them.
        """
        for index, member in enumerate(self._members):
            for topic_id, partitions in member.target.items():
                if topic_id in member.topic_ids:
                    owners = self._owners[topic_id]
                    free = [number for number in partitions if owners[number] == NOBODY]
                    for number in free:
                        owners[number] = index
                    self._loads[index] += len(free)
                if self._pause.is_due(len(partitions)):
                    yield

    def _difficulty(self, topic_id: bytes, partition_counts: Mapping[bytes, int]) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic_id])
        return -partition_counts[topic_id] / subscribers, subscribers, topic_id

    def place_unassigned(self) -> Steps[None]:
        loads = self._loads
        for topic_id in self._topics:
            owners = self._owners[topic_id]
            if self._pause.is_due(len(owners) + len(self._subscribers[topic_id])):
                yield
            if NOBODY not in owners:
                continue
            least_loaded = [(loads[index], index) for index in self._subscribers[topic_id]]
            heapq.heapify(least_loaded)
            for number, owner in enumerate(owners):
                if owner == NOBODY:
                    load, index = least_loaded[0]
                    heapq.heapreplace(least_loaded, (load + 1, index))
                    owners[number] = index
                    loads[index] = load + 1

    def even_out(self) -> Steps[bool]:
        """One round over all topics; whether anything moved."""
        has_moved = False
        for topic_id in self._topics:
            if self._pause.is_due(len(self._owners[topic_id]) + len(self._subscribers[topic_id])):
                yield
            if len(self._subscribers[topic_id]) > 1:
                has_moved |= self._even_out_topic(topic_id)
        return has_moved

    def _even_out_topic(self, topic_id: bytes) -> bool:
        """Move partitions from the most loaded owner to the least loaded subscriber, until they are even.

        Of several that are as loaded, the one with the lowest index counts; of its partitions, the last goes. Who was
        given one never gives it on: it has one more than the least loaded then, and the least never falls. So each
        partition moves once at the most, and heaps find both ends.
        """
        loads, owners, subscribers = self._loads, self._owners[topic_id], self._subscribers[topic_id]
        present = set(owners)
        least_load = min(map(loads.__getitem__, subscribers))
        if not present or max(map(loads.__getitem__, present)) - least_load <= 1:
            return False
        held: dict[int, list[int]] = {}
        for number, owner in enumerate(owners):
            held.setdefault(owner, []).append(number)
        most_loaded = [(-loads[index], index) for index in present]
        least_loaded = [(loads[index], index) for index in subscribers]
        heapq.heapify(most_loaded)
        heapq.heapify(least_loaded)
        while True:
            self._drop_outdated(most_loaded, least_loaded)
            if not most_loaded:
                return True
            most, least = most_loaded[0][1], least_loaded[0][1]
            if loads[most] - loads[least] <= 1:
                return True
            owners[held[most].pop()] = least
            loads[most] -= 1
            loads[least] += 1
            heapq.heapreplace(least_loaded, (loads[least], least))
            heapq.heappush(least_loaded, (loads[most], most))
            heapq.heappop(most_loaded)
            if held[most]:
                heapq.heappush(most_loaded, (-loads[most], most))

    def _drop_outdated(self, most_loaded: list[tuple[int, int]], least_loaded: list[tuple[int, int]]) -> None:
        """Take entries with a load of before from the tops of both heaps."""
        loads = self._loads
        while most_loaded and -most_loaded[0][0] != loads[most_loaded[0][1]]:
            heapq.heappop(most_loaded)
        while least_loaded[0][0] != loads[least_loaded[0][1]]:
            heapq.heappop(least_loaded)

    def assigned(self) -> Steps[list[Partitions]]:
        held: list[dict[bytes, list[int]]] = [{} for _ in self._loads]
        for topic_id, owners in self._owners.items():
            for number, owner in enumerate(owners):
                held[owner].setdefault(topic_id, []).append(number)
            if self._pause.is_due(len(owners)):
                yield
        return [frozen(partitions) for partitions in held]
