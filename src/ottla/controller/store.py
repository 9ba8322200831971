"""What the cluster remembers: a tree of small nodes, as ZooKeeper has it.

A node has data and a version that grows with every change of the data, so that a change can be made on condition that
nobody else made one. Several changes can be made at once: all of them or none. An ephemeral node goes when the one who
made it goes.

Nobody waits for the store: an answer is a later call on the thread that asked. `local_store` has two homes for the
tree, a file and the memory; `zookeeper/store` has it in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeVar

ANY_VERSION = -1


class StoreError(Exception):
    """A change could not be made, and none of those asked for with it was; but see CommitUncertain."""


class NodeMissing(StoreError):
    """There is no such node, or no parent for it."""


class NodeExists(StoreError):
    """There is such a node already."""


class VersionChanged(StoreError):
    """Somebody else has changed the node since."""


class NodeHasChildren(StoreError):
    """A node with children cannot be deleted, and an ephemeral one has none."""


class StoreUnusable(StoreError):
    """The store cannot be read or written at all."""


class CommitTooLarge(StoreError):
    """The operations do not fit into one commit of this store: see `Store.max_commit_bytes`."""


class CommitUncertain(StoreError):
    """The connection was lost on the way: the changes were all made, or none was. Only reading tells which."""


class Node(NamedTuple):
    data: bytes
    version: int
    created_in: int  # the number of the change that made the node; every later change has a higher one
    is_ephemeral: bool = False


class Create(NamedTuple):
    path: str
    data: bytes = b""
    is_ephemeral: bool = False


class Set(NamedTuple):
    """Changes the data of a node that has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Changes nothing, and fails where the node does not have this version."""

    path: str
    version: int


class Put(NamedTuple):
    """Changes the data of a node, or makes the node, with empty ones above it where those are missing."""

    path: str
    data: bytes


Operation = Create | Set | Delete | Check | Put
Changed = Callable[[str], None]
Committed = Callable[[StoreError | None], None]
Lost = Callable[[], None]
T = TypeVar("T")
Answer = Callable[[T | StoreError], None]


class Watch(Protocol):
    def cancel(self) -> None: ...


class Store(Protocol):
    """Used by one thread, which calls back on its loop: never within the call, and in the order of the calls."""

    def get(self, path: str, done: Answer[Node]) -> None:
        """The node; NodeMissing where there is none."""

    def children(self, path: str, done: Answer[list[str]]) -> None:
        """The names right below a node, in order."""

    def tree(self, path: str, done: Answer[dict[str, Node]]) -> None:
        """Every node below a path, by its path, in order; not the node of the path itself."""

    def commit(self, operations: Iterable[Operation], done: Committed, *, is_vital: bool = False) -> None:
        """Make these changes one after the other, all of them or none; then they are durable.

        The operations may be made on another thread, so they must not come from what this one changes meanwhile.
        What only deletes, and what `is_vital`, can be done on a full disk, too.
        """

    @property
    def max_commit_bytes(self) -> int:
        """How large the operations of one commit may be, counted by `size_of`; CommitTooLarge beyond."""

    def watch(self, path: str, changed: Changed) -> Watch:
        """Call back with the path after a change of this node or of the row of its children, or without one.

        Whoever reads after the call sees the change. Several changes may be told by one call. A watch lasts through
        lost connections and sessions: it is told then, since nobody knows what changed meanwhile.
        """

    def watch_session(self, lost: Lost) -> Watch:
        """Call back when the session was lost: its ephemeral nodes are gone, and a new one has begun.

        It comes before the answers of all commits that were made in the new session.
        """

    def look(self) -> None:
        """Learn at once who died and what others changed, so that watches are told; where the store knows by itself,
        nothing."""

    def close(self) -> None:
        """Wait for what is under way, and give up the session: its ephemeral nodes go."""

    def abandon(self) -> None:
        """Let go as a process that dies: what is under way may be done or not, and nobody is told."""


def parent_of(path: str) -> str:
    """The path of the node above; the root is the empty path."""
    return path.rpartition("/")[0]


OPERATION_BYTES = 60  # what an operation takes up beside its path and its data, at most


def size_of(operation: Operation) -> int:
    """How much of `Store.max_commit_bytes` an operation takes; never less than it does."""
    size = OPERATION_BYTES + len(operation.path.encode())
    if isinstance(operation, Create | Set):
        return size + len(operation.data)
    if isinstance(operation, Put):
        # The nodes above it may have to be made, too.
        return (size + OPERATION_BYTES) * operation.path.count("/") + len(operation.data)
    return size


def check_path(path: str) -> None:
    """Refuse what is no path, which is a mistake of the caller."""
    if not path.startswith("/") or "//" in path or path.endswith("/") or "\0" in path:
        raise ValueError(f"not the path of a node: {path!r}")
