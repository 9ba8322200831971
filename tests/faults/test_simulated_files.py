"""The twin behaves as a disk does, and forgets as a disk may."""

import errno
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.files import NO_FILE, DiskFiles, Files
from ottla.testing.files import Crashed, Effect, SimulatedFiles
from ottla.testing.loss import ALL_KEPT, SYNCED_ONLY, Loss, RandomLoss

NAMES = st.sampled_from(["a", "b", "b.tmp", "inner/c"])
DATA = st.binary(max_size=20)
POSITIONS = st.integers(0, 30)
STEPS = st.one_of(
    st.tuples(st.just("append"), NAMES, DATA),
    st.tuples(st.just("truncate"), NAMES, POSITIONS),
    st.tuples(st.just("write_at"), NAMES, POSITIONS, DATA),
    st.tuples(st.just("replace"), NAMES, DATA, st.booleans()),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("remove_tree"), st.just("inner")),
    st.tuples(st.just("make_folder"), st.just("inner")),
    st.tuples(st.just("sync_path"), NAMES),
)


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def take_step(files: Files, root: str, kind: str, name: str, *rest: object) -> object:
    path = f"{root}/{name}"
    if kind == "append":
        file = files.open(path)
        file.append(rest[0])  # type: ignore[arg-type]
        return file.size_bytes, file.read(3, 10)
    if kind == "truncate":
        file = files.open(path)
        file.truncate(rest[0])  # type: ignore[arg-type]
        file.sync()
        return file.size_bytes, file.read_into(2, memoryview(bytearray(5)))
    if kind == "replace":
        return files.replace(path, rest[0], durable=rest[1])  # type: ignore[func-returns-value,arg-type]
    if kind == "rename":
        if folder_of(name) != folder_of(str(rest[0])):
            return None
        return files.rename(path, f"{root}/{rest[0]}")  # type: ignore[func-returns-value]
    return getattr(files, kind)(path, *rest)


def outcome(files: Files, root: str, step: tuple[object, ...]) -> object:
    try:
        return take_step(files, root, *step)  # type: ignore[arg-type]
    except OSError as error:
        return error.errno


def contents(files: Files, root: str) -> dict[str, bytes | None]:
    """Every file by name, read in each way there is; None for what is no file."""
    found: dict[str, bytes | None] = {}
    for folder in ("", "inner"):
        path = f"{root}/{folder}"
        if not files.exists(path):
            continue
        for name, size in files.sizes(path).items():
            if size == NO_FILE:
                found[f"{folder}/{name}"] = None
                continue
            data = files.read_all(f"{path}/{name}")
            assert files.read_at(f"{path}/{name}", 0, len(data) + 1) == data
            assert size == len(data)
            found[f"{folder}/{name}"] = data
    return found


@settings(max_examples=150)
@given(steps=st.lists(STEPS, max_size=12))
def test_same_results_as_on_a_disk(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]) -> None:
    disk, simulated = DiskFiles(), SimulatedFiles()
    root = str(tmp_path_factory.mktemp("disk"))
    for files in (disk, simulated):
        files.make_folder(f"{root}/inner")
    for step in steps:
        assert outcome(simulated, root, step) == outcome(disk, root, step), step
        assert contents(simulated, root) == contents(disk, root)


def test_one_process_holds_a_lock_until_it_ends_or_lets_go(tmp_path: Path) -> None:
    for files in (DiskFiles(), SimulatedFiles()):
        files.make_folder(str(tmp_path))
        path = f"{tmp_path}/.lock"
        lock = files.lock(path)
        with pytest.raises(BlockingIOError):
            files.lock(path)
        lock.release()
        files.lock(path).release()
    simulated = SimulatedFiles()
    simulated.lock("lock")
    simulated.kill()
    simulated.lock("lock")


# What survives


def written_files() -> SimulatedFiles:
    """A synced start in "f", and then unsynced writes, a new file, a rename and a removal."""
    files = SimulatedFiles()
    file = files.open("f")
    file.append(b"synced")
    file.sync()
    files.open("gone").append(b"g")
    files.sync_folder("")
    file.append(b"volatile")
    files.open("new").append(b"n")
    files.rename("f", "renamed")
    files.remove("gone")
    return files


