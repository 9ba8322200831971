"""Writers and members of groups, of several makes, each a thread: they write and read numbers by key."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, Self

import confluent_kafka

from ottla.client import EARLIEST, ClientOptions, Consumer, Producer
from tests.growing.ledger import Ledger

TOPIC = "t"
KEYS = 24
PAUSE_SECONDS = 0.02
OPTIONS = ClientOptions(metadata_age_ms=500)


class Worker(ABC):
    """A context manager: it works inside the `with`."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.ledger = ledger
        self.name = name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.ledger.failed(f"{self.name}: {error!r}")

    @abstractmethod
    def work(self) -> None: ...


# Writers


class ConfluentWriter(Worker):
    def __init__(self, ledger: Ledger, bootstrap: str, name: str = "confluent", **more: Any) -> None:
        super().__init__(ledger, name)
        settings = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "enable.idempotence": True}
        self._settings = {**settings, "linger.ms": 5, "message.timeout.ms": 60_000, **more}

    def work(self) -> None:
        producer = confluent_kafka.Producer(self._settings)
        while not self._stop.wait(PAUSE_SECONDS):
            for each in range(KEYS):
                key = f"{self.name}-{each}".encode()
                number = self.ledger.next_number(key)
                producer.produce(TOPIC, key=key, value=b"%d" % number, on_delivery=self._told)
            producer.poll(0)
        if producer.flush(90):
            self.ledger.failed(f"{self.name} cannot deliver")

    def _told(self, error: object, _message: object) -> None:
        if error is not None:
            self.ledger.failed(f"{self.name}: {error}")


class OttlaWriter(Worker):
    def __init__(self, ledger: Ledger, bootstrap: str, name: str = "ottla", **more: Any) -> None:
        super().__init__(ledger, name)
        self._bootstrap = bootstrap
        self._more = more

    def work(self) -> None:
        with Producer(self._bootstrap, **self._more) as producer:
            while not self._stop.wait(PAUSE_SECONDS):
                for each in range(KEYS):
                    key = f"{self.name}-{each}".encode()
                    producer.send(TOPIC, b"%d" % self.ledger.next_number(key), key=key)
            producer.flush()


# Members of groups


class ConfluentMember(Worker):
    def __init__(self, ledger: Ledger, bootstrap: str, group: str, **more: Any) -> None:
        super().__init__(ledger, group)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "topic.metadata.refresh.interval.ms": 500,
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 6000,
            **more,
        }

    def work(self) -> None:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.subscribe([TOPIC])
        try:
            while not self._stop.is_set():
                for message in consumer.consume(500, 0.05):
                    if message.error() is None:
                        key, value = message.key(), message.value()
                        assert isinstance(key, bytes)
                        assert isinstance(value, bytes)
                        place = message.partition() or 0, message.offset() or 0
                        self.ledger.read(self.name, key, int(value), place)
        finally:
            consumer.close()


class OttlaMember(Worker):
    def __init__(self, ledger: Ledger, bootstrap: str, group: str, **more: Any) -> None:
        super().__init__(ledger, group)
        self._bootstrap = bootstrap
        self._more = {"auto_commit_ms": 100, "options": OPTIONS, "start": EARLIEST, "heartbeat_ms": 300, **more}

    def work(self) -> None:
        with Consumer(self._bootstrap, TOPIC, group=self.name, **self._more) as consumer:
            while not self._stop.is_set():
                for fetched in consumer.poll(50):
                    for record in fetched.records:
                        assert record.key is not None
                        assert record.value is not None
                        place = fetched.partition, record.offset
                        self.ledger.read(self.name, record.key, int(record.value), place)
