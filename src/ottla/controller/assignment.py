"""Which brokers hold which partition: spread evenly, or checked where somebody says it himself."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ottla.controller.refusal import Refusal
from ottla.wire.errors import ErrorCode


def spread(brokers: Sequence[int], count: int, factor: int, random: Random, first: int = 0) -> list[list[int]]:
    """The replicas of `count` partitions from the index `first` on, the preferred leader first.

    Leaders go round from a random broker. The other replicas follow at a distance that grows with every round, so
    that what a broker leads is not all copied to the same neighbours.
    """
    most = len(brokers)
    if factor > most:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {most} broker(s) are registered or some brokers have all their log directories "
            "cordoned.",
        )
    if most == 1:
        return [[brokers[0]] for _ in range(count)]
    start, start_distance = random.randrange(most), random.randrange(most)
    assignment = []
    for index in range(first, first + count):
        leader, distance = start + index, start_distance + index // most
        others = [leader + 1 + (distance + number) % (most - 1) for number in range(factor - 1)]
        assignment.append([brokers[position % most] for position in (leader, *others)])
    return assignment


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


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
