"""What is compared, what has to be reached, and the table of both."""

from collections.abc import Iterable
from dataclasses import dataclass

from bench.report import Result, Spread, figure, spread_of

RATIO = "x Kafka"


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing measured on each broker; `target` is for the ratio, as a multiple of Kafka's figure."""

    unit: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Comparison(Result):
    """The ratio of Ottla's figure to Apache Kafka's, with both. Without Kafka it is Ottla's figure alone."""

    figure_unit: str = ""
    ottla: Spread | None = None
    kafka: Spread | None = None


FIGURES: dict[str, Figure] = {
    "start to first acknowledged record": Figure("s", "<= 0.1"),
    "memory, idle": Figure("MB", "<= 0.1"),
    **{
        f"produce {size}, acks={acks}, {codec}": Figure("MB/s", target)
        for size, target in (("100 B", ">= 1"), ("1 KB", ">= 2.5"))
        for acks in ("1", "all")
        for codec in ("none", "lz4")
    },
    **{f"consume {size}, {codec}": Figure("MB/s", ">= 1") for size in ("100 B", "1 KB") for codec in ("none", "lz4")},
    **{
        f"CPU of producing {size}, {codec}": Figure("s/GB", "<= 0.15")
        for size in ("100 B", "1 KB")
        for codec in ("none", "lz4")
    },
    **{
        f"CPU of consuming {size}, {codec}": Figure("s/GB", "<= 0.5")
        for size in ("100 B", "1 KB")
        for codec in ("none", "lz4")
    },
    "one-record requests, 1 at a time": Figure("1/s", ">= 1.2"),
    "one-record requests, 16 in flight": Figure("1/s", ">= 5"),
    "one-record requests, 8 connections x 4": Figure("1/s", ">= 2"),
    "CPU of a request, 1 at a time": Figure("us"),
    "CPU of a request, 16 in flight": Figure("us"),
    "CPU of a request, 8 connections x 4": Figure("us"),
    "end to end at 500/s, p50": Figure("ms"),
    "end to end at 500/s, p99": Figure("ms", "<= 0.4"),
    "end to end at 500/s, p99.9": Figure("ms"),
    "memory, after load": Figure("MB", "<= 0.1"),
    "create 1,000 topics until each takes a write": Figure("s"),
    "create 5,000 topics until each takes a write": Figure("s", "<= 0.1"),
    "records to 1 topic": Figure("1/s"),
    "records to 100 topics": Figure("1/s"),
    "records to 1,000 topics": Figure("1/s"),
    "records to 5,000 topics": Figure("1/s", ">= 30"),
    "commits, 1 at a time": Figure("1/s", ">= 1"),
    "commits, 16 in flight": Figure("1/s", ">= 1"),
    "commits, 8 connections x 4": Figure("1/s", ">= 1"),
    "CPU of a commit, 1 at a time": Figure("us"),
    "CPU of a commit, 16 in flight": Figure("us"),
    "CPU of a commit, 8 connections x 4": Figure("us"),
    "1,000 groups from join to assignment": Figure("s", "<= 1"),
    "commits of 1,000 groups": Figure("1/s", ">= 1"),
    "CPU of a group's joining, 1,000 groups": Figure("us"),
    "CPU of a commit, 1,000 groups": Figure("us"),
    "rebalance of 50 members, 500 partitions": Figure("ms", "<= 1"),
    "rebalance of 50 members, 500 partitions, new protocol": Figure("ms", "<= 1"),
    "heartbeats of the new protocol, 16 in flight": Figure("1/s", ">= 1"),
    **{
        f"records, {size} a transaction, {producers}": Figure("1/s", ">= 1")
        for size in (1, 10, 100)
        for producers in ("1 producer", "8 producers", "confluent-kafka")
    },
    **{
        f"CPU of a transaction, {size} a transaction, {producers}": Figure("us")
        for size in (1, 10, 100)
        for producers in ("1 producer", "8 producers")
    },
    **{
        figure: expected
        for size in ("100 B", "1 KB")
        for figure, expected in (
            (f"three brokers: produce {size}, acks=all", Figure("MB/s", ">= 1.3")),
            (f"three brokers: CPU of producing {size}", Figure("s/GB", "<= 0.4")),
        )
    },
    "three brokers: end to end at 500/s, acks=all, p50": Figure("ms"),
    "three brokers: end to end at 500/s, acks=all, p99": Figure("ms"),
    "three brokers: memory, idle": Figure("MB", "<= 0.15"),
    "three brokers: memory, after load": Figure("MB", "<= 0.15"),
    "three brokers: leader killed to next acknowledged write": Figure("s", "<= 0.1"),
    **{
        f"three brokers, {count:,} topics: {what}": Figure(unit)
        for count in (200, 2_000)
        for what, unit in (
            ("created until each takes a write", "s"),
            ("memory", "MB"),
            ("one killed until each takes a write", "s"),
            ("all started until each takes a write", "s"),
        )
    },
}
OWN_RATIO = "records to 5,000 topics, as a part of those to 100"
OWN_RATIO_TARGET = ">= 0.6"


def comparisons(ottla: dict[str, list[float]], kafka: dict[str, list[float]]) -> list[Comparison]:
    """From the samples of each round; a ratio is of two samples of the same round, the last of which may lack one."""
    results = [_comparison(name, ottla[name], kafka.get(name, [])) for name in FIGURES if name in ottla]
    few, many = ottla.get("records to 100 topics"), ottla.get("records to 5,000 topics")
    if few and many:
        spread = spread_of([last / first for first, last in zip(few, many, strict=False)])
        results.append(
            Comparison(OWN_RATIO, spread.median, "of its own", spread.low, spread.high, OWN_RATIO_TARGET, "", spread)
        )
    return results


def _comparison(name: str, ottla: list[float], kafka: list[float]) -> Comparison:
    expected = FIGURES[name]
    own = spread_of(ottla)
    ratios = [each / other for each, other in zip(ottla, kafka, strict=False) if other]  # the CPU clock ticks slowly
    if not ratios:
        return Comparison(name, own.median, expected.unit, own.low, own.high, "", expected.unit, own)
    ratio = spread_of(ratios)
    return Comparison(
        name, ratio.median, RATIO, ratio.low, ratio.high, expected.target, expected.unit, own, spread_of(kafka)
    )


def format_comparisons(results: Iterable[Comparison]) -> str:
    """An aligned table, a line a figure: both brokers, the ratio with its quartiles, the target."""
    rows = [("", "Ottla", "Apache Kafka", "", "ratio", "quartiles", "target")]
    rows += [_row(result) for result in results]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if 0 < place < 5 and place != 3 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _row(result: Comparison) -> tuple[str, str, str, str, str, str, str]:
    ottla = figure(result.ottla.median) if result.ottla and result.figure_unit else ""
    kafka = figure(result.kafka.median) if result.kafka else ""
    has_ratio = result.kafka is not None or not result.figure_unit
    ratio = figure(result.value) if has_ratio else ""
    spread = f"{figure(result.low)} .. {figure(result.high)}"
    verdict = {None: "", True: f"{result.target}: reached", False: f"{result.target}: NOT reached"}[result.reached]
    return result.name, ottla, kafka, result.figure_unit, ratio, spread, verdict
