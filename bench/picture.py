"""The picture of a comparison: each ratio with its quartiles and its target, on a logarithmic scale."""

from collections.abc import Iterable
from pathlib import Path

from bench.broker_figures import RATIO, Comparison
from bench.report import TARGET, Result, figure

REACHED, MISSED, NEITHER = "#2a7f62", "#c0504d", "#7f8c8d"
INCHES_A_ROW = 0.3


def draw(path: Path, results: Iterable[Result]) -> None:
    """Write a PNG of the ratios among the results; ModuleNotFoundError where matplotlib is missing."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = [each for each in results if isinstance(each, Comparison) and each.unit == RATIO]
    if not rows:
        return
    image, axes = plt.subplots(figsize=(11, INCHES_A_ROW * len(rows) + 1.5), layout="constrained")
    for place, row in enumerate(rows):
        color = {True: REACHED, False: MISSED, None: NEITHER}[row.reached]
        axes.barh(place, row.value - 1, left=1, color=color, height=0.6)
        axes.hlines(place, row.low, row.high, color="black", linewidth=1)
        axes.annotate(
            f" {figure(row.value)} ",
            (row.value, place),
            ha="left" if row.value >= 1 else "right",
            va="bottom",
            fontsize=7,
        )
        if bound := TARGET.match(row.target):
            axes.plot(float(bound[2].replace(",", "")), place, marker="|", color="black", markersize=14)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("Ottla as a multiple of Apache Kafka 4.3.1; thin line: quartiles, tall mark: target")
    axes.set_title("Ottla beside Apache Kafka (green: target reached, red: not, grey: no target)", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.savefig(path, dpi=120)
    plt.close(image)
