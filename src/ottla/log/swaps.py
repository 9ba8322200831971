"""Finishing or undoing what compaction and deletion had begun when the log was last open."""

from __future__ import annotations

from ottla.log.checkpoint import LEADER_EPOCHS, PARTITION_METADATA
from ottla.log.failed_sync import MARK
from ottla.log.files import NO_FILE, Files, no_file
from ottla.log.hole import END_MARK
from ottla.log.hole import MARK as HOLE_MARK
from ottla.log.segment import CLEANED, DELETED, LOG, SWAP, Segment
from ottla.log.snapshot import PREPARED, PREPARED_EARLIER

MOST_OFFSET = (1 << 63) - 1
_REPLACED = {LEADER_EPOCHS, MARK, HOLE_MARK, END_MARK}
_OTHER_NAMES = frozenset(
    {*_REPLACED, PARTITION_METADATA, PREPARED, PREPARED_EARLIER, *(f"{name}.tmp" for name in _REPLACED)}
)


def base_of(name: str) -> int:
    """The offset in the name of a file."""
    return int(name[:20])


def _own_files(files: Files, folder: str) -> dict[str, int]:
    """Those of the log, by their names. What somebody else has put there is left alone.

    OSError where something else lies in the place of one of them: without it, its records would be missing.
    """
    sizes = {name: size for name, size in files.sizes(folder).items() if _is_own(name)}
    for name, size in sizes.items():
        if size == NO_FILE:
            raise no_file(f"{folder}/{name}")
    return sizes


def _is_own(name: str) -> bool:
    offset, dot = name[:20], name[20:21]
    has_offset = dot == "." and offset.isdecimal() and offset.isascii() and int(offset) <= MOST_OFFSET
    return has_offset or name in _OTHER_NAMES


def finish_swaps(files: Files, folder: str) -> dict[str, int] | None:
    """Finish or undo what is half done; the files that remain with their sizes, None if there is no folder.

    Compacted segments are written under one suffix and renamed to the next when all of them are whole. So while
    one of the first kind is there, the round of its batch of segments did not get that far, and is undone.
    """
    try:
        sizes = _own_files(files, folder)
    except FileNotFoundError:
        return None
    unfinished = [base_of(name) for name in sizes if name.endswith(CLEANED)]
    for name in list(sizes):
        stray_swap = unfinished and name.endswith(SWAP) and base_of(name) >= min(unfinished)
        if name.endswith((DELETED, CLEANED, ".tmp")) or stray_swap:
            files.remove(f"{folder}/{name}")
            del sizes[name]
    swaps = sorted(name for name in sizes if name.endswith(LOG + SWAP))
    if swaps:
        for name in swaps:
            _finish_swap(files, folder, name, sizes)
        files.sync_folder(folder)
        sizes = _own_files(files, folder)
    for name in [name for name in sizes if name.endswith(SWAP)]:
        files.remove(f"{folder}/{name}")
        del sizes[name]
    return sizes


def _finish_swap(files: Files, folder: str, name: str, sizes: dict[str, int]) -> None:
    """Remove the segments that a compacted one replaces, and give it its name."""
    base_offset = base_of(name)
    swapped = Segment(files, folder, base_offset, created_ms=0, index_interval_bytes=4096, sizes=sizes, suffix=SWAP)
    end_offset = swapped.next_offset()
    for other in [other for other in sizes if other.endswith(LOG)]:
        if base_offset <= base_of(other) < max(end_offset, base_offset + 1):
            replaced = Segment(files, folder, base_of(other), created_ms=0, index_interval_bytes=4096)
            for path in replaced.paths():
                files.remove(path)
            del sizes[other]
    swapped.change_suffix("")
    swapped.close()
