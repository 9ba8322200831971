"""The uniform assignor where members subscribe to different topics.

What members have of topics they still subscribe to stays; what nobody has goes to the least loaded; then partitions
move from the most loaded to the least loaded as long as that evens them out.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from ottla.coordinator.assignors.subscriber import Partitions, Subscriber, frozen

MOST_ROUNDS = 16
NOBODY = -1


def assign_mixed(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    balance = _Balance(list(members.values()), partition_counts)
    balance.place_unassigned()
    for _ in range(MOST_ROUNDS):
        if not balance.even_out():
            break
    return dict(zip(members, balance.assigned(), strict=True))


class _Balance:
    """Members by their index; the owner of each partition; and how many partitions each member has."""

    def __init__(self, members: list[Subscriber], partition_counts: Mapping[bytes, int]) -> None:
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
        for index, member in enumerate(members):
            for topic_id, partitions in member.target.items():
                if topic_id in member.topic_ids:
                    for number in partitions:
                        self._owners[topic_id][number] = index
                    self._loads[index] += len(partitions)

    def _difficulty(self, topic_id: bytes, partition_counts: Mapping[bytes, int]) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic_id])
        return -partition_counts[topic_id] / subscribers, subscribers, topic_id

    def place_unassigned(self) -> None:
        loads = self._loads
        for topic_id in self._topics:
            owners = self._owners[topic_id]
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

    def even_out(self) -> bool:
        """One round over all topics; whether anything moved."""
        has_moved = False
        for topic_id in self._topics:
            if len(self._subscribers[topic_id]) > 1:
                while self._move_one(topic_id):
                    has_moved = True
        return has_moved

    def _move_one(self, topic_id: bytes) -> bool:
        loads, owners = self._loads, self._owners[topic_id]
        least = min(self._subscribers[topic_id], key=loads.__getitem__)
        most = max(set(owners), key=loads.__getitem__, default=least)
        if loads[most] - loads[least] <= 1:
            return False
        last = len(owners) - 1 - owners[::-1].index(most)
        owners[last] = least
        loads[most] -= 1
        loads[least] += 1
        return True

    def assigned(self) -> list[Partitions]:
        held: list[dict[bytes, list[int]]] = [{} for _ in self._loads]
        for topic_id, owners in self._owners.items():
            for number, owner in enumerate(owners):
                held[owner].setdefault(topic_id, []).append(number)
        return [frozen(partitions) for partitions in held]
