"""A broker as a process that can be killed, held and started again: the same address, the same data.

OTTLA_TEST_BROKER=apache-kafka puts Apache Kafka in Ottla's place, to show that what is asked is Kafka's.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.apache_kafka.harness import ApacheKafka, free_ports
from tests.faults.broker_process import BrokerProcess

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "offsets.topic.segment.bytes": "1048576",
    "transaction.state.log.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "500",
}
"""Short times: what a test waits for comes in a second or two."""


class Disturbed(ABC):
    """What is killed and started again while clients use it: a broker, or several."""

    bootstrap: str

    @property
    @abstractmethod
    def complaints(self) -> str:
        """What it has logged as errors in the lives that have ended."""

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]: ...

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def terminate(self) -> None:
        """End it in good order."""


class KillableBroker(Disturbed):
    def __init__(self) -> None:
        self._complaints = ""

    @property
    def complaints(self) -> str:
        return self._complaints

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    @property
    @abstractmethod
    def process_id(self) -> int: ...

    def restart(self) -> None:
        self.kill()
        self.start()

    def hold(self) -> None:
        """What is sent to it meanwhile waits in its sockets."""
        os.kill(self.process_id, signal.SIGSTOP)

    def release(self) -> None:
        os.kill(self.process_id, signal.SIGCONT)


class OttlaBroker(KillableBroker):
    def __init__(self, folder: Path, program: Sequence[str] = ("ottla",)) -> None:
        super().__init__()
        self._folder = folder
        self._program = program
        [port] = free_ports(1)
        self.bootstrap = f"127.0.0.1:{port}"
        self._process: BrokerProcess | None = None

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.process_id

    def start(self) -> None:
        settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
        self._process = BrokerProcess(self._folder, "--listen", self.bootstrap, *settings, program=self._program)

    def kill(self) -> None:
        if self._process is not None:
            self._complaints += self._process.errors_until_killed()
            self._process = None

    def terminate(self) -> None:
        if self._process is not None:
            self._complaints += self._process.errors()
            self._process = None


class ApacheKafkaBroker(KillableBroker):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._kafka = ApacheKafka(folder, SETTINGS)

    @property
    def process_id(self) -> int:
        assert self._kafka.process_id is not None
        return self._kafka.process_id

    def start(self) -> None:
        self._kafka.start()
        self.bootstrap = self._kafka.bootstrap

    def kill(self) -> None:
        self._kafka.kill()

    def terminate(self) -> None:
        self._kafka.stop()


MAKES: dict[str, type[OttlaBroker] | type[ApacheKafkaBroker]] = {
    "ottla": OttlaBroker,
    "apache-kafka": ApacheKafkaBroker,
}


@contextmanager
def killable_broker(folder: Path) -> Iterator[KillableBroker]:
    broker = MAKES[os.environ.get("OTTLA_TEST_BROKER", "ottla")](folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
