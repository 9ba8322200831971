"""The slow part of bringing logs to the disk: what is to be synced, one log or many at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

from ottla.log.errors import OUT_OF_FILES, PASSING
from ottla.log.files import File, Files, failure_of, remove_all


@dataclasses.dataclass(slots=True)
class Flush:
    files: Files
    up_to_offset: int
    open_files: list[File]
    paths: list[str]  # of files that are not open. Recovery will not make the indexes of sealed segments again.
    folders: list[str]  # in which names were made, changed or removed since the last flush
    truncations: int  # of the log; a flush from before one says nothing about what came after
    # Files of the producers as of then, written in their order when all of that is on the disk.
    snapshot: dict[str, bytes] = dataclasses.field(default_factory=dict)

    def run(self) -> None:
        """Return when all of it is on the disk; OSError if that cannot be known."""
        for failure in run_together([self]).values():
            raise failure

    @property
    def file_syncs(self) -> list[Callable[[], None]]:
        return [*[file.sync for file in self.open_files], *[partial(self.files.sync_path, path) for path in self.paths]]

    def write_snapshot(self) -> None:
        """What it tells can be read from the batches, too: without room for it, all is on the disk the same."""
        try:
            for path, data in self.snapshot.items():
                self.files.replace(path, data, durable=False)
        except OSError as error:
            if error.errno not in PASSING:
                raise
            remove_all(self.files, self.snapshot)
            self.snapshot = {}


def run_together(flushes: Sequence[Flush]) -> dict[int, OSError]:
    """Run flushes of one file system at once; the errors of those that failed, by their number.

    A disk does many syncs in little more time than one, and a folder that several flushes name is synced once.
    """
    if not flushes:
        return {}
    files, errors = flushes[0].files, _Errors()
    for_files = [(number, sync) for number, flush in enumerate(flushes) for sync in flush.file_syncs]
    for place, error in files.run_together([sync for _, sync in for_files]).items():
        errors.add(for_files[place][0], error)
    named: dict[str, list[int]] = {}
    for number, flush in enumerate(flushes):
        for folder in flush.folders:
            named.setdefault(folder, []).append(number)
    for_folders = [partial(files.sync_folder, folder) for folder in named]
    numbers = list(named.values())
    for place, error in files.run_together(for_folders).items():
        for number in numbers[place]:
            errors.add(number, error)
    for number, flush in enumerate(flushes):
        failure = failure_of(flush.write_snapshot) if number not in errors.by_number else None
        if failure is not None:
            errors.add(number, failure)
    return errors.by_number


class _Errors:
    """One for each flush: that the disk failed, rather than that there was no descriptor to ask it."""

    def __init__(self) -> None:
        self.by_number: dict[int, OSError] = {}

    def add(self, number: int, error: OSError) -> None:
        known = self.by_number.get(number)
        if known is None or known.errno in OUT_OF_FILES:
            self.by_number[number] = error
