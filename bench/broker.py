"""Ottla beside Apache Kafka: the same load from the same clients, in turns.

Both run at the same time, and each round puts one load on one and then on the other, in an order that changes: what
else the machine does falls on both. Where Apache Kafka cannot be had, Ottla runs alone.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from bench import clients_raw as raw
from bench.broker_figures import Comparison, comparisons, format_comparisons
from bench.broker_servers import ApacheKafka, Ottla, Server, servers
from tests.apache_kafka.distribution import KafkaUnavailable, classpath

MEGABYTE = 1_000_000
SIZES = {"100 B": 100, "1 KB": 1_000}
IDLE_SECONDS = 1.5
LATENCY_RATE = 500
TOPIC_COUNTS = (1, 100, 1_000, 5_000)
WAYS = {"1 at a time": (1, 1), "16 in flight": (1, 16), "8 connections x 4": (8, 4)}

FAILURES = (OSError, RuntimeError, raw.Refused)

Samples = dict[str, float]


class Named(Protocol):
    @property
    def name(self) -> str: ...


S = TypeVar("S", bound=Named)


class Amounts(NamedTuple):
    """How much of everything."""

    rounds: int
    topic_rounds: int
    produced_bytes: dict[str, int]  # by the size of a value
    seconds: float
    latency_seconds: float
    most_topics: int


FULL = Amounts(5, 3, {"100 B": 60 * MEGABYTE, "1 KB": 200 * MEGABYTE}, 2.0, 5.0, 5_000)
QUICK = Amounts(1, 1, {"100 B": 20 * MEGABYTE, "1 KB": 60 * MEGABYTE}, 0.5, 2.0, 1_000)

format_results = format_comparisons


class Bench:
    """The samples of both brokers, and the rounds that make them."""

    def __init__(self, kinds: list[type[Server]], amounts: Amounts) -> None:
        self.kinds = kinds
        self.amounts = amounts
        self.samples: dict[str, dict[str, list[float]]] = {kind.name: defaultdict(list) for kind in kinds}

    def take(self, title: str, load: Callable[[S], Samples], running: Sequence[S], rounds: int) -> None:
        """Put the load on each in turns."""
        print(f"  {title}", end="", flush=True)
        started = time.monotonic()
        for number in range(rounds):
            for server in running if number % 2 == 0 else reversed(running):
                try:
                    samples = load(server)
                except FAILURES as failure:
                    # One sample is lost, not the hour before it.
                    print(f"\n    {server.name}, round {number + 1}: {failure}", flush=True)
                    continue
                for name, value in samples.items():
                    self.samples[server.name][name].append(value)
        print(f" ({time.monotonic() - started:.0f} s)", flush=True)

    def run(self) -> list[Comparison]:
        """All of it, or what was measured when somebody interrupts."""
        try:
            self.measure()
        except KeyboardInterrupt:
            print("  interrupted; so far:")
        return comparisons(self.samples[Ottla.name], self.samples.get(ApacheKafka.name, {}))

    def measure(self) -> None:
        amounts = self.amounts
        for number in range(amounts.rounds):
            with servers(self.kinds) as prepared:
                self.take(f"start, round {number + 1}", start_and_rest, prepared, 1)
        with servers(self.kinds) as running:
            for server in running:
                raw.start_to_first_record(server)
                warm_up(server, amounts)
            for title, load in self._loads().items():
                self.take(title, load, running, amounts.rounds)
            self.take("memory", memory_after_load, running, 1)
        for number in range(amounts.topic_rounds):
            with servers(self.kinds) as running:
                for server in running:
                    raw.start_to_first_record(server)
                    warm_up_many_topics(server, amounts)
                self.take(f"topics, round {number + 1}", lambda server: many_topics(server, amounts), running, 1)

    def _loads(self) -> dict[str, Callable[[Server], Samples]]:
        amounts = self.amounts
        loads: dict[str, Callable[[Server], Samples]] = {}
        if has_confluent_kafka():
            for size in SIZES:
                for codec in ("none", "lz4"):
                    loads[f"{size}, {codec}"] = lambda server, size=size, codec=codec: throughput(  # type: ignore[misc]
                        server, size, codec, amounts.produced_bytes[size]
                    )
        for way in WAYS:
            loads[f"requests, {way}"] = lambda server, way=way: requests(server, way, amounts.seconds)  # type: ignore[misc]
        loads["latency"] = lambda server: latency(server, amounts.latency_seconds)
        return loads


def run(quick: bool) -> list[Comparison]:
    kinds = kinds_to_compare()
    if not has_confluent_kafka():
        print("  no throughput without confluent-kafka: pip install -e '.[bench]'")
    return Bench(kinds, QUICK if quick else FULL).run()


def kinds_to_compare() -> list[type[Server]]:
    try:
        classpath()
    except KafkaUnavailable as reason:
        print(f"  Ottla alone, for there is no Apache Kafka here: {reason}")
        return [Ottla]
    return [Ottla, ApacheKafka]


def has_confluent_kafka() -> bool:
    try:
        import bench.clients  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


# The loads


def start_and_rest(server: Server) -> Samples:
    """From nothing to the first record, and the memory when it has calmed down."""
    seconds = raw.start_to_first_record(server)
    time.sleep(IDLE_SECONDS)
    memory = server.memory_bytes() / MEGABYTE
    server.stop()
    return {"start to first acknowledged record": seconds, "memory, idle": memory}


def warm_up(server: Server, amounts: Amounts) -> None:
    """Let a compiler that works while it runs see the requests before they are measured."""
    for way in WAYS:
        requests(server, way, amounts.seconds)
    if has_confluent_kafka():
        for size in SIZES:
            throughput(server, size, "none", amounts.produced_bytes[size])


def warm_up_many_topics(server: Server, amounts: Amounts) -> None:
    """The same for requests that write to many topics."""
    names = [f"warm-{number}" for number in range(raw.TOPICS_A_REQUEST)]
    with raw.RawClient(server.address) as client:
        raw.create_topics(client, names)
        raw.write_to_each(client, names)
    raw.records_a_second_to_topics(server, names, amounts.seconds)


def throughput(server: Server, size: str, codec: str, produced_bytes: int) -> Samples:
    """Produce to a topic of its own with each acks, and consume one of them."""
    from bench import clients

    samples: Samples = {}
    count = produced_bytes // SIZES[size]
    megabytes = produced_bytes / MEGABYTE
    for acks in ("1", "all"):
        topic = f"load-{time.time_ns()}"
        raw.new_topic(server, topic)
        cpu = server.cpu_seconds()
        seconds = clients.produce(server, topic, clients.Load(SIZES[size], acks, codec, count))
        samples[f"produce {size}, acks={acks}, {codec}"] = megabytes / seconds
        if acks == "1":
            samples[f"CPU of producing {size}, {codec}"] = (server.cpu_seconds() - cpu) / (megabytes / 1_000)
            cpu = server.cpu_seconds()
            samples[f"consume {size}, {codec}"] = megabytes / clients.consume(server, topic, count)
            samples[f"CPU of consuming {size}, {codec}"] = (server.cpu_seconds() - cpu) / (megabytes / 1_000)
        with raw.RawClient(server.address) as client:
            raw.delete_topic(client, topic)
    return samples


def requests(server: Server, way: str, seconds: float) -> Samples:
    topic = f"requests-{time.time_ns()}"
    raw.new_topic(server, topic)
    connections, in_flight = WAYS[way]
    cpu = server.cpu_seconds()
    rate = raw.requests_a_second(server, topic, connections=connections, in_flight=in_flight, seconds=seconds)
    cpu_us = (server.cpu_seconds() - cpu) / (rate * seconds) * 1e6
    return {f"one-record requests, {way}": rate, f"CPU of a request, {way}": cpu_us}


def latency(server: Server, seconds: float) -> Samples:
    topic = f"latency-{time.time_ns()}"
    raw.new_topic(server, topic)
    taken = raw.end_to_end_seconds(server, topic, rate=LATENCY_RATE, seconds=seconds)
    thousandths = statistics.quantiles(taken, n=1_000, method="inclusive")
    places = {"p50": 500, "p99": 990, "p99.9": 999}
    return {f"end to end at {LATENCY_RATE}/s, {name}": thousandths[place - 1] * 1_000 for name, place in places.items()}


def memory_after_load(server: Server) -> Samples:
    return {"memory, after load": server.memory_bytes() / MEGABYTE}


def many_topics(server: Server, amounts: Amounts) -> Samples:
    """Create them, and write to the first so many of them."""
    names = [f"topic-{number}" for number in range(amounts.most_topics)]
    samples: Samples = {}
    with raw.RawClient(server.address) as client:
        started = time.perf_counter()
        raw.create_topics(client, names)
        raw.write_to_each(client, names)
        samples[f"create {len(names):,} topics until each takes a write"] = time.perf_counter() - started
    for count in TOPIC_COUNTS:
        if count <= len(names):
            label = f"records to {count:,} topic{'s' if count > 1 else ''}"
            samples[label] = raw.records_a_second_to_topics(server, names[:count], amounts.seconds)
    return samples
