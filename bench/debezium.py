"""Debezium's embedded engine on the same binlog, where Maven has it."""

from __future__ import annotations

import subprocess
import tempfile

from bench.java_programs import classpath
from tests.connect.mariadb import MariaDb

VERSION = "3.4.0.Final"
SECONDS = 240


class Debezium:
    """`note` where the binlog ends, and `read` so many rows from there on, in a process of its own."""

    def __init__(self, mariadb: MariaDb) -> None:
        self._mariadb = mariadb
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-debezium-")
        self._classpath = classpath(
            f"debezium-{VERSION}", f"io.debezium:debezium-embedded:{VERSION}",
            f"io.debezium:debezium-connector-mariadb:{VERSION}", program="DebeziumReads.java",
        )  # fmt: skip
        mariadb.run("CREATE USER IF NOT EXISTS bench@'127.0.0.1' IDENTIFIED BY 'bench'")
        mariadb.run("GRANT ALL ON *.* TO bench@'127.0.0.1'")

    def note(self) -> bool:
        """It does so when a first row has come. False: there is no Debezium."""
        if self._classpath is None:
            return False
        self._folder.cleanup()
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-debezium-")
        noting = subprocess.Popen(self._command(0), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while noting.poll() is None:
                self._mariadb.run("UPDATE orders SET note = CONCAT('n', RAND()) WHERE id = 1", database="shop")
                try:
                    noting.wait(1.0)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            noting.kill()
            noting.wait()
        return True

    def read(self, rows: int) -> tuple[float, float]:
        """Seconds and processor seconds, from the first batch to the last."""
        done = subprocess.run(self._command(rows), capture_output=True, text=True, timeout=SECONDS, check=True)
        seconds, cpu = done.stdout.split()[-2:]
        return float(seconds), float(cpu)

    def close(self) -> None:
        self._folder.cleanup()

    def _command(self, rows: int) -> list[str]:
        found = self._classpath or ""
        return ["java", "-Xmx1g", "-cp", found, "DebeziumReads", str(self._mariadb.port), self._folder.name, str(rows)]