def test_nothing_unsynced_survives_the_worst_loss() -> None:
    files = written_files()
    files.crash(SYNCED_ONLY)
    assert files.sizes("") == {"f": 6, "gone": 0}
    assert files.read_all("f") == b"synced"


def test_a_kill_keeps_the_page_cache_and_syncs_nothing() -> None:
    files = written_files()
    files.kill()
    assert files.read_all("renamed") == b"syncedvolatile"
    assert files.sizes("") == {"new": 1, "renamed": 14}
    files.crash(SYNCED_ONLY)
    assert files.sizes("") == {"f": 6, "gone": 0}


def test_everything_may_survive() -> None:
    files = written_files()
    files.crash(ALL_KEPT)
    files.crash(SYNCED_ONLY)
    assert files.sizes("") == {"new": 1, "renamed": 14}


def test_contents_and_names_are_synced_apart() -> None:
    files = SimulatedFiles()
    file = files.open("named")
    files.sync_folder("")
    file.append(b"lost")
    other = files.open("unnamed")
    other.append(b"synced")
    other.sync()
    files.crash(SYNCED_ONLY)
    assert files.sizes("") == {"named": 0}


def test_changes_of_names_keep_their_order() -> None:
    seen = set()
    for seed in range(60):
        files = SimulatedFiles()
        for name in "abc":
            files.open(name)
        files.rename("c", "d")
        files.crash(RandomLoss(Random(seed)))
        seen.add(tuple(files.sizes("")))
    assert seen == {(), ("a",), ("a", "b"), ("a", "b", "c"), ("a", "b", "d")}


def test_writes_survive_whole_in_part_or_as_holes() -> None:
    written = bytes(range(1, 201)) * 10
    seen = set()
    for seed in range(60):
        files = SimulatedFiles()
        files.open("f").append(written)
        files.sync_folder("")
        files.crash(RandomLoss(Random(seed)))
        left = files.read_all("f")
        assert all(byte in (0, written[at]) for at, byte in enumerate(left))
        whole = "whole" if left == written else "none" if not left else None
        seen.add(whole or ("hole" if 0 in left else "cut"))
    assert seen == {"whole", "none", "hole", "cut"}


def test_later_writes_may_survive_earlier_ones() -> None:
    class Odd:
        def __init__(self) -> None:
            self.count = 0

        def names_kept(self, count: int) -> int:
            return count

        def truncation_kept(self) -> bool:
            return True

        def pieces_kept(self, size_bytes: int) -> list[tuple[int, int]]:
            self.count += 1
            return [(0, size_bytes)] if self.count % 2 == 0 else []

    files = SimulatedFiles()
    file = files.open("f")
    file.append(b"lost")
    file.append(b"kept")
    loss: Loss = Odd()
    files.crash(loss)
    assert files.read_all("f") == b"\0\0\0\0kept"


def test_a_folder_is_a_name_too() -> None:
    files = SimulatedFiles()
    files.make_folder("data/inner")
    files.open("data/inner/f")
    files.sync_folder("data/inner")
    files.crash(SYNCED_ONLY)
    assert not files.exists("data")
    files.make_folder("data/inner")
    files.sync_folder("")
    files.sync_folder("data")
    files.crash(SYNCED_ONLY)
    assert files.sizes("data/inner") == {}


# Faults


def test_open_files_are_dead_in_the_next_life() -> None:
    files = SimulatedFiles()
    file = files.open("f")
    file.append(b"x")
    files.kill()
    for operation in (lambda: file.append(b"y"), lambda: file.read(0, 1), file.sync, lambda: file.truncate(0)):
        with pytest.raises(Crashed):
            operation()
    assert files.open("f").read(0, 9) == b"x"


