"""Nodes in memory, for tests and for simulated clusters: they last as long as the `MemoryTree` that they are in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

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

Undo = list[tuple[str, Node | None, int | None]]


class _Noted(NamedTuple):
    """A change, and whose it was."""

    session: int
    paths: Collection[str]


class MemoryTree:
    """What all sessions share."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.below: dict[str, set[str]] = {"": set()}  # the paths right below each node
        self.owners: dict[str, int] = {}  # the sessions of ephemeral nodes
        self.changes = 0
        self.sessions = 0
        self.noted: list[_Noted] = []

    def put(self, path: str, node: Node | None) -> None:
        """A node as it is from now on; None: it is gone."""
        if node is None:
            del self.nodes[path], self.below[path]
            self.below[parent_of(path)].discard(path)
            self.owners.pop(path, None)
        else:
            self.nodes[path] = node
            self.below.setdefault(path, set())
            self.below[parent_of(path)].add(path)

    def end_session(self, session: int) -> None:
        changed: dict[str, None] = {}
        for path in [path for path, owner in self.owners.items() if owner == session]:
            self.put(path, None)
            changed[path] = changed[parent_of(path)] = None
        if changed:
            self.noted.append(_Noted(session, changed))


class MemoryNodes:
    """One session. The tree lives on when it is closed."""

    def __init__(self, tree: MemoryTree) -> None:
        self._tree = tree
        tree.sessions += 1
        self._session = tree.sessions
        self._seen = len(tree.noted)
        self.lost_sessions = 0
        self.is_full = False  # for tests: the disk of the store is

    # Reading

    def get(self, path: str) -> Node:
        check_path(path)
        return self._find(path)

    def _find(self, path: str) -> Node:
        node = self._tree.nodes.get(path)
        if node is None:
            raise NodeMissing(path)
        return node

    def children(self, path: str) -> list[str]:
        if path:
            self.get(path)
        return sorted(child[len(path) + 1 :] for child in self._tree.below[path])

    def tree(self, path: str) -> dict[str, Node]:
        start, nodes = f"{path}/", self._tree.nodes
        return {found: nodes[found] for found in sorted(nodes) if found.startswith(start)}

    # Changing

    def commit(self, operations: Sequence[Operation], *, is_vital: bool = False) -> Collection[str]:
        if self.is_full and not is_vital and not all(isinstance(each, Delete | Check) for each in operations):
            raise StoreUnusable("the disk is full")
        changed: dict[str, None] = {}
        undo: Undo = []
        self._tree.changes += 1
        try:
            for operation in operations:
                check_path(operation.path)
                self._apply(operation, changed, undo)
        except BaseException:
            for path, node, owner in reversed(undo):
                self._tree.put(path, node)
                if owner is not None:
                    self._tree.owners[path] = owner
            raise
        self._tree.noted.append(_Noted(self._session, changed))
        return changed

    def _apply(self, operation: Operation, changed: dict[str, None], undo: Undo) -> None:
        path = operation.path
        match operation:
            case Check(path, version):
                self._check(path, version)
                return
            case Put(path, data):
                for missing in self._missing_above(path):
                    self._apply(Create(missing), changed, undo)
                put = Set(path, data) if path in self._tree.nodes else Create(path, data)
                self._apply(put, changed, undo)
                return
            case Create(path, data, is_ephemeral):
                self._refuse_creation(path)
                self._put(path, Node(data, 0, self._tree.changes, is_ephemeral), undo)
                changed[parent_of(path)] = None
            case Set(path, data, version):
                node = self._check(path, version)
                self._put(path, node._replace(data=data, version=node.version + 1), undo)
            case Delete(path, version):
                self._check(path, version)
                if self._tree.below[path]:
                    raise NodeHasChildren(path)
                self._put(path, None, undo)
                changed[parent_of(path)] = None
        changed[path] = None

    def _put(self, path: str, node: Node | None, undo: Undo) -> None:
        undo.append((path, self._tree.nodes.get(path), self._tree.owners.get(path)))
        self._tree.put(path, node)
        if node is not None and node.is_ephemeral:
            self._tree.owners[path] = self._session

    def _check(self, path: str, version: int) -> Node:
        node = self._find(path)
        if version not in (ANY_VERSION, node.version):
            raise VersionChanged(path)
        return node

    def _refuse_creation(self, path: str) -> None:
        parent = parent_of(path)
        if parent and self._find(parent).is_ephemeral:
            raise NodeHasChildren(f"{parent} is ephemeral")
        if path in self._tree.nodes:
            raise NodeExists(path)

    def _missing_above(self, path: str) -> Iterable[str]:
        missing = []
        while (path := parent_of(path)) and path not in self._tree.nodes:
            missing.append(path)
        return reversed(missing)

    # Others

    def look(self) -> Collection[str]:
        noted, self._seen = self._tree.noted[self._seen :], len(self._tree.noted)
        return dict.fromkeys(path for session, paths in noted if session != self._session for path in paths)

    def expire(self) -> None:
        """The session ends as that of one who was silent for too long; the next begins at once."""
        self._tree.end_session(self._session)
        self._tree.sessions += 1
        self._session = self._tree.sessions
        self.lost_sessions += 1

    def close(self) -> None:
        self._tree.end_session(self._session)

    abandon = close
