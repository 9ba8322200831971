"""Real ZooKeeper servers for tests: one, or several that elect a leader, on free loopback ports.

The server's code is in PySpark's jars, or in Debian's package `libzookeeper-java`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.child_processes import die_with_parent
from tests.light_java import LIGHT_JAVA

JAVA = ("java", *LIGHT_JAVA.split(), "-Xshare:auto", "-Xmx128m")
# Those of Spark's jars that a server needs.
JARS = (
    *("zookeeper-", "slf4j-api", "log4j-", "metrics-core", "netty-", "snappy-java", "commons-cli", "commons-io"),
    *("jackson-", "jline"),
)
DEBIAN_JARS = Path("/usr/share/java")
TICK_MS = 200  # a session lasts at least two of them
START_SECONDS = 60
LOOK_AGAIN_SECONDS = 0.02


def missing() -> str | None:
    """What to install where no server can run; None where it can."""
    if importlib.util.find_spec("kazoo") is None:
        return 'no client of ZooKeeper: "pip install ottla[zookeeper]"'
    if shutil.which("java") is None:
        return "no Java to run ZooKeeper: install one, such as openjdk-17-jre-headless"
    if not _classpath():
        return 'no ZooKeeper: "pip install pyspark", or install the package libzookeeper-java'
    return None


@functools.cache
def _classpath() -> str:
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        jars = Path(spec.origin).parent / "jars"
        found = [str(jar) for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(JARS)]
        if any("zookeeper-jute" in name for name in found):
            return ":".join(found)
    if (DEBIAN_JARS / "zookeeper.jar").exists():
        return f"{DEBIAN_JARS}/*"
    return ""


class ZookeeperServers:
    """A context manager: they run inside the `with`, and end with this process, however it ends."""

    def __init__(self, folder: Path, count: int = 1, machines: Sequence[tuple[str, Sequence[str]]] = ()) -> None:
        """`machines`: for each server a host, and what starts the command of a program that is to run there."""
        self._folder = folder
        self.count = count
        self._machines = machines or [("127.0.0.1", ())] * count
        ports = _free_ports(3 * count)
        self.ports, self._peer_ports, self._election_ports = ports[:count], ports[count : 2 * count], ports[2 * count :]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def hosts(self) -> str:
        return ",".join(f"{host}:{port}" for (host, _), port in zip(self._machines, self.ports, strict=True))

    def __enter__(self) -> Self:
        try:
            for index in range(self.count):
                self.start(index, waits=False)
            self.wait_until_ready(range(self.count))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for index in list(self._processes):
            self.kill(index)

    def start(self, index: int, *, waits: bool = True) -> None:
        folder = self._folder / f"server-{index}"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "tickTime": TICK_MS,
            "maxSessionTimeout": 60_000,
            "initLimit": 50,
            "syncLimit": 25,
            "dataDir": folder,
            "clientPort": self.ports[index],
            "clientPortAddress": self._machines[index][0],
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "forceSync": "no",
            "maxClientCnxns": 0,
        }
        if self.count > 1:
            (folder / "myid").write_text(str(index))
            for other, (peer, election) in enumerate(zip(self._peer_ports, self._election_ports, strict=True)):
                settings[f"server.{other}"] = f"{self._machines[other][0]}:{peer}:{election}"
        file = folder / "zoo.cfg"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        options = ("-Dzookeeper.preAllocSize=64", "-Dzookeeper.jmx.log4j.disable=true", "-cp", _classpath())
        with open(folder / "log", "ab") as log:
            self._processes[index] = subprocess.Popen(
                (
                    *self._machines[index][1],
                    *JAVA,
                    *options,
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(file),
                ),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            )
        if waits:
            self.wait_until_ready([index])

    def wait_until_ready(self, indexes: range | list[int]) -> None:
        deadline = time.monotonic() + START_SECONDS
        for index in indexes:
            while "Mode: " not in self.ask(index, "srvr"):
                if self._processes[index].poll() is not None or time.monotonic() > deadline:
                    log = (self._folder / f"server-{index}" / "log").read_text()
                    raise RuntimeError(f"ZooKeeper server {index} does not start:\n{log[-3000:]}")
                time.sleep(LOOK_AGAIN_SECONDS)

    def ask(self, index: int, word: str) -> str:
        """The answer to a four-letter word; empty where there is none."""
        with contextlib.suppress(OSError), self._connection(index) as asked:
            asked.sendall(word.encode())
            answer = b""
            while received := asked.recv(65536):
                answer += received
            return answer.decode()
        return ""

    def _connection(self, index: int) -> socket.socket:
        return socket.create_connection((self._machines[index][0], self.ports[index]), 1)

    @property
    def leader(self) -> int:
        """Which of several leads."""
        return next(index for index in range(self.count) if "Mode: leader" in self.ask(index, "srvr"))

    def is_running(self, index: int) -> bool:
        return index in self._processes

    def kill(self, index: int) -> None:
        process = self._processes.pop(index)
        process.kill()
        process.wait()

    def pause(self, index: int) -> None:
        self._processes[index].send_signal(signal.SIGSTOP)

    def resume(self, index: int) -> None:
        self._processes[index].send_signal(signal.SIGCONT)

    def restart(self, index: int) -> None:
        self.kill(index)
        self.start(index)


@functools.cache
def shared_server() -> ZookeeperServers:
    """One for all tests of this process that make no trouble; each has a node of its own for its root."""
    folder = tempfile.TemporaryDirectory(prefix="ottla-zookeeper-")
    servers = ZookeeperServers(Path(folder.name)).__enter__()
    atexit.register(folder.cleanup)
    atexit.register(servers.__exit__)
    return servers


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
