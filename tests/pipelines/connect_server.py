"""A Spark Connect server on loopback, in a process of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from ottla.pipelines.java import java_home
from tests.pipelines.cluster import PATIENCE, end_with_parent

START_SECONDS = 180


class ConnectServer:
    """A context manager; `remote` is its address. It runs on two threads, with a catalog that lasts as long as it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.remote = ""

    def __enter__(self) -> Self:
        import pyspark

        home = Path(pyspark.__file__).parent
        configs = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.local.dir": str(self._folder),
            **PATIENCE,
        }
        command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
        for name, value in configs.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        self._log = self._folder / "server.log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self._folder,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        try:
            self.remote = f"sc://127.0.0.1:{self._port()}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def _port(self) -> int:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            found = re.search(r"Spark Connect server started at: \S*?:(\d+)", self._log.read_text(errors="replace"))
            if found:
                return int(found.group(1))
            time.sleep(0.1)
        raise RuntimeError(f"the Connect server did not start: {self._log.read_text(errors='replace')[-2000:]}")
