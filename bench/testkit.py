"""What a broker costs a test: from the fixture to the first acknowledged record, and a suite of a hundred tests."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.broker import has_confluent_kafka
from bench.clients_raw import RawClient, produce_request
from bench.compiled_modules import with_compiled_modules
from bench.report import Result, spread_of
from ottla.testing import broker

SUITE = Path(__file__).with_name("testkit_suite.py")
SUITE_SECONDS = 300
FLUSH_SECONDS = 30
SHOWN_CHARACTERS = 2_000
TOPIC = "orders"
FIRST_OF_A_PROCESS = """
import time
started = time.perf_counter()
from ottla.client import Producer
import ottla.testing
with ottla.testing.broker() as broker, Producer(broker.bootstrap, create_topics=True) as producer:
    producer.send("orders", b"first").result()
    print(time.perf_counter() - started)
"""

Seconds = dict[str, float]


def on_a_socket() -> Seconds:
    request = produce_request([TOPIC], value_bytes=100)
    started = time.perf_counter()
    with broker() as running:
        is_running = time.perf_counter()
        running.topic(TOPIC)
        with RawClient((running.host, running.port)) as client:
            client.ask(request)
            acknowledged = time.perf_counter()
        ending = time.perf_counter()
    ended = time.perf_counter()
    return {
        "a running broker": is_running - started,
        "to the first acknowledged record, bare socket": acknowledged - started,
        "its end, with its data": ended - ending,
    }


def with_ottla_client() -> Seconds:
    from ottla.client import Producer

    started = time.perf_counter()
    with broker() as running:
        running.topic(TOPIC)
        with Producer(running.bootstrap, linger_ms=0) as producer:
            producer.send(TOPIC, b"first").result()
        return {"to the first acknowledged record, ottla.client": time.perf_counter() - started}


def with_librdkafka() -> Seconds:
    started = time.perf_counter()
    with broker() as running:
        running.topic(TOPIC)
        _produce({"bootstrap.servers": running.bootstrap})
        return {"to the first acknowledged record, confluent-kafka": time.perf_counter() - started}


def with_its_mock() -> Seconds:
    started = time.perf_counter()
    _produce({"test.mock.num.brokers": "1", "log_level": "0"})
    return {"to the first acknowledged record, librdkafka's mock": time.perf_counter() - started}


def _produce(settings: dict[str, str]) -> None:
    from confluent_kafka import Producer

    producer = Producer({**settings, "linger.ms": "0"})
    producer.produce(TOPIC, b"first")
    if producer.flush(FLUSH_SECONDS):
        raise RuntimeError("the first record was not acknowledged")


def first_of_a_process(cache: str) -> Seconds:
    printed = _run(cache, "-c", FIRST_OF_A_PROCESS)
    return {"the same, first of a process, with its imports": float(printed)}


def suite(cache: str, test: str) -> float:
    """Seconds that pytest takes, itself included."""
    started = time.perf_counter()
    # Without what this project's own tests need.
    _run(cache, "-m", "pytest", "-q", "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider", f"{SUITE}::{test}")
    return time.perf_counter() - started


def _run(cache: str, *command: str) -> str:
    """What a new process prints."""
    environment = with_compiled_modules(cache)
    done = subprocess.run(
        (sys.executable, *command), capture_output=True, text=True, env=environment, timeout=SUITE_SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"{command[-1]} failed:\n{done.stdout[-SHOWN_CHARACTERS:]}{done.stderr[-SHOWN_CHARACTERS:]}")
    return done.stdout


TARGETS = {
    "to the first acknowledged record, bare socket": "< 10",
}
SUITES = {
    "test_ottla_client": ("100 tests, ottla.client", "< 10"),
    "test_confluent_kafka": ("100 tests, confluent-kafka", ""),
    "test_mock": ("5 tests, confluent-kafka with librdkafka's mock", ""),
}


def run(quick: bool) -> list[Result]:
    rounds = 10 if quick else 100
    results = _sampled([on_a_socket, with_ottla_client], rounds)
    if has_confluent_kafka():
        results += _sampled([with_librdkafka, with_its_mock], rounds)
    with TemporaryDirectory(prefix="ottla-bench-") as cache:
        results += _sampled([lambda: first_of_a_process(cache)], max(rounds // 10, 3))
        for test, (name, target) in SUITES.items():
            if test == "test_ottla_client" or has_confluent_kafka():
                seconds = [suite(cache, test) for _ in range(1 if quick else 3)]
                results.append(Result.of(name, spread_of(seconds), "s", target))
    return results


def _sampled(measured: list[Callable[[], Seconds]], rounds: int) -> list[Result]:
    """In turns, so that what else the machine does falls on all; the first ones, which import, do not count."""
    samples: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for measure in measured:
            for name, seconds in measure().items():
                if number:
                    samples.setdefault(name, []).append(seconds)
    return [
        Result.of(name, spread_of(taken), "ms", TARGETS.get(name, ""), scale=1_000) for name, taken in samples.items()
    ]
