"""A real Spark cluster on loopback: a standalone master and workers, each a process of its own."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from ottla.pipelines.java import java_home
from tests.light_java import LIGHT_JAVA

START_SECONDS = 180
PATIENCE = {
    "spark.python.authenticate.socketTimeout": "300s",
    "spark.network.timeout": "600s",
    "spark.sql.broadcastTimeout": "600s",
}
"""For sessions on a machine that others keep busy: nothing is wrong when a Python worker needs its time to come up."""
_PR_SET_PDEATHSIG = 1
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class SparkCluster:
    """A context manager. `master` is the URL for --master; the workers have one core each.

    The processes end with this one, however it ends. JavaMissing where there is no Java.
    """

    def __init__(self, folder: Path, workers: int = 2, memory: str = "1g") -> None:
        self.folder = folder
        self.master = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self._worker_count = workers
        self._memory = memory
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self._start("master", _MASTER, *address)
            self.master = self._wait_for("master", r"Starting Spark master at (spark://\S+)")
            for _ in range(self._worker_count):
                self.add_worker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def add_worker(self) -> None:
        name = f"worker-{len(self.workers)}"
        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        room = ("-c", "1", "-m", self._memory, "-d", str(self.folder / name))
        self.workers.append(self._start(name, _WORKER, *address, *room, self.master))
        self._wait_for(name, r"(Successfully registered with master)")

    def kill_worker(self, index: int) -> None:
        """With -9; its executors end when they notice."""
        self.workers[index].send_signal(signal.SIGKILL)
        self.workers[index].wait()

    def _start(self, name: str, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": LIGHT_JAVA,
            "PYSPARK_PYTHON": sys.executable,
        }
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), main_class, *arguments],
                stdout=log, stderr=subprocess.STDOUT, env=environment, preexec_fn=end_with_parent,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def _wait_for(self, name: str, pattern: str) -> str:
        """What the process says when it is ready."""
        log = self.folder / f"{name}.log"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._processes[-1].poll() is None:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found.group(1)
            time.sleep(0.1)
        raise RuntimeError(f"Spark's {name} did not start: {log.read_text(errors='replace')[-2000:]}")


def end_with_parent() -> None:
    """For a child process before it begins: it is killed when the thread that started it is gone, however it went."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
