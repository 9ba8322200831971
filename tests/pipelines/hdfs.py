"""A real HDFS on loopback: a name node and a data node in a process of their own."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Self

from ottla.pipelines.java import java_home
from tests.light_java import LIGHT_JAVA
from tests.pipelines.cluster import end_with_parent
from tests.pipelines.jars import hdfs_jars

START_SECONDS = 180
_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"


class Hdfs:
    """A context manager; `url` is where paths begin. JarsUnavailable where Maven cannot be reached.

    It ends with this process, however it ends.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jars = hdfs_jars()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        import pyspark

        classes = os.pathsep.join([self._jars, f"{Path(pyspark.__file__).parent}/jars/*"])
        details = self._folder / "details.json"
        command = [str(java_home() / "bin" / "java"), "-Xmx256m", *LIGHT_JAVA.split(), "-cp", classes, _MAIN]
        command += ["-datanodes", "1", "-format", "-nnport", "0", "-httpport", "0", "-writeDetails", str(details)]
        command.append(f"-Dhdfs.minidfs.basedir={self._folder / 'data'}")
        with open(self._folder / "hdfs.log", "wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=self._folder, preexec_fn=end_with_parent
            )
        try:
            self.url = f"hdfs://127.0.0.1:{self._port(details)}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _port(self, details: Path) -> int:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                return int(json.loads(details.read_text())["namenode_port"])
            except (FileNotFoundError, ValueError):  # not there yet, or not whole
                time.sleep(0.1)
        raise RuntimeError(f"HDFS did not start: {(self._folder / 'hdfs.log').read_text(errors='replace')[-2000:]}")
