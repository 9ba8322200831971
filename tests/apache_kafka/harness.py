"""A real Apache Kafka for tests: one node, or several, on free loopback ports in a folder of the test's own."""

import base64
import os
import signal
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.apache_kafka.distribution import classpath
from tests.light_java import LIGHT_JAVA

# One tier of compilation and a small heap: short-lived processes on a machine they share.
JAVA = ("java", *LIGHT_JAVA.split(), "-Xshare:auto", "-Xmx512m")
LOG_WARNINGS = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
TOOL_SECONDS = 120
START_SECONDS = 90
STOP_SECONDS = 60

# ApiVersions version 0, correlation id 1, no client id; without its length.
API_VERSIONS_REQUEST = struct.pack(">hhih", 18, 0, 1, -1)


class ToolFailed(Exception):
    """A Java program ended with an exit code other than 0."""


def run_tool(main_class: str, *arguments: str, text_in: str = "") -> str:
    """Runs a class of Kafka's, or one of the helpers here, and returns what it prints."""
    command = (*JAVA, LOG_WARNINGS, "-cp", classpath(), main_class, *arguments)
    ended = subprocess.run(command, input=text_in, capture_output=True, text=True, timeout=TOOL_SECONDS)
    if ended.returncode != 0:
        raise ToolFailed(f"{main_class} {' '.join(arguments)} ended with {ended.returncode}: {ended.stderr}")
    return ended.stdout


class ApacheKafka:
    """One broker that is its own controller. A context manager: it runs inside the `with`.

    After `stop` or `kill` it can be started again on the same data and port. The process ends with this one,
    however this one ends.
    """

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        *,
        ports: tuple[int, int] = (0, 0),
        cluster_id: str | None = None,
    ) -> None:
        """`ports`: of its broker and its controller; `cluster_id`: of a cluster that it is to be part of."""
        self.folder = folder
        self.log_dir = folder / "data"
        self._extra_properties = dict(properties or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._controller_port = ports
        self._cluster_id = cluster_id or new_cluster_id()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def process_id(self) -> int | None:
        """None while it does not run."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Returns when the broker answers requests."""
        self.begin()
        self.await_answer()

    def begin(self) -> None:
        """Starts it without waiting: one of several does not answer before most of them run."""
        if self._process is not None:
            raise RuntimeError("Apache Kafka runs already")
        is_new = not self.log_dir.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self._write_properties()
        if is_new:
            run_tool("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(properties))
        command = (*JAVA, LOG_WARNINGS, "-cp", classpath(), "WatchedKafka", str(properties))
        with open(self.folder / "output.txt", "ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)

    def await_answer(self) -> None:
        try:
            self._wait_for_answer()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ends it the clean way, so that it leaves the mark of a clean shutdown."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it on the spot. Does nothing when it does not run."""
        if self._process is not None:
            self._end(signal.SIGKILL)

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        return self.log_dir / f"{topic}-{partition}"

    def _end(self, with_signal: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("Apache Kafka does not run")
        process, self._process = self._process, None
        os.kill(process.pid, with_signal)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdin is not None:
                process.stdin.close()

    def _write_properties(self) -> Path:
        if self._port == 0:
            self._port, self._controller_port = free_ports(2)
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_dir),
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # After a kill the controller waits out the old session before the broker may serve again.
            "broker.session.timeout.ms": "1000",
            "broker.heartbeat.interval.ms": "200",
            **self._extra_properties,
        }
        path = self.folder / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return path

    def _wait_for_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                output = (self.folder / "output.txt").read_text(errors="replace")
                raise RuntimeError(f"Apache Kafka did not start:\n{output}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection:
                connection.sendall(struct.pack(">i", len(API_VERSIONS_REQUEST)) + API_VERSIONS_REQUEST)
                return len(connection.recv(4)) > 0
        except OSError:
            return False


class ApacheKafkaCluster:
    """Several brokers that are all controllers too, with the ids from 1 on. A context manager, as one of them is."""

    def __init__(self, folder: Path, count: int = 3, properties: Mapping[str, str] | None = None) -> None:
        ports = free_ports(2 * count)
        places = {node_id: (ports[2 * node_id - 2], ports[2 * node_id - 1]) for node_id in range(1, count + 1)}
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, (_, port) in places.items())
        cluster_id = new_cluster_id()
        self.brokers = {
            node_id: ApacheKafka(
                folder / str(node_id),
                {
                    "node.id": str(node_id),
                    "controller.quorum.voters": voters,
                    # Two folders, so that replicas can be moved between them.
                    "log.dirs": f"{folder}/{node_id}/data,{folder}/{node_id}/more",
                    **(properties or {}),
                },
                ports=places[node_id],
                cluster_id=cluster_id,
            )
            for node_id in places
        }
        self.addresses = {node_id: ("127.0.0.1", port) for node_id, (port, _) in places.items()}

    def __enter__(self) -> Self:
        try:
            for broker in self.brokers.values():
                broker.begin()
            for broker in self.brokers.values():
                broker.await_answer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.kill()


def new_cluster_id() -> str:
    """A first letter in front of the random bits: an id that begins with a dash is taken for an option."""
    return base64.urlsafe_b64encode(b"k" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
