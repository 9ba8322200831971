"""A real MariaDB for tests: Debian's package, on a free loopback port, with a data folder of the test's own."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pymysql

START_SECONDS = 60.0
# Rows that are whole, with names; a small buffer pool, and no sync that a test would wait for.
SETTINGS = {
    "log-bin": "shop-bin",
    "server-id": "7",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    "innodb-flush-log-at-trx-commit": "0",
    "sync-binlog": "0",
    "character-set-server": "utf8mb4",
    "max-connections": "30",
    "performance-schema": "OFF",
}


def why_missing() -> str | None:
    """Why there is no MariaDB here; None if there is one."""
    for program in ("mariadbd", "mariadb-install-db"):
        if _find(program) is None:
            return f"{program} is not installed: apt-get install mariadb-server-core"
    return None


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin")


class MariaDb:
    """A context manager: it runs inside the `with`. After `kill` or `stop` it can be started again."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = 0
        self.settings = SETTINGS | {name.replace("_", "-"): value for name, value in settings.items()}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        if not self.data.exists():
            self._install()
        if not self.port:
            self.port = _free_port()
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        command = [
            self._program(), "--no-defaults", f"--datadir={self.data}", f"--port={self.port}",
            "--bind-address=127.0.0.1", f"--socket={self.folder}/s", f"--pid-file={self.folder}/pid", *as_user(),
            *options,
        ]  # fmt: skip
        with open(self.folder / "output.txt", "ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        self._wait()

    def _program(self) -> str:
        return _find("mariadbd") or "mariadbd"

    def _install(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        program = _find("mariadb-install-db") or ""
        command = [
            program, "--no-defaults", f"--datadir={self.data}", "--auth-root-authentication-method=normal",
            "--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=16M", *as_user(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                connection = self.connect()
            except pymysql.Error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline:
                    text = (self.folder / "output.txt").read_text(errors="replace")
                    raise RuntimeError(f"MariaDB did not start:\n{text}") from None
                time.sleep(0.05)
            else:
                connection.close()
                return

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(60)

    def connect(self, database: str | None = None, **options: Any) -> Any:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, charset="utf8mb4", autocommit=True,
            **options,
        )  # fmt: skip

    def run(self, *statements: str, database: str | None = None) -> Sequence[Any]:
        """What the last one gives."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                found: Sequence[Any] = cursor.fetchall()
                return found
        finally:
            connection.close()


def as_user() -> list[str]:
    return ["--user=root"] if os.getuid() == 0 else []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
