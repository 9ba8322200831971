"""Faults by chance: a network that is bad, in a way that a seed decides."""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random
from typing import NamedTuple


class RequestOdds(NamedTuple):
    """How likely each fault is for a request; `delay_seconds` is the longest delay."""

    cut: float = 0.0
    lose_answer: float = 0.0
    delay: float = 0.0
    delay_seconds: float = 0.1

    def check(self) -> None:
        if not all(0 <= odd < inf for odd in self) or self.cut + self.lose_answer + self.delay > 1:
            raise ValueError(f"chances are not negative, and together at most 1: {self}")


class Chance:
    """What happened of it is in `counts`, by the names of the faults."""

    def __init__(self, seed: int | str, odds: RequestOdds) -> None:
        odds.check()
        self.counts: Counter[str] = Counter()
        self._random = Random(seed)
        self._odds = odds

    def __repr__(self) -> str:
        return f"<Chance, so far {dict(self.counts)}>"

    def draw(self) -> str | None:
        """The fault that happens to the next request, if any."""
        drawn = self._random.random()
        for name in ("cut", "lose_answer", "delay"):
            drawn -= getattr(self._odds, name)
            if drawn < 0:
                self.counts[name] += 1
                return name
        return None

    def draw_delay_seconds(self) -> float:
        return self._random.uniform(0, self._odds.delay_seconds)
