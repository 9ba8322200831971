"""Random commits against a dictionary: same nodes, same refusals, also after the store is opened again."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.controller.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    NodeExists,
    NodeHasChildren,
    NodeMissing,
    Operation,
    Put,
    Set,
    StoreError,
    VersionChanged,
    parent_of,
)
from tests.controller.homes import Home

Nodes = dict[str, tuple[bytes, int, bool]]
PATHS = st.sampled_from(["/a", "/b", "/a/a", "/a/b", "/a/a/a", "/a-", "/ab"])
VERSIONS = st.sampled_from([ANY_VERSION, 0, 1, 2])
DATA = st.binary(max_size=2)
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans()),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, st.integers(0, 2)),
    st.builds(Put, PATHS, DATA),
)


def apply(nodes: Nodes, operation: Operation) -> None:
    path = operation.path
    if isinstance(operation, Create):
        parent = parent_of(path)
        if parent and parent not in nodes:
            raise NodeMissing
        if parent and nodes[parent][2]:
            raise NodeHasChildren
        if path in nodes:
            raise NodeExists
        nodes[path] = operation.data, 0, operation.is_ephemeral
        return
    if isinstance(operation, Put):
        missing = [path]
        while (above := parent_of(missing[-1])) and above not in nodes:
            missing.append(above)
        for each in reversed(missing[1:]):
            apply(nodes, Create(each))
        apply(nodes, Set(path, operation.data) if path in nodes else Create(path, operation.data))
        return
    if path not in nodes:
        raise NodeMissing
    _, version, is_ephemeral = nodes[path]
    if operation.version not in (ANY_VERSION, version):
        raise VersionChanged
    if isinstance(operation, Delete) and any(parent_of(other) == path for other in nodes):
        raise NodeHasChildren
    if isinstance(operation, Set):
        nodes[path] = operation.data, version + 1, is_ephemeral
    elif isinstance(operation, Delete):
        del nodes[path]


def apply_all(nodes: Nodes, operations: Sequence[Operation]) -> None:
    for operation in operations:
        apply(nodes, operation)


def refusal_of(commit: Callable[[], object]) -> type[StoreError] | None:
    try:
        commit()
    except StoreError as error:
        return type(error)
    return None


class StoreAgainstModel(RuleBasedStateMachine):
    kind: str

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.home = Home(self.kind, Path(self.folder.name))
        self.store = self.home.open()
        self.nodes: Nodes = {}

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4))
    def commit(self, operations: Sequence[Operation]) -> None:
        nodes = dict(self.nodes)
        expected = refusal_of(lambda: apply_all(nodes, operations))
        assert refusal_of(lambda: self.store.commit(operations)) is expected
        if expected is None:
            self.nodes = nodes

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = self.home.open()
        self.nodes = {path: node for path, node in self.nodes.items() if not node[2]}

    @invariant()
    def same_nodes(self) -> None:
        found = {path: (node.data, node.version, node.is_ephemeral) for path, node in self.store.tree("").items()}
        assert found == self.nodes
        for path in ("", *self.nodes):
            below = sorted(other for other in self.nodes if parent_of(other) == path)
            assert self.store.children(path) == [other.rpartition("/")[2] for other in below]

    def teardown(self) -> None:
        self.home.close()
        self.folder.cleanup()


class SqliteAgainstModel(StoreAgainstModel):
    kind = "sqlite"


class MemoryAgainstModel(StoreAgainstModel):
    kind = "memory"


class ZookeeperAgainstModel(StoreAgainstModel):
    kind = "zookeeper"


FEW = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestSqliteAgainstModel = SqliteAgainstModel.TestCase
TestSqliteAgainstModel.settings = FEW
TestMemoryAgainstModel = MemoryAgainstModel.TestCase
TestMemoryAgainstModel.settings = FEW
TestZookeeperAgainstModel = ZookeeperAgainstModel.TestCase
TestZookeeperAgainstModel.settings = settings(FEW, max_examples=15)
