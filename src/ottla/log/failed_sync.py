"""After a sync that failed: the kernel takes what it could not write for written, and reads it back from its cache.

So a process that starts again finds records that are not on the disk, and another sync does not write them. A mark in
the folder of the log tells it to write them again in the same place. That needs no room on the disk, and to write the
same bytes twice does no harm. The mark itself needs no sync: it is needed only while the cache is there, and is lost
with it.
"""

from __future__ import annotations

from ottla.log.files import File, Files
from ottla.log.segment import LOG

MARK = "sync-failed"
WRITTEN_BYTES = 1 << 20


def mark(files: Files, folder: str) -> None:
    """OSError if the disk takes nothing any more."""
    files.replace(f"{folder}/{MARK}", b"", durable=False)


def write_again(files: Files, folder: str, sizes: dict[str, int], recovery_point: int) -> None:
    """Bring to the disk what may not be there: the segments from that of the recovery point on."""
    bases = sorted(int(name[: -len(LOG)]) for name in sizes if name.endswith(LOG))
    first = max((base for base in bases if base <= recovery_point), default=0)
    for base in bases:
        if base >= first:
            _write_again(files.open(f"{folder}/{base:020d}{LOG}"))
    files.remove(f"{folder}/{MARK}")
    files.sync_folder(folder)
    del sizes[MARK]


def _write_again(file: File) -> None:
    for position in range(0, file.size_bytes, WRITTEN_BYTES):
        file.write_over(position, file.read(position, WRITTEN_BYTES))
    file.sync()
