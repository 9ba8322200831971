"""The store in a SQLite file, for the brokers of one machine.

Several processes may use the file at once. A session is a row in the file and a lock beside it that the kernel drops
with the process, so the nodes of a process that died are found without waiting: when a store is opened, and whenever
`expire_sessions` is called. Watches are told of the changes that are made through their own store.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import cast

from ottla.controller.reserve import Reserve
from ottla.controller.store import (
    ANY_VERSION,
    Changed,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NodeHasChildren,
    NodeMissing,
    Operation,
    Set,
    StoreUnusable,
    VersionChanged,
    check_path,
    parent_of,
)

FORMAT_VERSION = 1
BUSY_SECONDS = 10.0
RESERVE_SECONDS = 10.0  # between two tries to take the reserve
SCHEMA = """
CREATE TABLE nodes (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    created_in INTEGER NOT NULL,
    session INTEGER
) WITHOUT ROWID;
CREATE INDEX nodes_by_parent ON nodes (parent, path);
CREATE INDEX nodes_by_session ON nodes (session) WHERE session IS NOT NULL;
CREATE TABLE sessions (id INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE changes (count INTEGER NOT NULL);
INSERT INTO changes VALUES (0);
"""


class LocalStore:
    def __init__(self, path: str, *, survives_power_loss: bool = True) -> None:
        """Open the file, made if it is missing. Its folder must be there.

        What need not survive a loss of power, only the end of the process, waits for no disk.
        """
        self._path = path
        self._survives_power_loss = survives_power_loss
        self._watches: dict[str, list[_Watch]] = {}
        self._session: int | None = None
        self._session_lock: int | None = None
        self._reserve = Reserve(f"{path}-reserve") if survives_power_loss else None
        self._reserve_due = 0.0  # when to take it again
        self._with_reserve(self._open)
        self.expire_sessions()
        self._keep_reserve()

    def _open(self) -> None:
        path, survives_power_loss = self._path, self._survives_power_loss
        with self._refusing_unusable():
            # What is left of another, SQLite must remove before it makes one.
            if survives_power_loss and not (os.path.exists(path) or os.path.exists(f"{path}-wal")):
                _lay_out(path)
            self._database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._database.execute(f"PRAGMA synchronous = {'FULL' if survives_power_loss else 'OFF'}")
                self._database.execute("PRAGMA journal_mode = WAL")
                self._prepare()
            except BaseException:
                self._database.close()
                raise

    def _prepare(self) -> None:
        with self._transaction():
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                _make_tables(self._database)
            elif version != FORMAT_VERSION:
                raise StoreUnusable(f"{self._path}: format {version} is not known here, only {FORMAT_VERSION}")

    @contextlib.contextmanager
    def _without_sync(self) -> Iterator[None]:
        """For what ends with the process: it goes to the disk with the next change that must."""
        if not self._survives_power_loss:
            yield
            return
        with self._refusing_unusable():
            self._database.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            with self._refusing_unusable():
                self._database.execute("PRAGMA synchronous = FULL")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """The one writer among all processes; on the disk at the end, or as if it had never begun."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    # Reading

    def get(self, path: str) -> Node:
        check_path(path)
        with self._refusing_unusable():
            row = self._database.execute(
                "SELECT data, version, created_in, session IS NOT NULL FROM nodes WHERE path = ?", (path,)
            ).fetchone()
        if row is None:
            raise NodeMissing(path)
        return _node(*row)

    def children(self, path: str) -> list[str]:
        if path:
            self.get(path)
        with self._refusing_unusable():
            rows = self._database.execute("SELECT path FROM nodes WHERE parent = ? ORDER BY path", (path,))
            return [child[len(path) + 1 :] for (child,) in rows]

    def tree(self, path: str) -> dict[str, Node]:
        with self._refusing_unusable():
            rows = self._database.execute(
                "SELECT path, data, version, created_in, session IS NOT NULL FROM nodes "
                "WHERE path > ? AND path < ? ORDER BY path",
                (f"{path}/", f"{path}0"),  # 0 is the character after the slash
            )
            return {found: _node(*rest) for found, *rest in rows}

    # Changing

    def commit(self, operations: Sequence[Operation], *, is_vital: bool = False) -> None:
        if is_vital or all(isinstance(operation, Delete | Check) for operation in operations):
            self._with_reserve(lambda: self._commit_as_needed(operations))
        else:
            self._commit_as_needed(operations)
        self._keep_reserve()

    def _with_reserve(self, change: Callable[[], None]) -> None:
        """Make a change also where the disk is full."""
        while True:
            try:
                change()
            except StoreUnusable:
                if self._reserve is None or not self._reserve.release():
                    raise
            else:
                return

    def _keep_reserve(self) -> None:
        """Take the reserve, if it was given up; on a disk that stays full it is not tried with each change."""
        if self._reserve is not None and time.monotonic() >= self._reserve_due:
            self._reserve.fill()
            self._reserve_due = time.monotonic() + RESERVE_SECONDS

    def _commit_as_needed(self, operations: Sequence[Operation]) -> None:
        if all(isinstance(operation, Create) and operation.is_ephemeral for operation in operations):
            with self._without_sync():
                self._commit(operations)
        else:
            self._commit(operations)

    def _commit(self, operations: Sequence[Operation]) -> None:
        changed: dict[str, None] = {}  # the paths to tell watches of, each once
        with self._refusing_unusable(), self._transaction():
            (number,) = self._database.execute("UPDATE changes SET count = count + 1 RETURNING count").fetchone()
            for creates, run in itertools.groupby(operations, lambda operation: type(operation) is Create):
                if creates:
                    self._create_all(cast(Iterator[Create], run), number, changed)
                else:
                    for operation in run:
                        self._apply(operation, changed)
        self._tell(changed)

    @contextlib.contextmanager
    def _refusing_unusable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreUnusable(f"{self._path}: {error}") from error

    def _create_all(self, operations: Iterable[Create], number: int, changed: dict[str, None]) -> None:
        """All at once: topics come by the thousand."""
        rows: list[tuple[object, ...]] = []
        sessions: dict[str, int | None] = {"": None}  # of the nodes that were asked for, or are new
        try:
            for path, data, is_ephemeral in operations:
                check_path(path)
                parent = parent_of(path)
                if parent not in sessions:
                    sessions[parent] = self._session_of(parent)
                if sessions[parent] is not None:
                    raise NodeHasChildren(f"{parent} is ephemeral")
                session = self._open_session() if is_ephemeral else None
                sessions.setdefault(path, session)
                rows.append((path, parent, data, number, session))
                changed[parent] = changed[path] = None
        finally:
            self._insert(rows)  # also before another is refused, since one of these may be refused first

    def _session_of(self, path: str) -> int | None:
        row = self._database.execute("SELECT session FROM nodes WHERE path = ?", (path,)).fetchone()
        if row is None:
            raise NodeMissing(path)
        session: int | None = row[0]
        return session

    def _insert(self, rows: list[tuple[object, ...]]) -> None:
        before = self._database.total_changes
        try:
            self._database.executemany("INSERT INTO nodes VALUES (?, ?, ?, 0, ?, ?)", rows)
        except sqlite3.IntegrityError:
            raise NodeExists(str(rows[self._database.total_changes - before][0])) from None

    def _apply(self, operation: Operation, changed: dict[str, None]) -> None:
        check_path(operation.path)
        match operation:
            case Set(path, data, version):
                condition, values = _condition(path, version)
                statement = f"UPDATE nodes SET data = ?, version = version + 1 WHERE {condition}"
                self._change(path, statement, (data, *values))
            case Delete(path, version):
                if self._has_children(path):
                    raise NodeHasChildren(path)
                condition, values = _condition(path, version)
                self._change(path, f"DELETE FROM nodes WHERE {condition}", values)
                changed[parent_of(path)] = None
            case Check(path, version):
                if self.get(path).version != version:
                    raise VersionChanged(path)
                return
        changed[operation.path] = None

    def _change(self, path: str, statement: str, values: tuple[object, ...]) -> None:
        if self._database.execute(statement, values).rowcount == 0:
            self.get(path)  # that it is missing comes first
            raise VersionChanged(path)

    def _has_children(self, path: str) -> bool:
        found = self._database.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,))
        return found.fetchone() is not None

    # Watching

    def watch(self, path: str, changed: Changed) -> _Watch:
        watch = _Watch(self._watches, path, changed)
        self._watches.setdefault(path, []).append(watch)
        return watch

    def _tell(self, changed: dict[str, None]) -> None:
        for path in changed if self._watches else ():
            for watch in list(self._watches.get(path, ())):
                watch.changed(path)

    # Sessions

    def _lock_path(self, session: int) -> str:
        return f"{self._path}-session-{session}"

    def _open_session(self) -> int:
        """The session of this store, begun by its first ephemeral node."""
        if self._session is None or not self._session_exists(self._session):
            (session,) = self._database.execute("INSERT INTO sessions DEFAULT VALUES RETURNING id").fetchone()
            self._release_session_lock()
            # Locked before the row can be seen by others: from then on a free lock means a dead session.
            descriptor = os.open(self._lock_path(session), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._session, self._session_lock = session, descriptor
        return self._session

    def _session_exists(self, session: int) -> bool:
        """False after the change that would have begun it was undone."""
        return self._database.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is not None

    def _release_session_lock(self) -> None:
        if self._session is not None and self._session_lock is not None:
            _remove(self._lock_path(self._session))
            os.close(self._session_lock)
        self._session = self._session_lock = None

    def expire_sessions(self) -> None:
        """Remove the ephemeral nodes of processes that are no more."""
        with self._refusing_unusable():
            rows = self._database.execute("SELECT id FROM sessions").fetchall()
        for (session,) in rows:
            if session != self._session and self._is_dead(session):
                self._with_reserve(partial(self._end_session, session))
                _remove(self._lock_path(session))

    def _is_dead(self, session: int) -> bool:
        try:
            descriptor = os.open(self._lock_path(session), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _end_session(self, session: int) -> None:
        changed: dict[str, None] = {}
        with self._refusing_unusable(), self._without_sync(), self._transaction():
            rows = self._database.execute("DELETE FROM nodes WHERE session = ? RETURNING path", (session,))
            for (path,) in rows.fetchall():
                changed[parent_of(path)] = changed[path] = None
            self._database.execute("DELETE FROM sessions WHERE id = ?", (session,))
        self._tell(changed)

    def close(self) -> None:
        if self._session is not None:
            # Where it cannot be written, others find by the lock that the session is over; the reserve is for more.
            with contextlib.suppress(StoreUnusable):
                self._end_session(self._session)
            self._release_session_lock()
        self._watches.clear()
        self._database.close()


def _lay_out(path: str) -> None:
    """Make the file under another name and sync it once: SQLite would sync each step of it, to be safe at each."""
    made = f"{path}-new-{os.getpid()}"
    for left in (made, f"{made}-wal", f"{made}-shm"):  # by a process of this number that was killed
        _remove(left)
    with contextlib.closing(sqlite3.connect(made, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("BEGIN")
        _make_tables(database)
        database.execute("COMMIT")
    _sync(made)
    # Another process may be faster. Where there are no links, it is made in place after all.
    with contextlib.suppress(OSError):
        os.link(made, path)
    _remove(made)
    _sync(os.path.dirname(path) or ".")


def _make_tables(database: sqlite3.Connection) -> None:
    for statement in SCHEMA.split(";"):
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Watch:
    def __init__(self, watches: dict[str, list[_Watch]], path: str, changed: Changed) -> None:
        self._watches = watches
        self._path = path
        self.changed = changed

    def cancel(self) -> None:
        watches = self._watches.get(self._path, [])
        if self in watches:
            watches.remove(self)
            if not watches:
                del self._watches[self._path]


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _condition(path: str, version: int) -> tuple[str, tuple[object, ...]]:
    if version == ANY_VERSION:
        return "path = ?", (path,)
    return "path = ? AND version = ?", (path, version)


def _node(data: bytes, version: int, created_in: int, is_ephemeral: int) -> Node:
    return Node(data, version, created_in, bool(is_ephemeral))
