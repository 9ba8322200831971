"""What a log lacks since bytes of it have rotted. Marks in its folder keep that, whatever happens to the broker.

A replica with a hole ends where the others do, and would be taken for one that has everything: its mark stays until
other replicas have given what is missing. One that had to be cut looks whole at the next start: its mark stays until
the cluster knows.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from ottla.log.files import Files

MARK = "rotten-records"
END_MARK = "lost-end"


class Hole(NamedTuple):
    first_offset: int  # the first that may be missing
    end_offset: int  # behind the last


def mark(files: Files, folder: str, hole: Hole) -> None:
    files.replace(f"{folder}/{MARK}", f"{hole.first_offset} {hole.end_offset}\n".encode(), durable=True)


def read_mark(files: Files, folder: str, end_offset: int) -> Hole:
    """One that cannot be read may stand for anything up to where the log ends."""
    with suppress(ValueError):
        first_offset, behind = files.read_all(f"{folder}/{MARK}").split()
        return Hole(int(first_offset), int(behind))
    return Hole(0, end_offset)


def remove_mark(files: Files, folder: str) -> None:
    """The folder is to be synced then."""
    files.remove(f"{folder}/{MARK}")


def mark_end(files: Files, folder: str) -> None:
    """More is about to be cut off the log than a write that a crash ended."""
    files.replace(f"{folder}/{END_MARK}", b"", durable=True)


def remove_end_mark(files: Files, folder: str) -> None:
    files.remove(f"{folder}/{END_MARK}")
