"""Measuring a function and reporting the figures."""

import gc
import json
import os
import platform
import re
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from operator import ge, gt, le, lt
from pathlib import Path
from time import perf_counter

LEAST_TIMED_SECONDS = 0.02
TARGET = re.compile(r"(<=|>=|<|>)\s*([\d,.]+)")
COMPARISONS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with its quartiles; `low <= median <= high`."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Result:
    """One figure. `target` is a comparison in the same unit, such as "< 10" or ">= 1,500 on one core"."""

    name: str
    value: float
    unit: str
    low: float
    high: float
    target: str = ""

    @classmethod
    def of(cls, name: str, spread: Spread, unit: str, target: str = "", *, scale: float = 1.0) -> "Result":
        """A result from a spread, each figure times `scale` (1e6 turns seconds into microseconds)."""
        median, low, high = spread.median * scale, spread.low * scale, spread.high * scale
        return cls(name, median, unit, low, high, target)

    @property
    def reached(self) -> bool | None:
        """Whether the median reaches the target; None without a target."""
        if not self.target:
            return None
        parts = TARGET.match(self.target)
        if parts is None:
            raise ValueError(f"{self.name}: the target {self.target!r} does not start like '< 10' or '>= 10'")
        bound = float(parts[2].replace(",", ""))
        return COMPARISONS[parts[1]](self.value, bound)


def measure(function: Callable[[], object], *, repeats: int = 7, number: int | None = None) -> Spread:
    """Seconds per call. Each of `repeats` samples makes `number` calls in a row.

    Without `number`, as many calls as fill 20 ms. The garbage collector rests meanwhile.
    """
    was_collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        calls = number or _calls_to_fill(function, LEAST_TIMED_SECONDS)
        samples = [_seconds(function, calls) / calls for _ in range(repeats)]
    finally:
        if was_collecting:
            gc.enable()
    return spread_of(samples)


def spread_of(samples: list[float]) -> Spread:
    """The median and the quartiles of the samples, for what `measure` cannot call."""
    if len(samples) == 1:
        return Spread(samples[0], samples[0], samples[0])
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Spread(median, low, high)


def rate(spread: Spread, amount: float) -> Spread:
    """How much of `amount` per second, when one call handles `amount` and takes `spread` seconds."""
    return Spread(amount / spread.median, amount / spread.high, amount / spread.low)


def _calls_to_fill(function: Callable[[], object], seconds: float) -> int:
    calls = 1
    while (taken := _seconds(function, calls)) < seconds:
        # Aim at the time directly once a sample is long enough to trust, and grow fast until then.
        calls = max(calls * 2, int(calls * seconds / taken)) if taken > seconds / 10 else calls * 10
    return calls


def _seconds(function: Callable[[], object], calls: int) -> float:
    rounds = range(calls)
    start = perf_counter()
    for _ in rounds:
        function()
    return perf_counter() - start


def describe_machine() -> str:
    """What the figures were measured on, without naming it."""
    implementation = platform.python_implementation()
    return (
        f"{implementation} {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores"
    )


def format_table(results: Iterable[Result]) -> str:
    """An aligned table, a line a result: name, median, unit, quartiles and how it stands to its target."""
    rows = [_row(result) for result in results]
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _row(result: Result) -> tuple[str, str, str, str, str]:
    spread = f"{figure(result.low)} .. {figure(result.high)}"
    verdict = {None: "", True: f"{result.target}: reached", False: f"{result.target}: NOT reached"}
    return result.name, figure(result.value), result.unit, spread, verdict[result.reached]


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    name, value, unit, spread, verdict = row
    cells = [
        name.ljust(widths[0]),
        value.rjust(widths[1]),
        unit.ljust(widths[2]),
        spread.ljust(widths[3]),
        verdict,
    ]
    return "  ".join(cells).rstrip()


def figure(value: float) -> str:
    """Four significant digits or all the whole ones, with thousands apart."""
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:,.{digits}f}"


def write_json(path: Path, sections: dict[str, list[Result]]) -> None:
    """Every figure in one JSON document, for a later run to compare with."""
    document = {
        "python": sys.version.split()[0],
        "machine": describe_machine(),
        "results": [
            {"bench": name, **asdict(result), "reached": result.reached}
            for name, results in sections.items()
            for result in results
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
