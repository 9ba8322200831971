"""Clients at work, each a process: `python -m tests.cluster.loads CLIENT BOOTSTRAP TOPIC`.

It writes numbers to a topic of its own and reads them in a group, with its library's settings as they come, but for
acks=all. On its standard output it says what was acknowledged, what it was given, and every error that its
library left to it. Told to end, it reads what it has written first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tests.child_processes import die_with_parent

PARTITIONS = 3
AT_ONCE = 5
CALL_S = 60.0
POLL_S = 0.05
LAST_S = 60.0
JAVA_PROGRAM = Path(__file__).parent / "FailoverLoad.java"
R = TypeVar("R")


class Library(ABC):
    """A client library, as this load uses it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic

    @abstractmethod
    def write(self, numbers: Sequence[int]) -> None:
        """Until all of them are acknowledged."""

    @abstractmethod
    def read(self) -> list[int]:
        """What there is, waiting a moment for it."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Confluent(Library):
    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic)
        from confluent_kafka import Consumer, Producer

        common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer({**common, "acks": "all", "enable.idempotence": True})
        group = {"group.id": f"{topic}-confluent", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**common, **group})
        self._consumer.subscribe([topic])

    def write(self, numbers: Sequence[int]) -> None:
        failures: list[object] = []

        def told(error: object, _message: object) -> None:
            if error is not None:
                failures.append(error)

        for number in numbers:
            self._producer.produce(self.topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=told)
        if self._producer.flush(CALL_S) or failures:
            raise RuntimeError(f"not all was delivered: {failures}")

    def read(self) -> list[int]:
        found = []
        for message in self._consumer.consume(100, POLL_S):
            error, value = message.error(), message.value()
            if error is not None:
                raise RuntimeError(str(error))
            assert isinstance(value, bytes)
            found.append(int(value))
        return found

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython(Library):
    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka import KafkaConsumer, KafkaProducer
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"{topic}-kafka-python",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def write(self, numbers: Sequence[int]) -> None:
        for sent in [self._producer.send(self.topic, b"%d" % each, partition=each % PARTITIONS) for each in numbers]:
            sent.get(CALL_S)

    def read(self) -> list[int]:
        polled = self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        return [int(record.value) for records in polled.values() for record in records]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


class Aiokafka(Library):
    """On a thread with a loop of its own: what it does in the background goes on between the calls."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic)
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        self._loop = asyncio.new_event_loop()
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(self._loop.run_forever)

        async def open_both() -> tuple[Any, Any]:
            producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
            group = {"group_id": f"{topic}-aiokafka", "auto_offset_reset": "earliest", "enable_auto_commit": False}
            consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, **group)
            await producer.start()
            await consumer.start()
            return producer, consumer

        self._producer, self._consumer = self._run(open_both)

    def _run(self, call: Callable[[], Awaitable[R]]) -> R:
        async def awaited() -> R:
            return await call()

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(CALL_S)

    def write(self, numbers: Sequence[int]) -> None:
        async def write_all() -> None:
            sends = [self._producer.send_and_wait(self.topic, b"%d" % n, partition=n % PARTITIONS) for n in numbers]
            await asyncio.gather(*sends)

        self._run(write_all)

    def read(self) -> list[int]:
        polled = self._run(lambda: self._consumer.getmany(timeout_ms=int(POLL_S * 1000)))
        return [int(record.value) for records in polled.values() for record in records]

    def commit(self) -> None:
        self._run(self._consumer.commit)

    def close(self) -> None:
        self._run(self._consumer.stop)
        self._run(self._producer.stop)


