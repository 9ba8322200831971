"""Leader epochs: where each began, what a replica is told that asks, what a truncation forgets."""

import pytest

from ottla.log.checkpoint import LEADER_EPOCHS
from ottla.log.epochs import LeaderEpochs
from ottla.log.impossible_epochs import mend_epochs
from ottla.testing.files import Effect, SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY
from tests.log.writing import append, new_log

KNOWN = [(2, 0), (5, 40), (6, 70)]


def epochs(entries: list[tuple[int, int]], files: SimulatedFiles | None = None) -> LeaderEpochs:
    made = LeaderEpochs(files or SimulatedFiles(), "")
    for epoch, start_offset in entries:
        made.assign(epoch, start_offset)
    return made


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (6, (6, 100)),  # the latest: the end of the log
        (7, (-1, -1)),  # not known here
        (0, (0, 0)),  # before the first known: up to where that began
        (1, (1, 0)),
        (2, (2, 40)),
        (3, (2, 40)),  # between two: the largest up to it
        (4, (2, 40)),
        (5, (5, 70)),
    ],
)
def test_the_end_of_an_epoch(asked: int, answer: tuple[int, int]) -> None:
    assert epochs(KNOWN).end_offset_for(asked, 100) == answer


@pytest.mark.parametrize("asked", [-1, 0, 1])
def test_without_epochs_nothing_is_known(asked: int) -> None:
    assert epochs([]).end_offset_for(asked, 100) == (-1, -1)
    assert epochs([]).latest == -1


@pytest.mark.parametrize(("offset", "epoch"), [(0, 2), (39, 2), (40, 5), (69, 5), (70, 6), (1000, 6)])
def test_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert epochs(KNOWN).epoch_at(offset) == epoch
    assert epochs([(2, 10)]).epoch_at(9) == -1


@pytest.mark.parametrize(
    ("added", "left"),
    [
        ((6, 80), KNOWN),  # it goes on
        ((7, 80), [*KNOWN, (7, 80)]),
        ((7, 70), [(2, 0), (5, 40), (7, 70)]),  # the one before wrote nothing
        ((7, 40), [(2, 0), (7, 40)]),
        ((5, 90), [(2, 0), (5, 90)]),  # a leader that is older than what is here: its word counts
    ],
)
def test_a_new_epoch_replaces_what_contradicts_it(added: tuple[int, int], left: list[tuple[int, int]]) -> None:
    known = epochs(KNOWN)
    known.assign(*added)
    assert known.entries == left


@pytest.mark.parametrize(("end", "left"), [(100, KNOWN), (71, KNOWN), (70, KNOWN[:2]), (41, KNOWN[:2]), (0, [])])
def test_truncation_from_the_end(end: int, left: list[tuple[int, int]]) -> None:
    known = epochs(KNOWN)
    known.truncate_from_end(end)
    assert known.entries == left


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, KNOWN),
        (10, [(2, 10), (5, 40), (6, 70)]),
        (40, [(5, 40), (6, 70)]),
        (50, [(5, 50), (6, 70)]),
        (70, [(6, 70)]),
        (99, [(6, 99)]),
    ],
)
def test_truncation_from_the_start(start: int, left: list[tuple[int, int]]) -> None:
    known = epochs(KNOWN)
    known.truncate_from_start(start)
    assert known.entries == left


def test_there_is_no_file_before_it_is_asked_for() -> None:
    files = SimulatedFiles()
    known = epochs(KNOWN, files)
    known.truncate_from_end(50)
    assert files.operation_count == 0
    known.save()
    loaded = LeaderEpochs.load(files, "")
    assert loaded is not None
    assert loaded.entries == known.entries == KNOWN[:2]


def test_the_file_follows_every_change() -> None:
    files = SimulatedFiles()
    known = epochs(KNOWN, files)
    known.save()
    changes = [
        lambda: known.assign(9, 90),
        lambda: known.truncate_from_end(80),
        lambda: known.truncate_from_start(50),
        known.clear,
    ]
    for change in changes:
        known.unsynced = False
        change()
        assert known.unsynced
        loaded = LeaderEpochs.load(files, "")
        assert loaded is not None
        assert loaded.entries == known.entries
    assert known.entries == []


def test_what_could_not_be_written_is_not_known() -> None:
    """Else the file would lack an epoch that nobody writes again."""
    files = SimulatedFiles()
    known = epochs(KNOWN, files)
    known.save()
    files.arm(files.operation_count + 2, Effect.FAIL)
    with pytest.raises(OSError, match="Input/output"):
        known.assign(9, 90)
    assert known.entries == KNOWN
    known.assign(9, 95)
    loaded = LeaderEpochs.load(files, "")
    assert loaded is not None
    assert loaded.entries == [*KNOWN, (9, 95)]


@pytest.mark.parametrize("data", [None, b"", b"1\n0\n", b"0\n2\n1 5\n", b"0\n1\nx y\n", b"\xff\xfe", b"\0" * 20])
def test_a_file_that_cannot_be_read_is_none(data: bytes | None) -> None:
    files = SimulatedFiles()
    if data is not None:
        files.replace(LEADER_EPOCHS, data)
    assert LeaderEpochs.load(files, "") is None


def test_epochs_that_never_were_are_taken_back() -> None:
    files = SimulatedFiles()
    files.make_folder("data")
    files.sync_folder("")
    log = new_log(files)
    append(log, epoch=1)
    append(log, epoch=2)
    log.epochs.save()
    sound = log.active.file.read(0, log.active.size_bytes)
    append(log, epoch=9)
    append(log, epoch=9)
    log.flush(0)
    assert mend_epochs(log, 3) == 2
    assert log.epochs.entries == [(1, 0), (2, 1)]
    assert [header.leader_epoch for _, header in log.active.batches()] == [1, 2, 2, 2]
    assert log.active.file.read(0, len(sound)) == sound
    append(log, epoch=3)
    files.crash(SYNCED_ONLY)
    opened = new_log(files, recovery_point=4)
    assert opened.epochs.entries == [(1, 0), (2, 1)]
    assert opened.end_offset == 4
    assert append(opened, epoch=3).base_offset == 4


def test_only_the_first_epochs_that_never_were_leave_the_first_that_there_is() -> None:
    log = new_log(SimulatedFiles())
    append(log, epoch=9)
    assert mend_epochs(log, 3) == 0
    assert log.epochs.entries == [(0, 0)]
    assert append(log, epoch=3).base_offset == 1
