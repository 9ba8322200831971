"""What a process takes from the computer without asking its system: the clock, random bytes, seeds of generators."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


@contextmanager
def taken_over(seed: int, now: Callable[[], float], time_ns: Callable[[], int]) -> Iterator[None]:
    """All of it comes from the seed and from these clocks meanwhile, in the whole process."""
    source = random.Random(f"bytes {seed}")
    seeds = random.Random(f"seeds {seed}")
    plant = random.Random.seed

    def plant_known(generator: random.Random, a: Any = None, version: int = 2) -> None:
        plant(generator, seeds.getrandbits(64) if a is None else a, version)

    state = random.getstate()
    random.seed(f"module {seed}")
    try:
        with (
            mock.patch.object(time, "monotonic", now),
            mock.patch.object(time, "time_ns", time_ns),
            mock.patch.object(os, "urandom", source.randbytes),
            mock.patch.object(random.Random, "seed", plant_known),
        ):
            yield
    finally:
        random.setstate(state)
