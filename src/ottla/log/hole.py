"""What a log lacks since bytes of it have rotted. A mark in its folder keeps that until other replicas have given it.

A replica with a hole ends where the others do, and would be taken for one that has everything.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from ottla.log.files import Files

MARK = "rotten-records"


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
