"""Which brokers hold which partition: spread evenly, or checked where somebody says it himself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random

from ottla.wire.errors import ApiError, ErrorCode


def spread(
    brokers: Sequence[int],
    count: int,
    factor: int,
    random: Random,
    first: int = 0,
    *,
    racks: Mapping[int, str | None] | None = None,
    unfit: Collection[int] = (),
) -> list[list[int]]:
    """The replicas of `count` partitions from the index `first` on, the preferred leader first.

    `racks`: where brokers stand. No rack gets a second replica of a partition before each has one. `unfit`: brokers
    that are about to go. They lead nothing, and hold a replica only where there are too few others.

    Leaders go round from a random broker. The other replicas go to those who have few so far, and few of this leader,
    so that what a broker leads is not all copied to the same neighbours.
    """
    if factor > len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {len(brokers)} broker(s) are registered or some brokers have all their log "
            "directories cordoned.",
        )
    if len(brokers) == 1 and not unfit:
        return [[brokers[0]] for _ in range(count)]
    leaders = _alternating([broker for broker in brokers if broker not in unfit], racks or {}, random)
    if not leaders:
        message = f"Unable to replicate the partition {factor} time(s): All brokers are currently fenced."
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    placement = _Placement(leaders, [broker for broker in brokers if broker in unfit], racks or {})
    start, start_distance = random.randrange(len(leaders)), random.randrange(len(leaders))
    return [
        placement.replicas(start + index, start_distance + index // len(leaders), factor)
        for index in range(first, first + count)
    ]


def _alternating(brokers: Sequence[int], racks: Mapping[int, str | None], random: Random) -> list[int]:
    """Neighbours stand in different racks, as far as that is possible."""
    by_rack: dict[str | None, list[int]] = {}
    for broker in brokers:
        by_rack.setdefault(racks.get(broker), []).append(broker)
    if len(by_rack) < 2:
        return list(brokers)
    names = sorted(by_rack, key=lambda rack: (rack is not None, rack))
    random.shuffle(names)
    found: list[int] = []
    while len(found) < len(brokers):
        found += [by_rack[rack].pop(0) for rack in names if by_rack[rack]]
    return found


class _Placement:
    """What each broker was given so far."""

    def __init__(self, leaders: Sequence[int], unfit: Sequence[int], racks: Mapping[int, str | None]) -> None:
        self._leaders = leaders
        self._unfit = unfit
        self._racks = racks
        self._given: Counter[int] = Counter()
        self._copied: Counter[tuple[int, int]] = Counter()  # how often the second follows the first

    def replicas(self, start: int, distance: int, factor: int) -> list[int]:
        most = len(self._leaders)
        leader = self._leaders[start % most]
        others = [self._leaders[(start + 1 + (distance + step) % (most - 1)) % most] for step in range(most - 1)]
        chosen = [leader]
        for candidates in (others, list(self._unfit)):
            while candidates and len(chosen) < factor:
                chosen.append(self._next(candidates, chosen))
                candidates.remove(chosen[-1])
        self._given.update(chosen)
        self._copied.update((leader, broker) for broker in chosen)
        return chosen

    def _next(self, candidates: Sequence[int], chosen: Sequence[int]) -> int:
        """A rack with the fewest replicas counts most, then what a broker has, then what it has of this leader."""
        used = Counter(self._racks.get(broker) for broker in chosen)
        given, copied, racks, leader = self._given, self._copied, self._racks, chosen[0]
        return min(candidates, key=lambda broker: (used[racks.get(broker)], 2 * given[broker] + copied[leader, broker]))


def check_manual(replicas: Sequence[int], brokers: Sequence[int], factor: int | None) -> None:
    """Refuse what cannot be the replicas of a partition; `factor` is that of the partitions before it."""
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker in sorted(replicas):
        if broker not in brokers:
            raise _invalid(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if broker == previous:
            raise _invalid(f"The manual partition assignment includes the broker {broker} more than once.")
        previous = broker
    if factor is not None and len(replicas) != factor:
        raise _invalid(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
