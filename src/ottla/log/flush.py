"""Bringing a log to the disk, in three steps of which only the middle one is slow.

`Log.begin_flush` gathers what must be synced, `Flush.run` syncs it (on any thread: it touches no state), and
`Log.end_flush` moves the recovery point. All appends that came before the begin are covered by one sync, which
is what group commit is.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial

from ottla.log.files import File, Files


@dataclasses.dataclass(slots=True)
class Flush:
    files: Files
    up_to_offset: int
    open_files: list[File]
    paths: list[str]  # of indexes of sealed segments: recovery will not make those again
    folders: list[str]  # in which names were made, changed or removed since the last flush
    truncations: int  # of the log; a flush from before one says nothing about what came after
    # Files of the producers as of then, written in their order when all of that is on the disk.
    snapshot: dict[str, bytes] = dataclasses.field(default_factory=dict)

    def run(self, without: Collection[str] = ()) -> None:
        """Return when all of it is on the disk, but for the folders in `without`; OSError if that cannot be known."""
        for file in self.open_files:
            file.sync()
        for path in self.paths:
            self.files.sync_path(path)
        for folder in self.folders:
            if folder not in without:
                self.files.sync_folder(folder)
        for path, data in self.snapshot.items():
            self.files.replace(path, data, durable=False)


def run_together(flushes: Sequence[Flush]) -> dict[int, OSError]:
    """Run flushes of one file system at once; the errors of those that failed, by their number.

    A disk does many syncs in little more time than one, and a folder that several flushes name is synced once.
    """
    if not flushes:
        return {}
    files = flushes[0].files
    named = Counter(folder for flush in flushes for folder in flush.folders)
    shared = {folder for folder, times in named.items() if times > 1}
    errors = files.run_together([partial(flush.run, shared) for flush in flushes])
    for folder in sorted(shared):
        try:
            files.sync_folder(folder)
        except OSError as error:
            errors |= {number: error for number, flush in enumerate(flushes) if folder in flush.folders}
    return errors