def test_an_operation_fails_and_nothing_was_done() -> None:
    files = SimulatedFiles()
    file = files.open("f")
    file.append(b"one")
    files.arm(files.operation_count + 1, Effect.FAIL, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.append(b"two")
    assert file.size_bytes == 3
    file.append(b"three")
    assert files.read_all("f") == b"onethree"


def test_a_torn_append_is_taken_back_and_may_be_found_after_a_crash() -> None:
    files = SimulatedFiles()
    file = files.open("f")
    files.sync_folder("")
    files.arm(files.operation_count + 1, Effect.TEAR, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.append(b"abcd")
    assert files.read_all("f") == b""
    found = set()
    for seed in range(30):
        other = SimulatedFiles()
        again = other.open("f")
        other.sync_folder("")
        other.arm(other.operation_count + 1, Effect.TEAR, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            again.append(b"abcd")
        other.crash(RandomLoss(Random(seed)))
        found.add(other.read_all("f"))
    assert b"ab" in found
    assert b"" in found


@pytest.mark.parametrize(("effect", "left"), [(Effect.CRASH, b""), (Effect.TEAR_AND_CRASH, b"ab")])
def test_the_machine_stops_at_an_operation(effect: Effect, left: bytes) -> None:
    files = SimulatedFiles()
    file = files.open("f")
    files.arm(2, effect)
    with pytest.raises(Crashed):
        file.append(b"abcd")
    for operation in (lambda: files.open("f"), lambda: file.append(b"x"), lambda: files.sizes("")):
        with pytest.raises(Crashed):
            operation()
    files.kill()
    assert files.read_all("f") == left


def test_every_step_of_a_replacement_counts() -> None:
    files = SimulatedFiles()
    files.replace("f", b"old")
    assert [operation.kind for operation in files.trace] == ["create", "write", "sync", "rename", "sync folder"]
    for number in range(6, 11):
        for effect in (Effect.CRASH, Effect.TEAR_AND_CRASH):
            again = SimulatedFiles()
            again.replace("f", b"old")
            again.arm(number, effect)
            with pytest.raises(Crashed):
                again.replace("f", b"new!")
            again.crash(RandomLoss(Random(number)))
            assert again.read_all("f") in (b"old", b"new!")


@pytest.mark.parametrize("keeps", [False, True])
def test_pages_of_a_failed_sync_are_read_and_then_gone(keeps: bool) -> None:
    files = SimulatedFiles(keeps_failed_pages=keeps)
    file = files.open("f")
    files.sync_folder("")
    file.append(b"data")
    files.arm(files.operation_count + 1, Effect.FAIL)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert file.read(0, 9) == b"data"
    file.sync()
    files.crash(SYNCED_ONLY)
    assert files.read_all("f") == (b"data" if keeps else b"")


def test_a_full_disk_takes_what_fits_and_gives_it_back() -> None:
    files = SimulatedFiles(capacity_bytes=10)
    file = files.open("f")
    file.append(b"12345678")
    with pytest.raises(OSError, match="No space"):
        file.append(b"abcd")
    assert files.read_all("f") == b"12345678"
    with pytest.raises(OSError, match="No space"):
        files.write_at("other", 0, b"abcd")
    assert files.read_all("other") == b"ab"
    files.remove("other")
    file.append(b"ab")
    files.capacity_bytes = None
    file.append(b"more")


def test_a_flipped_bit_stays_flipped() -> None:
    files = SimulatedFiles()
    file = files.open("f")
    files.sync_folder("")
    file.append(b"\0")
    file.sync()
    file.append(b"\0")
    files.flip_bit("f", 0, 3)
    files.flip_bit("f", 1, 0)
    assert file.read(0, 2) == b"\x08\x01"
    file.sync()
    files.crash(SYNCED_ONLY)
    assert files.read_all("f") == b"\x08\x01"


def test_the_trace_is_readable() -> None:
    files = SimulatedFiles()
    files.open("f").append(b"123")
    files.arm(3, Effect.FAIL)
    with pytest.raises(OSError, match="Input/output"):
        files.rename("f", "g")
    assert [str(operation) for operation in files.trace] == [
        "1 create f",
        "2 write f, 3 bytes at 0",
        "3 rename f, to g: fails",
    ]
