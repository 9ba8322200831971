"""The store in a file: each operation, all-or-nothing, sessions, watches, and what a killed process leaves."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.controller.local_store import LocalStore
from ottla.controller.reserve import CHUNK_BYTES, CHUNKS, Reserve
from ottla.controller.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    NodeExists,
    NodeHasChildren,
    NodeMissing,
    Operation,
    Set,
    StoreError,
    StoreUnusable,
    VersionChanged,
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.sqlite")


@pytest.fixture
def store(path: str) -> Iterator[LocalStore]:
    store = LocalStore(path)
    yield store
    store.close()


def test_a_node_has_data_a_version_and_its_place_in_time(store: LocalStore) -> None:
    store.commit([Create("/a", b"1")])
    store.commit([Create("/b", b"2")])
    store.commit([Set("/a", b"3", 0)])
    assert store.get("/a")[:2] == (b"3", 1)
    assert store.get("/a").created_in < store.get("/b").created_in


def test_children_and_trees_are_in_order_and_of_this_node_alone(store: LocalStore) -> None:
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
    store: LocalStore, operation: Operation, refusal: type[StoreError]
) -> None:
    store.commit([Create("/a", b"old"), Create("/a/b"), Create("/e", b"", True)])
    before = store.tree("")
    with pytest.raises(refusal):
        store.commit([Set("/a", b"new"), Delete("/e"), Create("/e", b"", True), Create("/new"), operation])
    assert store.tree("") == before


def test_operations_of_one_commit_see_those_before_them(store: LocalStore) -> None:
    store.commit([Create("/a"), Create("/a/b"), Set("/a", b"1", 0), Check("/a", 1), Delete("/a/b", 0), Delete("/a", 1)])
    assert store.tree("") == {}


@pytest.mark.parametrize("wrong", ["", "/", "a", "/a/", "/a//b", "/a\0"])
def test_what_is_no_path_is_a_mistake(store: LocalStore, wrong: str) -> None:
    with pytest.raises(ValueError, match="not the path"):
        store.commit([Create(wrong)])


def test_what_was_committed_is_there_for_the_next_and_for_others(store: LocalStore, path: str) -> None:
    store.commit([Create("/a", b"1")])
    other = LocalStore(path)
    assert other.get("/a").data == b"1"
    other.commit([Set("/a", b"2", 0)])
    with pytest.raises(VersionChanged):
        store.commit([Set("/a", b"3", 0)])
    assert store.get("/a").data == b"2"
    other.close()


# Sessions


def test_ephemeral_nodes_live_as_long_as_their_store(store: LocalStore, path: str, tmp_path: Path) -> None:
    other = LocalStore(path)
    other.commit([Create("/lasting"), Create("/passing", b"", True)])
    other.commit([Create("/second", b"", True)])
    assert store.get("/passing").is_ephemeral
    assert not store.get("/lasting").is_ephemeral
    store.expire_sessions()
    assert store.children("") == ["lasting", "passing", "second"]
    other.close()
    assert store.children("") == ["lasting"]
    assert not list(tmp_path.glob("*session*"))


def test_an_ephemeral_node_of_a_failed_first_commit_is_forgotten_and_the_next_one_works(
    store: LocalStore, path: str
) -> None:
    with pytest.raises(NodeMissing):
        store.commit([Create("/e", b"", True), Delete("/x")])
    store.commit([Create("/e", b"", True)])
    other = LocalStore(path)
    assert other.children("") == ["e"]
    other.close()


KILLED = """
import os, signal, sys
from ottla.controller.local_store import LocalStore
from ottla.controller.store import Create, Set
store = LocalStore(sys.argv[1])
store.commit([Create("/count", b"0"), Create("/alive", b"", True)])
for count in range(1, 1_000_000):
    store.commit([Set("/count", b"%d" % count, count - 1), Create("/%d" % count)])
    sys.stdout.write("%d\\n" % count)
    sys.stdout.flush()
