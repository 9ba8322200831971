"""Bringing a log to the disk, in three steps of which only the middle one is slow.

`Log.begin_flush` gathers what must be synced, `Flush.run` syncs it (on any thread: it touches no state), and
`Log.end_flush` moves the recovery point. All appends that came before the begin are covered by one sync, which
is what group commit is.
"""

from __future__ import annotations

import dataclasses

from ottla.log.files import File, Files


@dataclasses.dataclass(slots=True)
class Flush:
    files: Files
    up_to_offset: int
    open_files: list[File]
    paths: list[str]  # of indexes of sealed segments: recovery will not make those again
    folders: list[str]  # in which names were made, changed or removed since the last flush
    truncations: int  # of the log; a flush from before one says nothing about what came after

    def run(self) -> None:
        """Return when all of it is on the disk; OSError if that cannot be known."""
        for file in self.open_files:
            file.sync()
        for path in self.paths:
            self.files.sync_path(path)
        for folder in self.folders:
            self.files.sync_folder(folder)
