"""The two brokers that are measured, each a process of its own in a folder of its own, seen from outside."""

import functools
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from bench.compiled_modules import with_compiled_broker
from tests.apache_kafka.distribution import classpath
from tests.apache_kafka.harness import LOG_WARNINGS, free_ports, run_tool

# What Kafka's own start script gives it.
JAVA = (
    *("java", "-server", "-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", LOG_WARNINGS),
)
CLUSTER_ID = "b3R0bGEtYmVuY2gtMDAwMQ"  # any 16 bytes, in base64
STOP_SECONDS = 60
FIRST_WAIT = "group.initial.rebalance.delay.ms"  # waiting is not what is measured
SCHEDULED_CPU_TIME = 2  # as clock_getcpuclockid makes the clock of a process of its number, precise to the nanosecond


def cpu_seconds_of(process_id: int) -> float:
    """All that the threads of a process have used so far, in the kernel too."""
    return time.clock_gettime(~process_id << 3 | SCHEDULED_CPU_TIME)


class Server(ABC):
    """A broker on a loopback port. What it prints goes to `output.txt` in its folder."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._other_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        self.prepare()

    def prepare(self) -> None:
        """What is done once, before the first start."""
        return

    @abstractmethod
    def command(self) -> tuple[str, ...]: ...

    def environment(self) -> dict[str, str]:
        """What the process finds in its environment."""
        return dict(os.environ)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            output = (self.folder / "output.txt").read_text(errors="replace")
            raise RuntimeError(f"{self.name} does not run:\n{output}")
        return self._process

    def start(self) -> None:
        """Returns at once; the broker may need a while."""
        with open(self.folder / "output.txt", "ab") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment(),
            )

    def kill(self) -> None:
        self.process.kill()
        self.stop()

    def stop(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self.process.pid)

    def memory_bytes(self) -> int:
        resident_pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return resident_pages * os.sysconf("SC_PAGE_SIZE")


class Ottla(Server):
    name = "Ottla"

    def command(self) -> tuple[str, ...]:
        serve = "import sys; from ottla.cli.serve import run; sys.exit(run(sys.argv[1:]))"
        data = str(self.folder / "data")
        listen = f"127.0.0.1:{self.port}"
        return sys.executable, "-c", serve, "--listen", listen, "--data", data, "--set", f"{FIRST_WAIT}=0"

    def prepare(self) -> None:
        with_compiled_broker()

    def environment(self) -> dict[str, str]:
        return with_compiled_broker()


class ApacheKafka(Server):
    """One node that is its own controller, with the settings it comes with."""

    name = "Apache Kafka"

    def prepare(self) -> None:
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._other_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._other_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            FIRST_WAIT: "0",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        self._properties = self.folder / "server.properties"
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties))

    def command(self) -> tuple[str, ...]:
        return *JAVA, "-cp", classpath(), "WatchedKafka", str(self._properties)


@contextmanager
def servers(kinds: list[type[Server]]) -> Iterator[list[Server]]:
    """One of each kind, prepared but not started, in a folder of their own."""
    folder = Path(mkdtemp(dir=_folder_of_all().name))
    made: list[Server] = []
    try:
        made += [kind(folder / kind.__name__) for kind in kinds]
        yield made
    finally:
        for server in made:
            server.stop()


@functools.cache
def _folder_of_all() -> TemporaryDirectory[str]:
    """Removed when this process ends: after many files were removed, ext4 is slow to make others for some minutes."""
    return TemporaryDirectory(prefix="ottla-bench-", ignore_cleanup_errors=True)
