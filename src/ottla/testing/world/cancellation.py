"""A user who changes his mind at any moment: one run for each round of the event loop."""

from __future__ import annotations

from collections.abc import Callable

MOST_ROUNDS = 10_000


def every_cancellation(scenario: Callable[[int], bool], step: int = 1) -> int:
    """Calls a scenario with k = 0, 1, 2, … until it says that its call ended before its k-th round; how often.

    The scenario makes a world of its own each time, so that each run differs from the others only in k:

        def scenario(k: int) -> bool:
            with World(seed) as world:
                ...
                return world.run_cancelled(call(), k)  # whether it ended by itself

        every_cancellation(scenario)
    """
    for runs, k in enumerate(range(0, MOST_ROUNDS, step), 1):
        if scenario(k):
            return runs
    raise AssertionError(f"the call did not end within {MOST_ROUNDS} rounds")
