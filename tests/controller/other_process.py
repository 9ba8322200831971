"""Nodes of a SQLite file that another process has open: each call goes there and back."""

from __future__ import annotations

import subprocess
import sys
import threading
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from ottla.controller.sqlite_nodes import SqliteNodes
from ottla.controller.store import StoreError


class OtherProcess:
    """Has all methods of SqliteNodes but `abandon`, which kills the process."""

    def __init__(self, path: str, session_timeout_seconds: float | None = None) -> None:
        with Listener(family="AF_UNIX") as listener:
            arguments = [sys.executable, "-m", __name__, str(listener.address), path, repr(session_timeout_seconds)]
            self.process = subprocess.Popen(arguments)
            self._connection: Connection[Any, Any] = listener.accept()
        self._one_call = threading.Lock()  # the loop reads `lost_sessions` while the store's thread may be in a call

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments, **options: self._call(name, arguments, options)

    @property
    def lost_sessions(self) -> int:
        count: int = self._call("lost_sessions", (), {})
        return count

    def _call(self, name: str, arguments: tuple[object, ...], options: dict[str, object]) -> Any:
        with self._one_call:
            self._connection.send((name, arguments, options))
            result, failure = self._connection.recv()
        if failure is not None:
            raise failure
        return result

    def close(self) -> None:
        self._call("close", (), {})
        self._end()

    def abandon(self) -> None:
        self.process.kill()
        self._end()

    def _end(self) -> None:
        self._connection.close()
        self.process.wait()


def _serve(address: str, path: str, timeout: str) -> None:
    seconds = None if timeout == "None" else float(timeout)
    nodes = SqliteNodes(path, survives_power_loss=False, session_timeout_seconds=seconds)
    with Client(address) as connection:
        while True:
            try:
                name, arguments, options = connection.recv()
            except EOFError:
                return
            try:
                found = getattr(nodes, name)
                result, failure = (found(*arguments, **options) if callable(found) else found), None
            except (StoreError, ValueError) as error:
                result, failure = None, error
            connection.send((result, failure))


if __name__ == "__main__":
    _serve(*sys.argv[1:])
