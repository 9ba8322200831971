"""Tables from changes, keys at random: what a batch costs as the table grows, and how far behind a pipeline is.

First the table alone, without Spark: appends and folds. Then `ottla pipeline run`, end to end. OTTLA_BENCH_TABLE_ROWS
adds a table of that many rows, such as 100000000, at 10,000 changes a second.
"""

import os
import resource
import tempfile
import time

import numpy as np

from bench.report import Result
from bench.table_pipeline import Load, through_spark
from bench.table_rows import buckets_for, fill, rows
from ottla.pipelines.tables.layout import Layout
from ottla.pipelines.tables.table import ChangeTable

BATCH = 100_000
LONG_FORM = "OTTLA_BENCH_TABLE_ROWS"


def measured(size: int, batches: int) -> list[Result]:
    buckets = buckets_for(size)
    layout = Layout(("id",), 1, buckets)
    chance = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        fill(f"{folder}/t", size, layout)
        table = ChangeTable(f"{folder}/t", layout)
        seconds = []
        for number in range(batches):
            changes = rows(chance.integers(0, size, BATCH), f"b{10 + number}", buckets)
            begun = time.perf_counter()
            table.append_rows(changes, {("t", 0): number})
            seconds.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        table.begin_fold()
        steps = [time.perf_counter() - begun]
        while True:
            step = time.perf_counter()
            if not table.fold_step():
                break
            steps.append(time.perf_counter() - step)
        fold = time.perf_counter() - begun
    label = f"{size / 1e6:g} million rows"
    low, median, high = np.percentile(seconds, [25, 50, 75])
    rate = BATCH * batches / (sum(seconds) + fold)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Result(f"{label}: append 100,000 changes", median, "s", low, high),
        Result(f"{label}: fold of {batches * BATCH:,} changes", fold, "s", fold, fold),
        Result(f"{label}: longest step of the fold", max(steps), "s", max(steps), max(steps), "< 10"),
        Result(f"{label}: changes a second, fold and all", rate, "/s", rate, rate),
        Result(f"{label}: most memory so far", memory, "MB", memory, memory),
    ]


def run(quick: bool) -> list[Result]:
    """The curve of the table alone, and then all of it through Spark."""
    sizes = [100_000, 1_000_000] if quick else [100_000, 1_000_000, 10_000_000]
    results = [result for size in sizes for result in measured(size, 3 if quick else 6)]
    loads = [Load(1_000_000, 5_000, 20)] if quick else [Load(10_000_000, 25_000, 75)]
    if os.environ.get(LONG_FORM):
        loads.append(Load(int(os.environ[LONG_FORM]), 10_000, 120))
    return results + [result for load in loads for result in through_spark(load)]
