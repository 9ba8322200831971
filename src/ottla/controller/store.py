"""What the cluster remembers: a tree of small nodes, as ZooKeeper has it.

A node has data and a version that grows with every change of the data, so that a change can be made on condition that
nobody else made one. Several changes can be made at once: all of them or none. An ephemeral node goes when the one who
made it goes. `ottla.controller.local_store` keeps the tree in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class StoreError(Exception):
    """A change could not be made, and none of those asked for with it was."""


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


Operation = Create | Set | Delete | Check
Changed = Callable[[str], None]


class Watch(Protocol):
    def cancel(self) -> None: ...


class Store(Protocol):
    """Used by one thread at a time. What a call has changed is durable when it returns."""

    def get(self, path: str) -> Node:
        """The node; NodeMissing where there is none."""

    def children(self, path: str) -> list[str]:
        """The names right below a node, in order."""

    def tree(self, path: str) -> dict[str, Node]:
        """Every node below a path, by its path, in order; not the node of the path itself."""

    def commit(self, operations: Sequence[Operation], *, is_vital: bool = False) -> None:
        """Make these changes one after the other, all of them or none.

        What only deletes, and what `is_vital`, can be done on a full disk, too.
        """

    def watch(self, path: str, changed: Changed) -> Watch:
        """Call back with the path after each change of this node or of the row of its children."""

    def close(self) -> None:
        """Give up the session: its ephemeral nodes go."""


def parent_of(path: str) -> str:
    """The path of the node above; the root is the empty path."""
    return path.rpartition("/")[0]


def check_path(path: str) -> None:
    """Refuse what is no path, which is a mistake of the caller."""
    if not path.startswith("/") or "//" in path or path.endswith("/") or "\0" in path:
        raise ValueError(f"not the path of a node: {path!r}")
