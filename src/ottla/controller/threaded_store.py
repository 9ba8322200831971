"""A store whose nodes are read and changed on a thread of their own, one call after the other.

Where the nodes lie is a second thing: in a file, in the memory, or in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from ottla.controller.store import (
    Answer,
    Changed,
    Committed,
    Lost,
    Node,
    Operation,
    StoreError,
    StoreUnusable,
    Watch,
)

T = TypeVar("T")
Job = Callable[[], None]


class Nodes(Protocol):
    """The tree as one session has it. Calls may block, and come one at a time."""

    lost_sessions: int
    """How many sessions of this one were ended by others; may be read by any thread."""

    def get(self, path: str) -> Node: ...

    def children(self, path: str) -> list[str]: ...

    def tree(self, path: str) -> dict[str, Node]: ...

    def commit(self, operations: Sequence[Operation], *, is_vital: bool = False) -> Collection[str]:
        """Make the changes; the paths of nodes that changed, or whose row of children did."""

    def close(self) -> None: ...

    def abandon(self) -> None: ...


N = TypeVar("N", bound=Nodes)


class Worker(Protocol):
    """A thread that runs jobs one after the other, and calls back on the loop."""

    def run(self, job: Job, done: Callable[[Exception | None], None]) -> None: ...

    def close(self) -> None:
        """Return when the jobs that were given have run."""

    def abandon(self) -> None:
        """Return without waiting for jobs that were not begun; nobody is called back any more."""


class ThreadedStore(Generic[N]):
    def __init__(self, open_nodes: Callable[[], N], worker: Worker) -> None:
        """Nodes that cannot be opened are told to everybody who asks for something."""
        self._open_nodes = open_nodes
        self._worker = worker
        self._nodes: N | None = None
        self._watches: dict[str, list[_Watch]] = {}
        self._session_watches: list[_SessionWatch] = []
        self._told_of_sessions = 0  # that were lost
        self._is_over = False

    # On the other thread

    def _opened(self) -> N:
        if self._nodes is None:
            self._nodes = self._open_nodes()
        return self._nodes

    def _close(self) -> None:
        if self._nodes is not None:
            self._nodes.close()

    # On the loop's

    def get(self, path: str, done: Answer[Node]) -> None:
        self._ask(lambda nodes: nodes.get(path), done)

    def children(self, path: str, done: Answer[list[str]]) -> None:
        self._ask(lambda nodes: nodes.children(path), done)

    def tree(self, path: str, done: Answer[dict[str, Node]]) -> None:
        self._ask(lambda nodes: nodes.tree(path), done)

    def commit(self, operations: Iterable[Operation], done: Committed, *, is_vital: bool = False) -> None:
        def committed(changed: Collection[str] | StoreError) -> None:
            if isinstance(changed, StoreError):
                done(changed)
                return
            try:
                done(None)
            finally:
                self._tell(changed)

        self._ask(lambda nodes: nodes.commit(list(operations), is_vital=is_vital), committed)

    def _ask(self, question: Callable[[N], T], done: Answer[T]) -> None:
        answers: list[T] = []

        def answered(failure: Exception | None) -> None:
            self._tell_of_lost_sessions()
            if failure is None:
                done(answers[0])
            elif isinstance(failure, StoreError):
                done(failure)
            else:
                done(StoreUnusable(f"{type(failure).__name__}: {failure}"))

        self._worker.run(lambda: answers.append(question(self._opened())), answered)

    def _tell_of_lost_sessions(self) -> None:
        """Each of them, before any answer that was found in the next."""
        if self._nodes is None or self._nodes.lost_sessions == self._told_of_sessions:
            return
        self._told_of_sessions = self._nodes.lost_sessions
        for watch in list(self._session_watches):
            watch.lost()
        self._tell(list(self._watches))

    def watch(self, path: str, changed: Changed) -> Watch:
        watch = _Watch(self._watches, path, changed)
        self._watches.setdefault(path, []).append(watch)
        return watch

    def watch_session(self, lost: Lost) -> Watch:
        return _SessionWatch(self._session_watches, lost)

    def _tell(self, changed: Iterable[str]) -> None:
        for path in changed if self._watches else ():
            for watch in list(self._watches.get(path, ())):
                watch.changed(path)

    def close(self) -> None:
        self._end()
        self._worker.run(self._close, lambda _failure: None)
        self._worker.close()

    def abandon(self) -> None:
        self._end()
        self._worker.abandon()
        if self._nodes is not None:
            self._nodes.abandon()

    def _end(self) -> None:
        self._is_over = True
        self._watches.clear()
        self._session_watches.clear()


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


class _SessionWatch:
    def __init__(self, watches: list[_SessionWatch], lost: Lost) -> None:
        self._watches = watches
        self.lost = lost
        watches.append(self)

    def cancel(self) -> None:
        if self in self._watches:
            self._watches.remove(self)
