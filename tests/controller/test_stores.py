"""What every store does, wherever its nodes are: each operation, all-or-nothing, sessions, watches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.loop.loop import Loop
from ottla.controller.local_store import LocalNodes, LocalStore
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
    StoreUnusable,
    VersionChanged,
    size_of,
)
from tests.controller.homes import HOMES, Home, OpenStore


@pytest.fixture(params=HOMES)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    home = Home(request.param, tmp_path)
    yield home
    home.close()


@pytest.fixture
def store(home: Home) -> OpenStore:
    return home.open()


def test_a_node_has_data_a_version_and_its_place_in_time(store: OpenStore) -> None:
    store.commit([Create("/a", b"1")])
    store.commit([Create("/b", b"2")])
    store.commit([Set("/a", b"3", 0)])
    assert store.get("/a")[:2] == (b"3", 1)
    assert store.get("/a").created_in < store.get("/b").created_in


def test_children_and_trees_are_in_order_and_of_this_node_alone(store: OpenStore) -> None:
    store.commit([Create(path) for path in ("/a", "/a/c", "/a/b", "/a/b/d", "/ab", "/a0", "/a-", "/a-/x")])
    assert store.children("/a") == ["b", "c"]
    assert store.children("") == ["a", "a-", "a0", "ab"]
    assert list(store.tree("/a")) == ["/a/b", "/a/b/d", "/a/c"]
    with pytest.raises(NodeMissing):
        store.children("/nowhere")


@pytest.mark.parametrize(
    ("operation", "refusal"),
    [
        (Create("/a"), NodeExists),
        (Create("/x/y"), NodeMissing),
        (Create("/e/child"), NodeHasChildren),
        (Put("/e/child/below", b""), NodeHasChildren),
        (Set("/x", b""), NodeMissing),
        (Set("/a", b"", 7), VersionChanged),
        (Set("/x", b"", 7), NodeMissing),
        (Delete("/x"), NodeMissing),
        (Delete("/a"), NodeHasChildren),
        (Delete("/a/b", 3), VersionChanged),
        (Check("/a", 0), VersionChanged),
        (Check("/x", 0), NodeMissing),
    ],
)
def test_a_refused_operation_takes_all_others_with_it(
    store: OpenStore, operation: Operation, refusal: type[StoreError]
) -> None:
    store.commit([Create("/a", b"old"), Create("/a/b"), Create("/e", b"", True)])
    before = store.tree("")
    with pytest.raises(refusal):
        store.commit([Set("/a", b"new"), Delete("/e"), Create("/e", b"", True), Put("/n/m", b""), operation])
    assert store.tree("") == before


def test_operations_of_one_commit_see_those_before_them(store: OpenStore) -> None:
    store.commit([Create("/a"), Create("/a/b"), Set("/a", b"1", 0), Check("/a", 1), Delete("/a/b", 0), Delete("/a", 1)])
    assert store.tree("") == {}


def test_what_is_put_is_made_with_all_above_it_or_changed(store: OpenStore) -> None:
    store.commit([Put("/a/b/c", b"1"), Put("/a/b/d", b"2")])
    assert {path: (node.data, node.version) for path, node in store.tree("").items()} == {
        "/a": (b"", 0),
        "/a/b": (b"", 0),
        "/a/b/c": (b"1", 0),
        "/a/b/d": (b"2", 0),
    }
    store.commit([Put("/a/b/c", b"3")])
    assert store.get("/a/b/c")[:2] == (b"3", 1)


@pytest.mark.parametrize("wrong", ["", "/", "a", "/a/", "/a//b", "/a\0"])
def test_what_is_no_path_is_refused(store: OpenStore, wrong: str) -> None:
    for operation in (Create(wrong), Put(wrong, b""), Delete(wrong)):
        with pytest.raises(StoreUnusable, match="not the path"):
            store.commit([operation])


@pytest.mark.parametrize("operation", [Create("/ä", b"12"), Set("/ä", b"12"), Put("/ä/b", b"12"), Check("/ä", 0)])
def test_the_size_of_an_operation_counts_its_path_and_its_data(operation: Operation) -> None:
    size = size_of(operation)
    assert size > len(operation.path.encode())
    if not isinstance(operation, Check | Delete):
        assert size_of(operation._replace(data=bytes(100))) == size + 98


def test_what_was_committed_is_there_for_the_next_and_for_others(store: OpenStore, home: Home) -> None:
    store.commit([Create("/a", b"1")])
    other = home.open()
    assert other.get("/a").data == b"1"
    other.commit([Set("/a", b"2", 0)])
    with pytest.raises(VersionChanged):
        store.commit([Set("/a", b"3", 0)])
    assert store.get("/a").data == b"2"


def test_answers_come_in_the_order_of_the_questions(store: OpenStore, home: Home) -> None:
    told: list[str] = []
    store.store.commit([Create("/a")], lambda failure: told.append(f"commit {failure}"))
    store.store.get("/a", lambda node: told.append(f"get {type(node).__name__}"))
    store.store.commit([Create("/a")], lambda failure: told.append(f"commit {type(failure).__name__}"))
    store.store.tree("", lambda _nodes: told.append("tree"))
    assert told == []
    home.loop.run_until(lambda: len(told) == 4)
    assert told == ["commit None", "get Node", "commit NodeExists", "tree"]


def test_closing_waits_for_what_is_under_way(store: OpenStore, home: Home) -> None:
    store.store.commit((Create(f"/{number}") for number in range(1000)), lambda _failure: None)
    store.close()
    assert len(home.open().children("")) == 1000


# Sessions


@pytest.mark.parametrize("is_killed", [False, True])
def test_ephemeral_nodes_live_as_long_as_their_store(store: OpenStore, home: Home, is_killed: bool) -> None:
    other = home.open()
    other.commit([Create("/lasting"), Create("/passing", b"", True)])
    other.commit([Create("/second", b"", True)])
    assert store.get("/passing").is_ephemeral
    assert not store.get("/lasting").is_ephemeral
    store.look()
    assert store.children("") == ["lasting", "passing", "second"]
    if is_killed and not isinstance(other.store, LocalStore):
        pytest.skip("ZooKeeper waits for the session to run out")
    other.end(other.store.abandon if is_killed else other.store.close)
    store.look()
    assert store.children("") == ["lasting"]


def test_an_ephemeral_node_of_a_failed_first_commit_is_forgotten_and_the_next_one_works(
    store: OpenStore, home: Home
) -> None:
    with pytest.raises(NodeMissing):
        store.commit([Create("/e", b"", True), Delete("/x")])
    store.commit([Create("/e", b"", True)])
    assert home.open().children("") == ["e"]


# Watches


def test_a_watch_is_told_of_its_node_and_of_the_row_of_its_children(store: OpenStore, home: Home) -> None:
    told: list[str] = []
    watch = store.store.watch("/a", told.append)
    changes: list[list[Operation]] = [
        [Create("/a")],
        [Create("/a/b")],
        [Set("/a", b"1"), Check("/a", 1), Create("/a/d")],
        [Delete("/a/d")],
        [Set("/a", b"2"), Set("/a", b"3")],
    ]
    for operations in changes:
        store.settle()
        told.clear()
        store.commit(operations)
        home.wait_until(lambda: bool(told))
        assert set(told) == {"/a"}
    store.settle()
    told.clear()
    store.commit([Set("/a/b", b"1"), Create("/a/b/c")])
    with pytest.raises(NodeMissing):
        store.commit([Set("/a", b"2"), Delete("/x")])
    store.settle()
    assert told == [] or not isinstance(store.store, LocalStore)  # ZooKeeper may tell of one change twice
    watch.cancel()
    watch.cancel()
    told.clear()
    store.commit([Delete("/a/b/c"), Set("/a", b"2", ANY_VERSION)])
    store.settle()
    assert told == []


def test_a_watch_sees_what_was_committed_and_may_commit_more(store: OpenStore, home: Home) -> None:
    done: list[StoreError | None] = []
    store.store.watch("/a", lambda _path: store.store.commit([Create("/b")], done.append))
    store.commit([Create("/a", b"1")])
    home.wait_until(lambda: bool(done))
    assert store.children("") == ["a", "b"]


def test_a_watch_is_told_of_what_others_did_and_of_their_end(store: OpenStore, home: Home) -> None:
    told: list[str] = []
    store.store.watch("", told.append)
    store.settle()
    told.clear()
    other = home.open()
    other.commit([Create("/alive", b"", True)])
    store.look()
    home.wait_until(lambda: bool(told))
    store.settle()
    told.clear()
    other.close()
    store.look()
    home.wait_until(lambda: bool(told))
    store.settle()
    assert told == [""] or not isinstance(store.store, LocalStore)


def test_who_keeps_looking_is_told_of_what_others_do(home: Home) -> None:
    store, other = home.open(), home.open()
    if not isinstance(store.store, LocalStore):
        pytest.skip("it is told without looking")
    store.store.keep_looking(0.01, home.loop.call_later)
    told: list[str] = []
    store.store.watch("", told.append)
    assert store.children("") == []
    other.commit([Create("/a")])
    home.loop.run_until(lambda: bool(told))
    other.commit([Create("/b", b"", True)])
    other.end(other.store.abandon)
    while store.children("") != ["a"]:
        home.loop.run_once()


# Sessions that are lost


def test_a_watch_of_the_session_is_told_before_the_answers_of_the_next(home: Home) -> None:
    lasting, passing = home.open(), home.open(has_short_session=True)
    told: list[str] = []
    watch = passing.store.watch_session(lambda: told.append("lost"))
    passing.store.watch("/a", told.append)
    lasting.commit([Create("/a")])
    passing.commit([Create("/e", b"", True)])
    passing.settle()
    told.clear()
    home.expire(passing, lasting, "/e")
    assert lasting.children("") == ["a"]
    while "commit None" not in told:  # what was under way when the session ended may have been done or not
        answers: list[str] = []
        passing.store.commit([Create("/e", b"", True)], lambda failure: answers.append(f"commit {failure}"))  # noqa: B023
        home.wait_until(lambda: bool(answers))  # noqa: B023
        told += answers
    assert told[0] == "lost"
    home.wait_until(lambda: "/a" in told)
    assert lasting.get("/e").is_ephemeral
    watch.cancel()
    watch.cancel()
    home.expire(passing, lasting, "/e")
    passing.settle()
    assert told.count("lost") == 1


# What cannot be used


def test_a_store_that_cannot_be_opened_tells_everybody_and_is_tried_again() -> None:
    def refuse() -> LocalNodes:
        raise StoreUnusable("no")

    loop = Loop()
    store = LocalStore(refuse, loop.make_worker("store"))
    told: list[object] = []
    store.get("/a", told.append)
    store.commit([Create("/a")], told.append)
    loop.run_until(lambda: len(told) == 2)
    assert [type(each) for each in told] == [StoreUnusable] * 2
    store.close()
    loop.close()