class Ottla(Library):
    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic)
        from ottla.client import EARLIEST, Consumer, Producer

        self._producer = Producer(bootstrap).open()
        self._consumer = Consumer(bootstrap, topic, group=f"{topic}-ottla", auto_commit=False, start=EARLIEST).open()

    def write(self, numbers: Sequence[int]) -> None:
        sends = [self._producer.send(self.topic, b"%d" % each, partition=each % PARTITIONS) for each in numbers]
        for sent in sends:
            sent.result(CALL_S)

    def read(self) -> list[int]:
        return [int(record.value) for part in self._consumer.poll(int(POLL_S * 1000)) for record in part.records]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


LIBRARIES: dict[str, type[Library]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
    "ottla.client": Ottla,
}


def work(library: Library, is_wanted: Callable[[], bool], say: Callable[[str, object], None]) -> None:
    acknowledged: set[int] = set()
    received: set[int] = set()
    count = 0

    def attempt(what: str, call: Callable[[], R]) -> R | None:
        try:
            return call()
        except Exception as error:  # whatever it is: who uses the library would have to handle it
            say("error", f"{what}: {error!r}")
            time.sleep(POLL_S)
            return None

    def write() -> None:
        numbers = range(count, count + AT_ONCE)
        library.write(numbers)
        acknowledged.update(numbers)
        for number in numbers:
            say("acknowledged", number)

    def read() -> None:
        found = attempt("poll", library.read)
        for number in found or ():
            received.add(number)
            say("received", number)
        if found:
            attempt("commit", library.commit)

    while is_wanted():
        attempt("write", write)
        count += AT_ONCE
        read()
    deadline = time.monotonic() + LAST_S
    while not acknowledged <= received and time.monotonic() < deadline:
        read()
    library.close()
    say("done", len(received))


def main(client: str, bootstrap: str, topic: str) -> None:
    logging.disable()
    wanted = [True]
    signal.signal(signal.SIGTERM, lambda *_: wanted.clear())

    def say(what: str, detail: object) -> None:
        print(what, detail, flush=True)

    work(LIBRARIES[client](bootstrap, topic), lambda: bool(wanted), say)
    sys.stdout.flush()
    signal.raise_signal(signal.SIGKILL)  # threads of libraries may take their time


class Load:
    """One of these processes, as a test sees it."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        self._output = output
        with open(output, "wb") as file, open(f"{output}.errors", "wb") as errors:
            self._process = subprocess.Popen(command, stdout=file, stderr=errors, preexec_fn=die_with_parent)

    def said(self, what: str) -> list[str]:
        lines = self._output.read_text().split("\n")[:-1]
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{what} ")]

    def numbers(self, what: str) -> list[int]:
        return [int(text) for text in self.said(what)]

    def wait_for_more(self, what: str = "acknowledged", count: int = 3 * AT_ONCE) -> float:
        """Until so many more are there than now; how long that took."""
        began, before = time.monotonic(), len(self.said(what))
        while len(self.said(what)) < before + count:
            assert time.monotonic() - began < CALL_S, f"nothing more is {what}: {self.told}"
            assert self._process.poll() is None, f"it has ended: {self.told}"
            time.sleep(0.02)
        return time.monotonic() - began

    def begin_stop(self) -> None:
        self._process.terminate()

    def await_stop(self) -> None:
        self._process.wait(LAST_S + CALL_S)

    @property
    def told(self) -> str:
        errors = Path(f"{self._output}.errors").read_text()
        return "\n".join([*self._output.read_text().splitlines()[-5:], errors[-3000:]])

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def loads(folder: Path, commands: dict[str, Sequence[str]]) -> Iterator[dict[str, Load]]:
    """Clients by their names, until the end of the `with`."""
    started: dict[str, Load] = {}
    try:
        for name, command in commands.items():
            started[name] = Load(command, folder / f"{name}.txt")
        for load in started.values():
            load.wait_for_more("received", 1)
        yield started
    finally:
        for load in started.values():
            load.end()


def python_load(client: str, bootstrap: str, topic: str) -> list[str]:
    return [sys.executable, "-m", "tests.cluster.loads", client, bootstrap, topic]


if __name__ == "__main__":
    main(*sys.argv[1:])
