"""Nodes in a SQLite file, for the brokers of one machine.

Several processes may use the file at once. A session is a row in the file and a lock beside it that the kernel drops
with the process, so the nodes of a process that died are found without waiting: when the file is opened, and whenever
somebody has a `look`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar, cast

from ottla.controller.reserve import SUFFIX as RESERVE_SUFFIX
from ottla.controller.reserve import Reserve
from ottla.controller.session_lock import SessionLock, is_dead, remove_lock
from ottla.controller.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NodeHasChildren,
    NodeMissing,
    Operation,
    Put,
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


T = TypeVar("T")


class SqliteNodes:
    def __init__(
        self,
        path: str,
        *,
        survives_power_loss: bool = True,
        session_timeout_seconds: float | None = None,
        is_alone: bool = False,
    ) -> None:
        """Open the file, made if it is missing. Its folder must be there. `is_alone`: no other process may use it.

        What need not survive a loss of power, only the end of the process, waits for no disk. With a timeout, a
        process that is stopped and does not `look` for so long loses its session to whoever looks.
        """
        self._path = path
        self._survives_power_loss = survives_power_loss
        self._is_alone = is_alone
        self._session_timeout_seconds = session_timeout_seconds
        self._session: int | None = None
        self._session_lock: SessionLock | None = None
        self.lost_sessions = 0
        self._reserve = Reserve(f"{path}{RESERVE_SUFFIX}") if survives_power_loss else None
        self._reserve_due = 0.0  # when to take it again
        self._with_reserve(self._open)
        self._expire_sessions()
        self._keep_reserve()
        self._seen_version = self._data_version()

    def _open(self) -> None:
        path, survives_power_loss = self._path, self._survives_power_loss
        with self._refusing_unusable():
            # What is left of another, SQLite must remove before it makes one.
            if survives_power_loss and not (os.path.exists(path) or os.path.exists(f"{path}-wal")):
                _lay_out(path)
            self._database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                if self._is_alone:
                    # Else SQLite maps a file, which has holes where the blocks of a disk are smaller than a page. On a
                    # full disk the system ends a process that comes upon one.
                    self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
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

    def commit(self, operations: Sequence[Operation], *, is_vital: bool = False) -> Collection[str]:
        if is_vital or all(isinstance(operation, Delete | Check) for operation in operations):
            changed = self._with_reserve(lambda: self._commit_as_needed(operations))
        else:
            changed = self._commit_as_needed(operations)
        self._keep_reserve()
        return changed

    def _with_reserve(self, change: Callable[[], T]) -> T:
        """Make a change also where the disk is full."""
        while True:
            try:
                return change()
            except StoreUnusable:
                if self._reserve is None or not self._reserve.release():
                    raise

    def _keep_reserve(self) -> None:
        """Take the reserve, if it was given up; on a disk that stays full it is not tried with each change."""
        if self._reserve is not None and time.monotonic() >= self._reserve_due:
            self._reserve.fill()
            self._reserve_due = time.monotonic() + RESERVE_SECONDS

    def _commit_as_needed(self, operations: Sequence[Operation]) -> Collection[str]:
        if all(isinstance(operation, Create) and operation.is_ephemeral for operation in operations):
            with self._without_sync():
                return self._commit(operations)
        return self._commit(operations)

    def _commit(self, operations: Sequence[Operation]) -> Collection[str]:
        changed: dict[str, None] = {}  # the paths to tell watches of, each once
        with self._refusing_unusable(), self._keeping_session(), self._transaction():
            (number,) = self._database.execute("UPDATE changes SET count = count + 1 RETURNING count").fetchone()
            for creates, run in itertools.groupby(operations, lambda operation: type(operation) is Create):
                if creates:
                    self._create_all(cast(Iterator[Create], run), number, changed)
                else:
                    for operation in run:
                        self._apply(operation, number, changed)
        return changed

    @contextlib.contextmanager
    def _keeping_session(self) -> Iterator[None]:
        """A session that was begun by a change that is undone has not begun."""
        before = self._session
        try:
            yield
        except BaseException:
            if self._session != before:
                self._release_session_lock()
            raise

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

    def _apply(self, operation: Operation, number: int, changed: dict[str, None]) -> None:
        check_path(operation.path)
        match operation:
            case Put(path, data):
                if self._database.execute(f"{_SET} WHERE path = ?", (data, path)).rowcount == 0:
                    self._create_all(self._missing_above(path, data), number, changed)
            case Set(path, data, version):
                condition, values = _condition(path, version)
                self._change(path, f"{_SET} WHERE {condition}", (data, *values))
            case Delete(path, version):
                condition, values = _condition(path, version)
                self._change(path, f"DELETE FROM nodes WHERE {condition}", values)
                if self._has_children(path):
                    raise NodeHasChildren(path)
                changed[parent_of(path)] = None
            case Check(path, version):
                if self.get(path).version != version:
                    raise VersionChanged(path)
                return
        changed[operation.path] = None

    def _missing_above(self, path: str, data: bytes) -> list[Create]:
        """What makes a node, and those above it that are missing before it."""
        missing = [Create(path, data)]
        while (path := parent_of(path)) and not self._exists(path):
            missing.append(Create(path))
        return missing[::-1]

    def _exists(self, path: str) -> bool:
        return self._database.execute("SELECT 1 FROM nodes WHERE path = ?", (path,)).fetchone() is not None

    def _change(self, path: str, statement: str, values: tuple[object, ...]) -> None:
        if self._database.execute(statement, values).rowcount == 0:
            self.get(path)  # that it is missing comes first
            raise VersionChanged(path)

    def _has_children(self, path: str) -> bool:
        found = self._database.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,))
        return found.fetchone() is not None

    # What others did

    def look(self) -> Collection[str] | None:
        changed = self._expire_sessions()
        version = self._data_version()
        if version != self._seen_version:
            self._seen_version = version
            return None  # the file does not tell which
        return changed

    def _data_version(self) -> int:
        """Another number after each change that was not made through this connection."""
        with self._refusing_unusable():
            version: int = self._database.execute("PRAGMA data_version").fetchone()[0]
        return version

    # Sessions

    def _lock_path(self, session: int) -> str:
        return f"{self._path}-session-{session}.lock"  # no topic has a partition with a folder of this name

    def _open_session(self) -> int:
        """The session of this store, begun by its first ephemeral node."""
        if self._session is not None and not self._session_exists(self._session):
            self._lose_session()
        if self._session is None:
            (session,) = self._database.execute("INSERT INTO sessions DEFAULT VALUES RETURNING id").fetchone()
            # Locked before the row can be seen by others: from then on a free lock means a dead session.
            self._session_lock = SessionLock(self._lock_path(session), self._session_timeout_seconds)
            self._session = session
        return self._session

    def _session_exists(self, session: int) -> bool:
        return self._database.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is not None

    def _lose_session(self) -> None:
        """Others took this process for dead, and have ended its session."""
        self._release_session_lock()
        self.lost_sessions += 1

    def _release_session_lock(self) -> None:
        if self._session_lock is not None:
            self._session_lock.release()
        self._session = self._session_lock = None

    def _expire_sessions(self) -> Collection[str]:
        """Remove the ephemeral nodes of processes that are no more."""
        changed: dict[str, None] = {}
        with self._refusing_unusable():
            rows = self._database.execute("SELECT id FROM sessions").fetchall()
            if self._session_lock is not None:
                self._session_lock.beat()
        if self._session is not None and (self._session,) not in rows:
            self._lose_session()
        for (session,) in rows:
            if session != self._session and is_dead(self._lock_path(session)):
                changed.update(self._with_reserve(partial(self._end_session, session)))
                remove_lock(self._lock_path(session))
                self._remove_earlier_lock(session)
        return changed

    def _remove_earlier_lock(self, session: int) -> None:
        """By the name that earlier versions gave it, which a partition's folder may have now."""
        path = f"{self._path}-session-{session}"
        if os.path.isfile(path):
            _remove(path)

    def _end_session(self, session: int) -> dict[str, None]:
        changed: dict[str, None] = {}
        with self._refusing_unusable(), self._without_sync(), self._transaction():
            rows = self._database.execute("DELETE FROM nodes WHERE session = ? RETURNING path", (session,))
            for (path,) in rows.fetchall():
                changed[parent_of(path)] = changed[path] = None
            self._database.execute("DELETE FROM sessions WHERE id = ?", (session,))
        return changed

    def close(self) -> None:
        if self._session is not None:
            # Where it cannot be written, others find by the lock that the session is over; the reserve is for more.
            with contextlib.suppress(StoreUnusable):
                self._end_session(self._session)
            self._release_session_lock()
        self._database.close()

    def abandon(self) -> None:
        """The kernel would drop the lock; whoever looks next ends the session."""
        if self._session_lock is not None:
            self._session_lock.drop()
        self._database.close()


def _lay_out(path: str) -> None:
    """Make the file under another name and sync it once: SQLite would sync each step of it, to be safe at each."""
    made = f"{path}-new-{os.getpid()}.tmp"  # likewise
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


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


_SET = "UPDATE nodes SET data = ?, version = version + 1"


def _condition(path: str, version: int) -> tuple[str, tuple[object, ...]]:
    if version == ANY_VERSION:
        return "path = ?", (path,)
    return "path = ? AND version = ?", (path, version)


def _node(data: bytes, version: int, created_in: int, is_ephemeral: int) -> Node:
    return Node(data, version, created_in, bool(is_ephemeral))
