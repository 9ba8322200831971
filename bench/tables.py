"""Tables from changes: what a batch costs as the table grows, keys at random. Without Spark: the table alone."""

import os
import resource
import tempfile
import time

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from bench.report import Result
from ottla.pipelines.tables.layout import BUCKET, Layout
from ottla.pipelines.tables.table import ChangeTable

BATCH = 100_000
COLUMNS = {"id": "bigint", "name": "string", "amount": "double", "count": "bigint"}
LONG_FORM = "OTTLA_BENCH_TABLE_ROWS"


def rows(ids: np.ndarray, position: str, buckets: int) -> pa.Table:
    """Rows with buckets that spread as those of real keys do."""
    count = len(ids)
    return pa.table(
        {
            "id": ids,
            "name": pa.array(ids % 10_000).cast(pa.string()),
            "amount": ids * 0.37,
            "count": ids * 7,
            "_deleted": np.zeros(count, dtype=bool),
            "_position": pa.array([position] * count),
            "_commit_time": pa.array(np.zeros(count, dtype=np.int64)).cast(pa.timestamp("us", tz="UTC")),
            BUCKET: ((ids * 2_654_435_761 >> 16) % buckets).astype(np.int32),
        }
    )


def measured(size: int, batches: int) -> list[Result]:
    buckets = 16 if size <= 20_000_000 else 64
    layout = Layout(("id",), 1, buckets)
    chance = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        table = ChangeTable(f"{folder}/t", layout)
        table.create(COLUMNS)
        schema = layout.base_schema(COLUMNS)
        for begin in range(0, size, 1_000_000):
            part = rows(np.arange(begin, min(begin + 1_000_000, size)), "a1", buckets).select(schema.names)
            write_deltalake(f"{folder}/t", part.cast(schema), mode="append")
        table = ChangeTable(f"{folder}/t", layout)
        seconds = []
        for number in range(batches):
            changes = rows(chance.integers(0, size, BATCH), f"b{10 + number}", buckets)
            begun = time.perf_counter()
            table.append_rows(changes, {("t", 0): number})
            seconds.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        table.begin_fold()
        steps = []
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
    sizes = [100_000, 1_000_000] if quick else [1_000_000, 10_000_000]
    if os.environ.get(LONG_FORM):
        sizes.append(int(os.environ[LONG_FORM]))
    return [result for size in sizes for result in measured(size, 3 if quick else 12)]
