"""A topic of changes into a large table, as a user runs it: `ottla pipeline run`, and how far the table is behind."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow.dataset as ds

from bench.broker_servers import Ottla, servers
from bench.change_load import FIRST_POSITION, keys_of
from bench.clients_raw import start_to_first_record
from bench.compiled_modules import with_compiled_broker
from bench.report import Result, spread_of
from bench.table_rows import buckets_for, fill
from ottla.client import Admin, NewTopic
from ottla.pipelines.tables.layout import Layout
from ottla.pipelines.tables.plain_table import read_plain
from ottla.pipelines.tables.position import decode_position
from ottla.pipelines.tables.read import snapshot

TOPIC = "changes"
MOST_LAG_SECONDS = 10
WARM_SECONDS = 10
END_SECONDS = 300
CHECKED_KEYS = 500
FILE = """\
bootstrap = "{bootstrap}"
trigger_seconds = 1.0

[spark]
"spark.driver.memory" = "2g"

[[tables]]
source = "{topic}"
target = "table"
keys = ["id"]
buckets = {buckets}
"""


@dataclass(frozen=True)
class Load:
    """Rows of the table, and changes a second for so many seconds."""

    rows: int
    rate: int
    seconds: int

    @property
    def label(self) -> str:
        return f"{self.rate:,} changes/s into {self.rows / 1e6:g} million rows"


@dataclass
class Told:
    """What a pipeline says while it runs."""

    progress: list[dict[str, Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def listen(self, stream: IO[str], *, is_progress: bool) -> None:
        for line in stream:
            self.progress.append(json.loads(line)) if is_progress else self.said.append(line)


def through_spark(load: Load) -> list[Result]:
    with servers([Ottla]) as [server], tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        start_to_first_record(server)
        bootstrap = f"127.0.0.1:{server.port}"
        fill(f"{folder}/table", load.rows, Layout(("id",), 1, buckets_for(load.rows)))
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 2)])
        text = FILE.format(bootstrap=bootstrap, topic=TOPIC, buckets=buckets_for(load.rows))
        (Path(folder) / "bench.toml").write_text(text)
        told, rate = _run(load, Path(folder), bootstrap)
        _check(load, f"{folder}/table")
    return _results(load, told, rate)


def _run(load: Load, folder: Path, bootstrap: str) -> tuple[Told, float]:
    """The pipeline first, so that what is measured is how it runs and not how Spark starts."""
    environment = with_compiled_broker()
    command = [sys.executable, "-m", "ottla", "pipeline", "run", "bench.toml", "--json", "--master", "local[2]"]
    pipeline = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    told = Told()
    for stream, is_progress in ((pipeline.stdout, True), (pipeline.stderr, False)):
        threading.Thread(target=told.listen, args=(stream,), kwargs={"is_progress": is_progress}, daemon=True).start()
    try:
        _wait(lambda: bool(told.progress), pipeline, told)
        numbers = [str(number) for number in (load.rate, load.seconds, load.rows)]
        sender = subprocess.run(
            [sys.executable, "-m", "bench.change_load", bootstrap, TOPIC, *numbers],
            env=environment, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        last = len(told.progress)
        _wait(lambda: any(line["lag_records"] == 0 for line in told.progress[last:]), pipeline, told)
        del told.progress[last:]
        pipeline.terminate()
        pipeline.wait(END_SECONDS)
    finally:
        pipeline.kill()
        pipeline.wait()
    return told, float(sender.stdout)


def _wait(condition: Any, pipeline: "subprocess.Popen[str]", told: Told) -> None:
    until = time.monotonic() + END_SECONDS
    while not condition():
        if pipeline.poll() is not None or time.monotonic() > until:
            raise RuntimeError("the pipeline ended, or is too far behind:\n" + "".join(told.said[-20:]))
        time.sleep(0.1)


def _check(load: Load, path: str) -> None:
    """Some keys, those that changed and those that did not, have their last change."""
    keys = keys_of(load.rate, load.seconds, load.rows)
    positions = {key: number for number, key in enumerate(keys.tolist(), FIRST_POSITION)}
    chosen = [*keys[:: max(len(keys) // CHECKED_KEYS, 1)].tolist(), *range(CHECKED_KEYS)]
    found = snapshot(path)
    here = ds.field("id").isin(chosen)
    rows = [row for table in (found.base, found.changes) for row in read_plain(table, here).to_pylist()]
    last: dict[int, str] = {}
    for row in rows:
        last[row["id"]] = max(row["_position"], last.get(row["id"], ""))
    for key in chosen:
        position = decode_position(last[key])[0]
        if position != positions.get(key, 1):
            raise AssertionError(f"key {key} is at position {position}, not {positions.get(key, 1)}")


def _results(load: Load, told: Told, rate: float) -> list[Result]:
    """How old the newest change in the table is, each second; and what it took."""
    begun = next(line["time"] for line in told.progress if line["applied"])
    steady = [line for line in told.progress if line["lag_seconds"] is not None and line["time"] > begun + WARM_SECONDS]
    ages = [line["time"] - line["last_commit"] + line["lag_seconds"] for line in steady]
    worst, rates = max(ages), [line["rate"] for line in steady]
    applied = float(np.mean(rates))
    return [
        Result(f"{load.label}: sent", rate, "/s", rate, rate, f">= {load.rate * 0.98:,.0f}"),
        Result(f"{load.label}: applied", applied, "/s", min(rates), max(rates)),
        Result.of(f"{load.label}: lag", spread_of(ages), "s", f"< {MOST_LAG_SECONDS}"),
        Result(f"{load.label}: worst lag", worst, "s", worst, worst, f"< {MOST_LAG_SECONDS}"),
    ]
