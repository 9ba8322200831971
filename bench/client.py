"""The client beside confluent-kafka, kafka-python and aiokafka: the same broker, the same messages, one run.

Each sample is a process of its own, so that its CPU time and the peak of its memory are the client's alone.
"""

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench import clients_raw as raw
from bench.broker import kinds_to_compare
from bench.broker_servers import Server, servers
from bench.compiled_modules import with_compiled_modules
from bench.report import Result, figure, spread_of

SAMPLE_SECONDS = 300
SIZES = {"100 B": 100, "1 KB": 1_000}
COUNTS = {"100 B": 2_000_000, "1 KB": 400_000}
SLOW = 20  # so many times fewer records, for those that take a message at a time in Python


class Way(NamedTuple):
    name: str
    load: str
    is_slow: bool = False


PRODUCING = (
    Way("confluent-kafka, produce", "confluent_produce"),
    Way("ottla.client, send", "ottla_send"),
    Way("ottla.client, send_many", "ottla_send_many"),
    Way("ottla.client, send_many of Arrow", "ottla_send_arrow"),
    Way("aiokafka, send", "aiokafka_send", is_slow=True),
    Way("kafka-python, send", "kafka_python_send", is_slow=True),
)
CONSUMING = (
    Way("confluent-kafka, poll", "confluent_poll"),
    Way("confluent-kafka, consume", "confluent_consume"),
    Way("ottla.client, messages", "ottla_messages"),
    Way("ottla.client, batches", "ottla_batches"),
    Way("ottla.client, Arrow", "ottla_arrow"),
    Way("aiokafka, getone", "aiokafka_getone", is_slow=True),
    Way("aiokafka, getmany", "aiokafka_getmany"),
    Way("kafka-python, messages", "kafka_python_messages", is_slow=True),
    Way("kafka-python, poll", "kafka_python_poll", is_slow=True),
)
# What is measured against what, and how many times that it has to be.
AGAINST = {
    "ottla.client, send": ("confluent-kafka, produce", ">= 1"),
    "ottla.client, send_many": ("confluent-kafka, produce", ">= 3"),
    "ottla.client, send_many of Arrow": ("confluent-kafka, produce", ">= 3"),
    "ottla.client, messages": ("confluent-kafka, poll", ">= 1"),
    "ottla.client, batches": ("confluent-kafka, consume", ">= 3"),
    "ottla.client, Arrow": ("confluent-kafka, consume", ">= 3"),
}

Samples = dict[str, list[float]]


class ClientBench:
    def __init__(self, server: Server, cache: str, *, rounds: int, share: int) -> None:
        """`cache`: a folder for compiled modules, so that no sample has to compile them."""
        self._server = server
        self._cache = cache
        self._rounds = rounds
        self._share = share
        self._samples: Samples = defaultdict(list)

    def measure(self) -> Iterator[Result]:
        for size in SIZES:
            count = COUNTS[size] // self._share
            full = self._topic()
            self._take("confluent_produce", full, size, count)
            for _ in range(self._rounds):
                for way in PRODUCING:
                    topic = self._topic()
                    self._sample(way, topic, size, count)
                    self._delete(topic)
                for way in CONSUMING:
                    self._sample(way, full, size, count)
            self._delete(full)
            yield from self._results(size)

    def _topic(self) -> str:
        name = f"clients-{time.time_ns()}"
        with raw.RawClient(self._server.address) as client:
            raw.create_topics(client, [name])
        return name

    def _delete(self, topic: str) -> None:
        with raw.RawClient(self._server.address) as client:
            raw.delete_topic(client, topic)

    def _sample(self, way: Way, topic: str, size: str, count: int) -> None:
        count = count // SLOW if way.is_slow else count
        try:
            taken = self._take(way.load, topic, size, count)
        except RuntimeError as failure:  # one sample is lost, not those before it
            print(f"  {self._server.name}, {way.name}, {size}: {failure}", flush=True)
            return
        name = f"{size}, {way.name}"
        self._samples[f"{name}: messages"].append(count / taken["seconds"])
        self._samples[f"{name}: CPU of one"].append(taken["cpu_seconds"] / count * 1e6)
        self._samples[f"{name}: memory"].append(taken["memory_bytes"] / 1e6)

    def _take(self, load: str, topic: str, size: str, count: int) -> dict[str, float]:
        host, port = self._server.address
        command = (sys.executable, "-m", "bench.client_loads", load, f"{host}:{port}", topic, str(SIZES[size]))
        done = subprocess.run(
            (*command, str(count)),
            capture_output=True,
            text=True,
            timeout=SAMPLE_SECONDS,
            cwd=Path(__file__).parents[1],
            env=with_compiled_modules(self._cache),
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        taken: dict[str, float] = json.loads(done.stdout)
        return taken

    def _results(self, size: str) -> Iterator[Result]:
        units = {"messages": "1/s", "CPU of one": "us", "memory": "MB"}
        for way in PRODUCING + CONSUMING:
            for what, unit in units.items():
                name = f"{size}, {way.name}"
                samples = self._samples.get(f"{name}: {what}")
                if samples:
                    yield Result.of(f"{self._server.name}: {name}: {what}", spread_of(samples), unit)
            yield from self._ratio(size, way)

    def _ratio(self, size: str, way: Way) -> Iterator[Result]:
        if way.name not in AGAINST:
            return
        other, target = AGAINST[way.name]
        mine = self._samples.get(f"{size}, {way.name}: messages", [])
        theirs = self._samples.get(f"{size}, {other}: messages", [])
        ratios = [one / another for one, another in zip(mine, theirs, strict=False)]
        if ratios:
            yield Result.of(f"{self._server.name}: {size}, {way.name}: ratio", spread_of(ratios), f"x {other}", target)


def format_results(results: list[Result]) -> str:
    """A line a way: messages a second with their quartiles, CPU, memory, and the ratio that counts."""
    lines: dict[str, dict[str, Result]] = {}
    for result in results:
        name, _, what = result.name.rpartition(": ")
        lines.setdefault(name, {})[what] = result
    rows: list[tuple[str, ...]] = [("", "1/s", "quartiles", "CPU, us", "MB", "times confluent-kafka's")]
    rows += [(name, *_cells(found)) for name, found in lines.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place in (1, 3, 4) else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _cells(found: dict[str, Result]) -> tuple[str, ...]:
    messages, ratio = found["messages"], found.get("ratio")
    verdict = ""
    if ratio is not None:
        verdict = f"{figure(ratio.value)} ({ratio.target}: {'reached' if ratio.reached else 'NOT reached'})"
    spread = f"{figure(messages.low)} .. {figure(messages.high)}"
    return figure(messages.value), spread, figure(found["CPU of one"].value), figure(found["memory"].value), verdict


def run(quick: bool) -> list[Result]:
    results: list[Result] = []
    for kind in kinds_to_compare():
        with servers([kind]) as [server], TemporaryDirectory(prefix="ottla-bench-") as cache:
            raw.start_to_first_record(server)
            results += ClientBench(server, cache, rounds=1 if quick else 3, share=5 if quick else 1).measure()
    return results