"""


def test_a_killed_process_loses_nothing_it_was_told_of_and_its_session(path: str) -> None:
    with subprocess.Popen((sys.executable, "-c", KILLED, path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(50)]
        process.kill()
        acknowledged += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    store = LocalStore(path)
    count = int(store.get("/count").data)
    assert count in (acknowledged[-1], acknowledged[-1] + 1)
    assert store.get("/count").version == count
    assert set(store.children("")) == {"count", *map(str, range(1, count + 1))}
    store.close()


def test_a_process_that_dies_is_noticed_by_those_who_are_open(path: str, store: LocalStore) -> None:
    told: list[str] = []
    store.watch("", told.append)
    with subprocess.Popen((sys.executable, "-c", KILLED, path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        store.expire_sessions()
        assert store.get("/alive").is_ephemeral
        process.kill()
    store.expire_sessions()
    with pytest.raises(NodeMissing):
        store.get("/alive")
    assert told == [""]


# Watches


def test_a_watch_is_told_of_its_node_and_of_the_row_of_its_children(store: LocalStore) -> None:
    told: list[str] = []
    watch = store.watch("/a", told.append)
    store.commit([Create("/a")])
    store.commit([Create("/a/b")])
    assert told == ["/a", "/a"]
    store.commit([Set("/a/b", b"1"), Create("/a/b/c")])
    assert told == ["/a", "/a"]
    store.commit([Set("/a", b"1"), Check("/a", 1), Create("/a/d")])
    assert told == ["/a"] * 3
    with pytest.raises(NodeMissing):
        store.commit([Set("/a", b"2"), Delete("/x")])
    watch.cancel()
    watch.cancel()
    store.commit([Delete("/a/d"), Set("/a", b"2", ANY_VERSION)])
    assert told == ["/a"] * 3


def test_a_watch_sees_what_was_committed_and_may_commit_more(store: LocalStore) -> None:
    store.watch("/a", lambda _: store.commit([Create("/b", store.get("/a").data)]))
    store.commit([Create("/a", b"1")])
    assert store.get("/b").data == b"1"


# A new file


def test_a_new_file_has_its_name_when_it_is_on_the_disk(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    link, sync = os.link, os.fsync

    def noted_link(old: str, new: str) -> None:
        calls.append("link")
        link(old, new)

    def noted_sync(descriptor: int) -> None:
        calls.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr(os, "link", noted_link)
    monkeypatch.setattr(os, "fsync", noted_sync)
    LocalStore(path).close()
    assert calls == [f"store.sqlite-new-{os.getpid()}", "link", Path(path).parent.name]
    assert _names_in(Path(path).parent) == ["store.sqlite"]


def _names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.endswith("-reserve"))


def test_a_file_system_without_links(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_paths: str) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    store = LocalStore(path)
    store.commit([Create("/a", b"1")])
    store.close()
    assert _names_in(Path(path).parent) == ["store.sqlite"]
    store = LocalStore(path)
    assert store.get("/a").data == b"1"
    store.close()


def test_another_process_that_makes_it_at_the_same_time_is_not_overwritten(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[LocalStore] = []
    link = os.link

    def be_slower(*paths: str) -> None:
        monkeypatch.setattr(os, "link", link)
        others.append(LocalStore(path))
        others[0].commit([Create("/a", b"1")])
        link(*paths)

    monkeypatch.setattr(os, "link", be_slower)
    store = LocalStore(path)
    assert store.get("/a").data == b"1"
    for each in (store, *others):
        each.close()


@pytest.mark.parametrize("left", ["store.sqlite-wal", "store.sqlite-new-{number}", "store.sqlite-new-{number}-wal"])
def test_what_is_left_of_another_does_not_get_into_a_new_one(path: str, left: str, tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "other.sqlite"))
    store.commit([Create("/a", b"1")])
    wal = (tmp_path / "other.sqlite-wal").read_bytes()
    store.close()
    (tmp_path / left.format(number=os.getpid())).write_bytes(wal)
    store = LocalStore(path)
    assert store.tree("") == {}
    store.close()
    assert _names_in(tmp_path) == ["other.sqlite", "store.sqlite"]


# What cannot be used


def test_a_file_of_a_later_format_is_left_alone(path: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreUnusable, match="format 99"):
        LocalStore(path)


def test_a_file_that_is_no_store_is_told(path: str) -> None:
    Path(path).write_bytes(os.urandom(8192))
    with pytest.raises(StoreUnusable, match="not a database"):
        LocalStore(path)


# A full disk


class Room:
    """A reserve that lets the store grow when it is released."""

    def __init__(self, store: LocalStore, chunks: int) -> None:
        self._database = store._database
        self.chunks = chunks
        self._limit(0)

    def _limit(self, more_pages: int) -> None:
        (count,) = self._database.execute("PRAGMA page_count").fetchone()
        self._database.execute(f"PRAGMA max_page_count = {count + more_pages}")

    def fill(self) -> None:
        pass

    def release(self) -> bool:
        if not self.chunks:
            return False
        self.chunks -= 1
        self._limit(100)
        return True


LARGE = bytes(100_000)


def test_on_a_full_disk_changes_are_refused_and_change_nothing(path: str) -> None:
    store = LocalStore(path)
    store.commit([Create("/a", b"1")])
    store._reserve = Room(store, chunks=1)  # type: ignore[assignment]
    with pytest.raises(StoreUnusable, match="full"):
        store.commit([Set("/a", b"2"), Create("/b", LARGE)])
    assert store.tree("") == {"/a": store.get("/a")}
    assert store.get("/a").data == b"1"
    store.commit([Delete("/a")])
    assert store.tree("") == {}
    store.close()


@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_what_is_vital_takes_as_much_of_the_reserve_as_it_needs(path: str, chunks: int) -> None:
    store = LocalStore(path)
    room = Room(store, chunks)
    store._reserve = room  # type: ignore[assignment]
    if chunks:
        store.commit([Create("/b", LARGE)], is_vital=True)
        assert room.chunks == chunks - 1
    else:
        with pytest.raises(StoreUnusable):
            store.commit([Create("/b", LARGE)], is_vital=True)
    store.close()


def test_a_reserve_is_taken_given_back_in_chunks_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    reserve = Reserve(str(path))
    assert not reserve.release()
    reserve.fill()
    assert path.stat().st_size == CHUNKS * CHUNK_BYTES
    assert Reserve(str(path)).release()
    assert path.stat().st_size == (CHUNKS - 1) * CHUNK_BYTES
    reserve.fill()
    assert [reserve.release() for _ in range(CHUNKS + 1)] == [True] * CHUNKS + [False]
    assert path.stat().st_size == 0
