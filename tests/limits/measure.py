"""Asks a broker for the worst of each API, and measures how long its loop was away from everybody else."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from tests.limits.world import Load, World
from tests.limits.worst import WORST


class Measured(NamedTuple):
    api: str
    round_seconds: float  # of CPU time: the longest that any of its requests took
    request: int  # which of them that was
    peak_bytes: int  # of memory that the broker ever held


def measure(load: Load, apis: Collection[str] = WORST) -> Iterator[Measured]:
    with World(load) as world:
        world.fill()
        for api in apis:
            rounds = []
            for ask in WORST[api](world):
                world.longest_round()  # what made the request ready does not count
                is_answered = world.ask(*ask) is not None
                rounds.append(world.longest_round())
                assert is_answered, f"{api}: request {len(rounds)} was not answered, so nothing was measured"
            yield Measured(api, max(rounds), rounds.index(max(rounds)) + 1, world.broker.memory_bytes("VmHWM"))
