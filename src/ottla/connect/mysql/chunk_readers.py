"""Threads that read chunks of tables side by side, each through a connection of its own."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ottla.connect.mysql.connection import SqlConnection

Job = Callable[[SqlConnection], Any]


class ChunkReaders:
    """Threads and connections are there while there is work: they begin with the first job, and `rest` ends them."""

    def __init__(self, connect: Callable[[], SqlConnection], count: int) -> None:
        self.count = count
        self.done, self._tell = socket.socketpair()
        """Readable when a job is done."""
        for end in (self.done, self._tell):
            end.setblocking(False)
        self._connect = connect
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Job] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._connections: set[SqlConnection] = set()
        self._is_closed = False

    def submit(self, job: Job) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((future, job))
        if len(self._threads) < self.count:
            thread = threading.Thread(target=self._work, args=(self._jobs,), name="mysql-chunks", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def rest(self) -> None:
        """There is nothing to do for now: each thread ends when it is done."""
        for _ in self._threads:
            self._jobs.put(None)
        self._threads = []
        self._jobs = queue.SimpleQueue()

    def close(self) -> None:
        """What is being read is broken off."""
        with self._lock:
            self._is_closed = True
            for connection in self._connections:
                connection.break_off()
        self.rest()
        self.done.close()
        with self._lock:
            self._tell.close()

    def _work(self, jobs: queue.SimpleQueue[tuple[Future[Any], Job] | None]) -> None:
        sql: SqlConnection | None = None
        while (taken := jobs.get()) is not None:
            future, job = taken
            try:
                if sql is None:
                    sql = self._open()
                result = job(sql)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            self._say_done()
        if sql is not None:
            with self._lock:
                self._connections.discard(sql)
            sql.close()

    def _open(self) -> SqlConnection:
        sql = self._connect()
        with self._lock:
            self._connections.add(sql)
            if self._is_closed:
                sql.break_off()
        return sql

    def _say_done(self) -> None:
        # A full pipe says it, too; a closed one has nobody who listens.
        with self._lock, contextlib.suppress(OSError):
            self._tell.send(b"\0")
