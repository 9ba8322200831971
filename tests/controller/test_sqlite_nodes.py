"""Nodes in a file: sessions of processes, new and strange files, full disks. test_stores.py has the rest."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.controller.reserve import CHUNK_BYTES, CHUNKS, Reserve
from ottla.controller.sqlite_nodes import SqliteNodes
from ottla.controller.store import (
    Create,
    Delete,
    NodeMissing,
    Set,
    StoreUnusable,
    VersionChanged,
)
from tests.controller.other_process import OtherProcess


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.sqlite")


@pytest.fixture
def store(path: str) -> Iterator[SqliteNodes]:
    store = SqliteNodes(path)
    yield store
    store.close()


# Sessions


def test_a_session_that_ends_leaves_no_lock(store: SqliteNodes, path: str, tmp_path: Path) -> None:
    other = SqliteNodes(path)
    other.commit([Create("/passing", b"", True)])
    store.look()
    assert store.children("") == ["passing"]
    other.close()
    assert store.children("") == []
    assert not list(tmp_path.glob("*session*"))


def test_a_folder_with_the_earlier_name_of_a_lock_stays(store: SqliteNodes, path: str) -> None:
    other = SqliteNodes(path)
    other.commit([Create("/passing", b"", True)])
    folder = Path(f"{path}-session-1")
    folder.mkdir()
    other.abandon()
    store.look()
    assert store.children("") == []
    assert folder.is_dir()


KILLED = """
import os, signal, sys
from ottla.controller.sqlite_nodes import SqliteNodes
from ottla.controller.store import Create, Set
store = SqliteNodes(sys.argv[1])
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
    store = SqliteNodes(path)
    count = int(store.get("/count").data)
    assert count in (acknowledged[-1], acknowledged[-1] + 1)
    assert store.get("/count").version == count
    assert set(store.children("")) == {"count", *map(str, range(1, count + 1))}
    store.close()


def test_a_process_that_dies_is_noticed_by_those_who_are_open(path: str, store: SqliteNodes) -> None:
    with subprocess.Popen((sys.executable, "-c", KILLED, path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        store.look()
        assert store.get("/alive").is_ephemeral
        process.kill()
    changed = store.look()
    assert changed is None or "/alive" in changed
    with pytest.raises(NodeMissing):
        store.get("/alive")
    assert store.look() == {}


def test_a_process_that_is_stopped_for_too_long_loses_its_session_and_learns_of_it(path: str) -> None:
    store = SqliteNodes(path, survives_power_loss=False)
    other = OtherProcess(path, session_timeout_seconds=0.3)
    other.commit([Create("/alive", b"", True)])
    other.process.send_signal(signal.SIGSTOP)
    while store.children(""):
        store.look()
    other.process.send_signal(signal.SIGCONT)
    assert other.lost_sessions == 0
    other.look()
    assert other.lost_sessions == 1
    other.commit([Create("/alive", b"", True)])
    assert store.children("") == ["alive"]
    for each in (other, store):
        each.close()


def test_who_looks_in_time_keeps_its_session(path: str) -> None:
    store = SqliteNodes(path, survives_power_loss=False)
    other = SqliteNodes(path, survives_power_loss=False, session_timeout_seconds=60)
    other.commit([Create("/alive", b"", True)])
    lock = Path(f"{path}-session-1.lock")
    before = lock.read_bytes()
    other.look()
    assert lock.read_bytes() > before
    store.look()
    assert store.children("") == ["alive"]
    assert other.lost_sessions == 0
    for each in (other, store):
        each.close()


def test_two_processes_that_commit_at_once_make_one_change_after_the_other(path: str) -> None:
    count = 30
    store = SqliteNodes(path, survives_power_loss=False)
    store.commit([Create("/count", b"0")])
    others = [OtherProcess(path) for _ in range(2)]

    def add(nodes: SqliteNodes) -> None:
        for _ in range(count):
            while True:
                data, version, _, _ = nodes.get("/count")
                try:
                    nodes.commit([Set("/count", b"%d" % (int(data) + 1), version)])
                except VersionChanged:
                    continue
                break

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(add, others))
    assert store.get("/count")[:2] == (b"%d" % (2 * count), 2 * count)
    for other in others:
        other.close()
    store.close()


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
    SqliteNodes(path).close()
    assert calls == [f"store.sqlite-new-{os.getpid()}.tmp", "link", Path(path).parent.name]
    assert _names_in(Path(path).parent) == ["store.sqlite"]


def _names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.endswith("-reserve"))


def test_a_file_system_without_links(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_paths: str) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    store = SqliteNodes(path)
    store.commit([Create("/a", b"1")])
    store.close()
    assert _names_in(Path(path).parent) == ["store.sqlite"]
    store = SqliteNodes(path)
    assert store.get("/a").data == b"1"
    store.close()


def test_another_process_that_makes_it_at_the_same_time_is_not_overwritten(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[SqliteNodes] = []
    link = os.link

    def be_slower(*paths: str) -> None:
        monkeypatch.setattr(os, "link", link)
        others.append(SqliteNodes(path))
        others[0].commit([Create("/a", b"1")])
        link(*paths)

    monkeypatch.setattr(os, "link", be_slower)
    store = SqliteNodes(path)
    assert store.get("/a").data == b"1"
    for each in (store, *others):
        each.close()


@pytest.mark.parametrize(
    "left", ["store.sqlite-wal", "store.sqlite-new-{number}.tmp", "store.sqlite-new-{number}.tmp-wal"]
)
def test_what_is_left_of_another_does_not_get_into_a_new_one(path: str, left: str, tmp_path: Path) -> None:
    store = SqliteNodes(str(tmp_path / "other.sqlite"))
    store.commit([Create("/a", b"1")])
    wal = (tmp_path / "other.sqlite-wal").read_bytes()
    store.close()
    (tmp_path / left.format(number=os.getpid())).write_bytes(wal)
    store = SqliteNodes(path)
    assert store.tree("") == {}
    store.close()
    assert _names_in(tmp_path) == ["other.sqlite", "store.sqlite"]


# What cannot be used


def test_a_file_of_a_later_format_is_left_alone(path: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreUnusable, match="format 99"):
        SqliteNodes(path)


def test_a_file_that_is_no_store_is_told(path: str) -> None:
    Path(path).write_bytes(os.urandom(8192))
    with pytest.raises(StoreUnusable, match="not a database"):
        SqliteNodes(path)


# A full disk


class Room:
    """A reserve that lets the store grow when it is released."""

    def __init__(self, store: SqliteNodes, chunks: int) -> None:
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
    store = SqliteNodes(path)
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
    store = SqliteNodes(path)
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


def test_who_is_alone_maps_no_file(path: str) -> None:
    """A page of it that has no block yet ends the process on a full disk, and no error tells why."""
    store = SqliteNodes(path, is_alone=True)
    store.commit([Create("/a", b"1")])
    assert not Path(f"{path}-shm").exists()
    store.close()
    shared = SqliteNodes(path)
    assert shared.get("/a").data == b"1"
    assert Path(f"{path}-shm").exists()
    shared.close()
