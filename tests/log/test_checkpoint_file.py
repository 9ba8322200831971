"""Checkpoints as files: what is written when, and by whom."""

import pytest

from ottla.log.checkpoint import CorruptCheckpoint
from ottla.log.checkpoint_file import CheckpointFile
from ottla.testing.files import Effect, SimulatedFiles

OFFSETS = {("a", 0): 1}


def test_a_missing_file_says_nothing() -> None:
    files = SimulatedFiles()
    file = CheckpointFile(files, "checkpoint")
    assert file.read() == {}
    file.writing({})()
    assert not files.exists("checkpoint")
    file.writing(OFFSETS)()
    assert CheckpointFile(files, "checkpoint").read() == OFFSETS


def test_what_the_file_says_already_is_not_written() -> None:
    files = SimulatedFiles()
    CheckpointFile(files, "checkpoint").writing(OFFSETS)()
    file = CheckpointFile(files, "checkpoint")
    file.read()
    before = files.operation_count
    file.writing(OFFSETS)()
    assert files.operation_count == before
    file.writing({})()
    assert CheckpointFile(files, "checkpoint").read() == {}


def test_what_is_late_does_not_undo_what_came_after_it() -> None:
    files = SimulatedFiles()
    file = CheckpointFile(files, "checkpoint")
    late = file.writing({("a", 0): 100})
    file.writing({("a", 0): 50})()
    late()
    assert file.read() == {("a", 0): 50}


def test_what_failed_is_written_again() -> None:
    files = SimulatedFiles()
    file = CheckpointFile(files, "checkpoint")
    file.writing(OFFSETS)()
    files.arm(files.operation_count + 2, Effect.FAIL)
    with pytest.raises(OSError, match="Input/output"):
        file.writing({})()
    file.writing(OFFSETS)()
    assert CheckpointFile(files, "checkpoint").read() == OFFSETS


def test_what_failed_does_not_count_for_who_began_earlier() -> None:
    files = SimulatedFiles()
    file = CheckpointFile(files, "checkpoint")
    earlier, later = file.writing(OFFSETS), file.writing({("a", 0): 2})
    files.arm(files.operation_count + 1, Effect.FAIL)
    with pytest.raises(OSError, match="Input/output"):
        later()
    earlier()
    assert CheckpointFile(files, "checkpoint").read() == OFFSETS


def test_a_file_that_cannot_be_read_is_written_anew() -> None:
    files = SimulatedFiles()
    files.replace("checkpoint", b"nothing of use")
    file = CheckpointFile(files, "checkpoint")
    with pytest.raises(CorruptCheckpoint):
        file.read()
    file.writing({})()
    assert file.read() == {}
