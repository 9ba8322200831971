"""A run: clients at work on a broker that is killed time and again, as they are; then all that is there is read.

`python -m tests.checker` runs it for as long as one likes. OTTLA_TEST_BROKER=apache-kafka tries Apache Kafka.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.wire.frames import encode_request
from tests.checker.check import DELETE_RETENTION_MS, Anomaly, find_anomalies
from tests.checker.clients import INPUT, OUTPUT, PARTITIONS, QUIET, TABLE, WORKERS, transactional_id_of, value_of
from tests.checker.history import EndSeen, HistoryWriter, Isolation, Place, Polled, Positioned, read_history
from tests.child_processes import die_with_parent
from tests.compat.killable import Disturbed
from tests.conformance.connection import Connection
from tests.conformance.requests import alter_quotas

ROLES = {"producer": 2, "transactor": 1, "keeper": 2, "worker": 2, "reader": 1, "follower": 1}
WRITERS = ("producer", "transactor", "keeper")
TOPICS: dict[str, dict[str, str]] = {
    INPUT: {},
    OUTPUT: {},
    TABLE: {
        "cleanup.policy": "compact",
        "segment.ms": "500",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": str(DELETE_RETENTION_MS),
    },
}
QUOTAS = (("producer_byte_rate", 20_000.0), ("consumer_byte_rate", 50_000.0), ("request_percentage", 30.0))
"""Of each client, now and then."""
HISTORY, FAILURES = "history", "failures"
"""A folder with a file of each client, and a file of what ended them."""
CALL_S = 20.0
SETTLE_S = 60.0
PAUSE_S = (0.2, 1.5)
"""Between two kills, at least and at most."""
BROKER_LIFE_S = (1.0, 7.0)
"""It takes clients up to three seconds to find a broker again; most lives should be of use."""


class Report(NamedTuple):
    anomalies: list[Anomaly]
    event_counts: Counter[str]
    kill_counts: Counter[str]
    longest_start_s: float
    """Of a broker that was killed."""
    failures: list[str]
    """What ended clients that nobody killed."""
    complaints: list[str]
    """Of the broker."""

    def __str__(self) -> str:
        lines = [
            f"events: {_listed(self.event_counts)}",
            f"disturbed: {_listed(self.kill_counts)}; a broker was back in {self.longest_start_s:.1f} s at most",
        ]
        lines += [f"ended by itself: {failure}" for failure in self.failures]
        lines += [f"the broker: {complaint}" for complaint in self.complaints]
        lines += map(str, self.anomalies)
        return "\n".join([*lines, f"{len(self.anomalies)} anomalies"])


class Client:
    """One client through all of its lives."""

    def __init__(
        self, clients: Sequence[str], role: str, number: int, bootstrap: str, folder: Path, seed: object
    ) -> None:
        """`clients`: the module that is its program, and what that wants to know first."""
        self._clients = clients
        self.role = role
        self.name = f"{role}-{number}"
        self._bootstrap = bootstrap
        self._folder = folder
        self._seed = seed
        self._life = 0
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._life += 1
        name = f"{self.name}.{self._life}"
        arguments = (self.role, name, self._bootstrap, str(self._folder / HISTORY), f"{self._seed} {name}")
        with open(self._folder / FAILURES, "ab") as failures:
            command = [sys.executable, "-m", *self._clients, *arguments]
            return subprocess.Popen(command, stderr=failures, preexec_fn=die_with_parent)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def keep_alive(self) -> None:
        """One that has ended begins another life."""
        if self._process.poll() is not None:
            self._process = self._start()

    def stop(self) -> None:
        """In good order, if it can."""
        self._process.terminate()
        try:
            self._process.wait(CALL_S)
        except subprocess.TimeoutExpired:
            self.kill()


class Run:
    topics: Mapping[str, dict[str, str]] = TOPICS
    """All that is read at the end, each with its configuration."""
    replicas = 1
    """Of each topic."""

    def __init__(
        self,
        broker: Disturbed,
        folder: Path,
        seed: int,
        clients: Sequence[str] = ("tests.checker.clients",),
        roles: Mapping[str, int] = ROLES,
    ) -> None:
        self._broker = broker
        self._folder = folder
        self._history = folder / HISTORY
        self._history.mkdir(parents=True)
        self._random = random.Random(seed)
        self._kill_counts: Counter[str] = Counter()
        self._longest_start_s = 0.0
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
        topics = [NewTopic(topic, PARTITIONS, self.replicas, config=config) for topic, config in self.topics.items()]
        for future in admin.create_topics(topics).values():
            future.result(CALL_S)
        self._clients = [
            Client(clients, role, number, broker.bootstrap, folder, seed)
            for role, count in roles.items()
            for number in range(count)
        ]

    def execute(self, seconds: float) -> Report:
        try:
            self._disturb(seconds)
            self._settle()
        finally:
            for client in self._clients:
                client.kill()
        self._read_everything()
        history = read_history(sorted(self._history.iterdir()))
        event_counts = Counter(type(event).__name__ for event in history)
        failures = (self._folder / FAILURES).read_text().splitlines()
        complaints = self._broker.complaints.splitlines()
        anomalies = find_anomalies(history)
        return Report(anomalies, event_counts, self._kill_counts, self._longest_start_s, failures, complaints)

    def _disturb(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        kill_broker_at = self._broker_dies_at()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, self._random.uniform(*PAUSE_S)))
            if time.monotonic() >= kill_broker_at:
                self._end_broker()
                time.sleep(self._random.uniform(0, 0.3))
                self._start_broker()
                kill_broker_at = self._broker_dies_at()
            else:
                self._disturb_once()
            self._keep_alive(self._clients)

    def _disturb_once(self) -> None:
        if self._random.random() < 0.2:
            self._set_quotas(are_wanted=self._random.random() < 0.5)
        else:
            victim = self._random.choice(self._clients)
            victim.kill()
            self._kill_counts[victim.role] += 1

    def _end_broker(self) -> None:
        """On the spot or in good order: what a clean stop leaves behind is another thing than what a crash leaves."""
        if self._random.random() < 0.5:
            self._broker.kill()
            self._kill_counts["broker"] += 1
        else:
            self._broker.terminate()
            self._kill_counts["broker, in good order"] += 1

    def _set_quotas(self, *, are_wanted: bool) -> None:
        quotas = [(name, value if are_wanted else None) for name, value in QUOTAS]
        request = alter_quotas([("client-id", None)], *quotas)
        answer: object = None
        while not isinstance(answer, bytes):  # the network may be bad
            with contextlib.closing(Connection(self._broker.address)) as connection:
                connection.send(encode_request(1, "checker", request, request.api.highest))
                answer = connection.receive(CALL_S)
        self._kill_counts["quotas set" if are_wanted else "quotas removed"] += 1

    def _broker_dies_at(self) -> float:
        return time.monotonic() + self._random.uniform(*BROKER_LIFE_S)

    def _start_broker(self) -> None:
        began = time.monotonic()
        self._broker.start()
        self._longest_start_s = max(self._longest_start_s, time.monotonic() - began)

    @staticmethod
    def _keep_alive(clients: Sequence[Client]) -> None:
        for client in clients:
            client.keep_alive()

    def _settle(self) -> None:
        """Nobody writes any more; the workers work off what there is, which shows that they can."""
        writers = [client for client in self._clients if client.role in WRITERS]
        others = [client for client in self._clients if client.role not in WRITERS]
        self._set_quotas(are_wanted=False)
        for client in writers:
            client.stop()
        self._end_transactions("transactor")
        self._end_transactions("keeper")
        self._wait_for_workers(others)
        for client in others:
            client.stop()
        self._end_transactions("worker")

    def _end_transactions(self, role: str) -> None:
        """Whoever takes a transactional id ends what was left open under it."""
        for client in self._clients:
            if client.role == role:
                options = {"bootstrap.servers": self._broker.bootstrap, **QUIET}
                producer = Producer({**options, "transactional.id": transactional_id_of(client.name)})
                producer.init_transactions(CALL_S)

    def _wait_for_workers(self, alive: Sequence[Client]) -> None:
        """Until nothing is left for them; it may take as long as they get on."""
        known: dict[Place, int] = {}
        deadline = time.monotonic() + SETTLE_S
        while True:
            self._keep_alive(alive)
            time.sleep(0.3)
            offsets = self._group_offsets()
            if offsets != known:
                known, deadline = offsets, time.monotonic() + SETTLE_S
            elif offsets and not self._is_anything_behind(offsets):
                return
            if time.monotonic() > deadline:
                raise TimeoutError("the workers do not get on")

    def _group_offsets(self) -> dict[Place, int]:
        consumer = self._consumer(WORKERS, Isolation.COMMITTED)
        try:
            places = [TopicPartition(INPUT, partition) for partition in range(PARTITIONS)]
            committed = consumer.committed(places, CALL_S)
            return {Place(at.topic, at.partition): max(at.offset, 0) for at in committed}
        except KafkaException:
            return {}
        finally:
            consumer.close()

    def _is_anything_behind(self, offsets: dict[Place, int]) -> bool:
        """Markers do not count: no reader is given them."""
        consumer = self._consumer("unused", Isolation.COMMITTED)
        try:
            return any(_records_from(consumer, place, offset) for place, offset in offsets.items())
        finally:
            consumer.close()

    def _read_everything(self) -> None:
        for isolation in Isolation:
            name = f"last-{isolation}"
            history = HistoryWriter(self._history / name, name)
            consumer = self._consumer("unused", isolation)
            for place in [Place(topic, partition) for topic in self.topics for partition in range(PARTITIONS)]:
                at_ns = time.monotonic_ns()
                end = self._end_of(place)
                history.add(EndSeen, at_ns=at_ns, place=place, offset=end)
                history.add(Positioned, place=place, offset=0)
                records = _records_from(consumer, place, 0)
                history.add(Polled, place=place, isolation=isolation, records=tuple(records), next_offset=end)
            consumer.close()
            history.close()

    def _end_of(self, place: Place) -> int:
        consumer = self._consumer("unused", Isolation.UNCOMMITTED)
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(*place), CALL_S)[1])
        finally:
            consumer.close()

    def _consumer(self, group: str, isolation: Isolation) -> Consumer:
        options = {"group.id": group, "isolation.level": isolation, "enable.auto.commit": False}
        common = {"bootstrap.servers": self._broker.bootstrap, "enable.partition.eof": True, **QUIET}
        return Consumer({**common, **options, "fetch.wait.max.ms": 50})


def _records_from(consumer: Consumer, place: Place, start: int) -> list[tuple[int, str]]:
    """All up to the end of what the consumer may see."""
    consumer.assign([TopicPartition(*place, start)])
    records: list[tuple[int, str]] = []
    deadline = time.monotonic() + CALL_S
    while time.monotonic() < deadline:
        for message in consumer.consume(1_000, 0.1):
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return records
            offset = message.offset()
            if error is None and offset is not None:
                records.append((offset, value_of(message)))
    raise TimeoutError(f"{place} does not come to an end")


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
