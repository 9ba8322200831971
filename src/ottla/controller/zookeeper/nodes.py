"""Nodes in ZooKeeper, each where Kafka had it. The only file that knows kazoo.

A connection that is lost is made again, for as long as the store is open. Reads wait for it and are sent again. A
commit that was under way is not: it was made or not, and its user is told so. kazoo has threads of its own, which
call `changed` and the others; whoever gives them must expect that.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import WatchedEvent
from kazoo.retry import KazooRetry

from ottla.controller.store import (
    Check,
    CommitTooLarge,
    CommitUncertain,
    Create,
    Delete,
    Node,
    NodeExists,
    NodeHasChildren,
    NodeMissing,
    Operation,
    Put,
    Set,
    StoreError,
    StoreUnusable,
    VersionChanged,
    check_path,
    parent_of,
    size_of,
)
from ottla.controller.zookeeper.address import MAX_REQUEST_BYTES, ZookeeperAddress
from ottla.controller.zookeeper.reads import GET_CHILDREN, GET_DATA, Found, FoundNode, MultiRead

T = TypeVar("T")
logger = logging.getLogger("ottla.zookeeper")

READS_AT_ONCE = 1000  # in one request
ITS_OWN = "/zookeeper"  # what ZooKeeper keeps of itself, at its root
RETRY_SECONDS = 0.05  # after which a connection is tried again, and then longer
LONGEST_RETRY_SECONDS = 1.0
ATTEMPTS = 3  # to connect to each server, for which a session has time
ATTEMPT_SECONDS = 2.0  # for which a server may say nothing, where the session has as much
MANY_TRIES = 100  # of a `Put` where somebody else was quicker
SHUT_BOTH_WAYS = 2  # `socket.SHUT_RDWR`: nothing here but kazoo has sockets

LOST = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, OperationTimeoutError)
REFUSALS: dict[type[KazooException], type[StoreError]] = {
    NoNodeError: NodeMissing,
    NodeExistsError: NodeExists,
    BadVersionError: VersionChanged,
    NotEmptyError: NodeHasChildren,
    NoChildrenForEphemeralsError: NodeHasChildren,
}


def _quiet_logger() -> logging.Logger:
    """For kazoo, which tells of each attempt to connect, some twenty a second while no server answers."""
    quiet = logging.getLogger("ottla.zookeeper.kazoo")
    quiet.setLevel(logging.ERROR)
    quiet.addFilter(_is_not_told)
    return quiet


def _is_not_told(record: logging.LogRecord) -> bool:
    """What ends its thread is told where that ends."""
    return not str(record.msg).startswith("Unhandled exception in connection loop")


class NodeWatcher(NamedTuple):
    """Whom to tell what, from other threads."""

    changed: Callable[[str], None]
    connected: Callable[[], None]
    lost_session: Callable[[], None]


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """How kazoo waits, with bounds.

    By itself it waits a whole session for a server to take a connection and to answer on it, so that one that is cut
    off, or one that was starting when it was asked and forgot it (ZooKeeper 3.9 does so), costs the session though
    others are there. And it waits for ever for an answer.
    """

    def __init__(self, session_seconds: float, server_count: int, is_connected: Callable[[], bool]) -> None:
        super().__init__()
        longest = session_seconds / server_count
        self._attempt_seconds = min(longest, max(longest / ATTEMPTS, ATTEMPT_SECONDS))
        self._answer_seconds = session_seconds
        self._is_connected = is_connected

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = self._attempt_seconds
        return super().create_connection(*args, **kwargs)

    def select(self, reading: Any, writing: Any, failing: Any, timeout: float) -> Any:
        if not self._is_connected():
            timeout = min(timeout, self._attempt_seconds)
        return super().select(reading, writing, failing, timeout)

    def spawn(self, work: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        """What is no answer of ZooKeeper's ends kazoo's thread, which is begun anew, and is told in a sentence."""

        def run() -> None:
            try:
                work(*args, **kwargs)
            except Exception as error:
                logger.warning("a ZooKeeper server gave an answer that is none: %s", error)

        thread: threading.Thread = super().spawn(run)
        return thread

    def async_result(self) -> AsyncResult:
        return _Answer(self, self._answer_seconds)


class _Answer(AsyncResult):  # type: ignore[misc]
    def __init__(self, handler: _Handler, answer_seconds: float) -> None:
        super().__init__(handler)
        self._answer_seconds = answer_seconds

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        return super().get(block, self._answer_seconds if timeout is None else timeout)


class ZookeeperNodes:
    def __init__(self, address: ZookeeperAddress, session_timeout_seconds: float, told: NodeWatcher) -> None:
        """Connect, and make the chroot; StoreUnusable where no server answers for as long as a session lasts."""
        self._address = address
        self._told = told
        self._patience_seconds = session_timeout_seconds
        self.lost_sessions = 0
        self._is_over = False
        self._is_connected = threading.Event()
        server_count = address.hosts.count(",") + 1
        self._client = KazooClient(
            hosts=address.hosts,
            timeout=session_timeout_seconds,
            handler=_Handler(session_timeout_seconds, server_count, lambda: bool(self._client.connected)),
            logger=_quiet_logger(),
            connection_retry=KazooRetry(
                max_tries=-1, delay=RETRY_SECONDS, backoff=2, max_jitter=0.2, max_delay=LONGEST_RETRY_SECONDS
            ),
        )
        self._client.add_listener(self._state_changed)
        self._client.start_async()
        try:
            self._read(lambda: self._client.ensure_path(address.chroot or "/"))
        except BaseException as error:
            self.close()
            if isinstance(error, RuntimeError):  # as kazoo says it
                raise StoreUnusable(f"no ZooKeeper server answers at {address.hosts}, but something else") from error
            raise
        self._client.chroot = address.chroot

    def _state_changed(self, state: str) -> None:
        if self._is_over:
            self._is_connected.clear()
        elif state == KazooState.CONNECTED:
            logger.info("ZooKeeper is connected")
            self._is_connected.set()
            self._told.connected()
        else:
            if self._is_connected.is_set():
                logger.warning("the connection to ZooKeeper is lost")
            self._is_connected.clear()
            if state == KazooState.LOST:
                logger.warning("the session at ZooKeeper is lost")
                self.lost_sessions += 1
                self._told.lost_session()

    # Waiting

    def _read(self, read: Callable[[], T]) -> T:
        """Ask until there is an answer, over as many connections as it takes."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            self._wait_for_connection(deadline)
            try:
                return read()
            except LOST:
                continue
            except KazooTimeoutError:
                raise self._unanswered() from None

    def _wait_for_connection(self, deadline: float) -> None:
        while not self._is_connected.wait(min(0.1, max(0.0, deadline - time.monotonic()))):
            if self._is_over:
                raise StoreUnusable("the store is closed")
            if not self._client._connection._connection_routine.is_alive():
                self._client.start_async()  # its thread has ended by an answer that it did not understand
            if time.monotonic() >= deadline:
                raise self._unanswered()

    def _unanswered(self) -> StoreUnusable:
        return StoreUnusable(f"no ZooKeeper server answers at {self._address.hosts}")

    # Reading

    def get(self, path: str) -> Node:
        check_path(path)
        with _refused_at(path):
            data, stat = self._read(lambda: self._client.get(path))
        return Node(data or b"", stat.version, stat.czxid, stat.ephemeralOwner != 0)

    def children(self, path: str) -> list[str]:
        if path:
            check_path(path)
        with _refused_at(path):
            names: list[str] = self._read(lambda: self._client.get_children(path or "/"))
        return sorted(name for name in names if not self._is_its_own(f"{path}/{name}"))

    def tree(self, path: str) -> dict[str, Node]:
        """Level after level: what is changed meanwhile is there or not."""
        found: dict[str, Node] = {}
        above = [path]
        while above:
            rows = self._read_many(GET_CHILDREN, above)
            paths = [
                below
                for parent, names in zip(above, rows, strict=True)
                if isinstance(names, list)
                for name in names
                if not self._is_its_own(below := f"{parent}/{name}")
            ]
            above = []
            for below, entry in zip(paths, self._read_many(GET_DATA, paths), strict=True):
                if isinstance(entry, FoundNode):
                    found[below] = entry.node
                    if entry.child_count:
                        above.append(below)
        return dict(sorted(found.items()))

    def _is_its_own(self, path: str) -> bool:
        return path == ITS_OWN and not self._address.chroot

    def _read_many(self, kind: int, paths: Sequence[str]) -> list[Found]:
        return self._read(lambda: self._read_pipelined(kind, [f"{self._client.chroot}{path}" or "/" for path in paths]))

    def _read_pipelined(self, kind: int, paths: Sequence[str]) -> list[Found]:
        under_way = []
        for start in range(0, len(paths), READS_AT_ONCE):
            answer = self._client.handler.async_result()
            # kazoo has no public way to send a request that it does not know.
            self._client._call(MultiRead(kind, paths[start : start + READS_AT_ONCE]), answer)
            under_way.append(answer)
        return [entry for answer in under_way for entry in answer.get()]

    # Watching

    def arm(self, path: str) -> None:
        """Have `changed` called once, after the next change of this node or of the row of its children."""

        def read() -> None:
            exists = self._client.exists_async(path or "/", watch=self._event)
            with contextlib.suppress(NoNodeError):
                self._client.get_children(path or "/", watch=self._event)
            exists.get()

        self._read(read)

    def _event(self, event: WatchedEvent) -> None:
        if event.path is not None and not self._is_over:  # None: the connection was lost, and all is armed anew
            self._told.changed("" if event.path == "/" else event.path)

    # Changing

    def commit(self, operations: Sequence[Operation], *, is_vital: bool = False) -> Collection[str]:
        """Whoever watches what is changed is told by ZooKeeper, so nothing is given back."""
        for operation in operations:
            check_path(operation.path)
        size_bytes = sum(map(size_of, operations)) + len(operations) * len(self._address.chroot)
        if size_bytes > MAX_REQUEST_BYTES:
            raise CommitTooLarge(
                f"the change takes {size_bytes:,} bytes, and ZooKeeper takes {MAX_REQUEST_BYTES:,} at once"
            )
        if operations:
            for _ in range(MANY_TRIES):
                steps = self._steps(operations)
                failure = self._send(steps)
                if failure is None:
                    return ()
                step, refusal = failure
                if not step.is_guess or isinstance(refusal, NodeHasChildren):
                    raise refusal
            raise VersionChanged("others change the same nodes all the time")
        return ()

    def _steps(self, operations: Sequence[Operation]) -> list[_Step]:
        """The operations as ZooKeeper has them. What is put depends on what is there, which somebody may change."""
        there = self._existing(operation.path for operation in operations if isinstance(operation, Put))
        steps: list[_Step] = []
        for operation in operations:
            path = operation.path
            match operation:
                case Put(path, data):
                    if there.get(path):
                        steps.append(_Step(Set(path, data), is_guess=True))
                    else:
                        missing = [Create(path, data)]
                        while (path := parent_of(path)) and not there.get(path):
                            missing.append(Create(path))
                        steps += [_Step(create, is_guess=True) for create in reversed(missing)]
                        there.update((create.path, True) for create in missing)
                case Check():
                    steps.append(_Step(operation))
                case _:
                    steps.append(_Step(operation))
                    there[path] = not isinstance(operation, Delete)
        return steps

    def _existing(self, paths: Iterator[str]) -> dict[str, bool]:
        """Of these nodes and all above them, whether they are there."""
        wanted: dict[str, bool] = {}
        for path in paths:
            while path and path not in wanted:
                wanted[path] = False
                path = parent_of(path)
        found = self._read_many(GET_DATA, list(wanted))
        return {path: entry is not None for path, entry in zip(wanted, found, strict=True)}

    def _send(self, steps: Sequence[_Step]) -> tuple[_Step, StoreError] | None:
        """Make all steps, or none: then the one that was refused."""
        transaction = self._client.transaction()
        for operation, _ in steps:
            match operation:
                case Create(path, data, is_ephemeral):
                    transaction.create(path, data, ephemeral=is_ephemeral)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        self._wait_for_connection(time.monotonic() + self._patience_seconds)
        try:
            results: list[Any] = transaction.commit()
        except (*LOST, KazooTimeoutError) as error:
            raise CommitUncertain(
                f"the connection to ZooKeeper was lost, and the change was made or not ({type(error).__name__})"
            ) from None
        for step, result in zip(steps, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                return step, _refusal(result, step.operation.path)
        return None

    # Ending

    def close(self) -> None:
        """End the session; where no server is there to be told, it runs out."""
        self._is_over = True
        with contextlib.suppress(Exception):  # kazoo tells that its thread still waits for a server
            self._client.stop()
        with contextlib.suppress(Exception):
            self._client.close()

    def interrupt(self) -> None:
        """Have whoever waits give up; from another thread."""
        self._is_over = True
        self._client._stopped.set()  # kazoo's own `stop` would end the session
        connection = self._client._connection._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(SHUT_BOTH_WAYS)

    def abandon(self) -> None:
        """The session runs out, as that of a process that died."""
        self.interrupt()
        with contextlib.suppress(Exception):
            self._client._safe_close()
        with contextlib.suppress(Exception):
            self._client.close()


class _Step(NamedTuple):
    operation: Create | Set | Delete | Check
    is_guess: bool = False  # it goes by what was read before, and is to be made anew if that has changed


@contextlib.contextmanager
def _refused_at(path: str) -> Iterator[None]:
    try:
        yield
    except KazooException as error:
        raise _refusal(error, path) from None


def _refusal(error: Exception, path: str) -> StoreError:
    for kind, refusal in REFUSALS.items():
        if isinstance(error, kind):
            return refusal(path)
    return StoreUnusable(f"{path}: {type(error).__name__} {error}".rstrip())
