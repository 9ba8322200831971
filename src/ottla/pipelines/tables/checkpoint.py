"""Checkpoints of streams into tables: folders that live as long as their query, for the table knows what it has."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipelines.tables.table import Offsets
from ottla.pipelines.tables.topic_ends import COUNT, MARK, mark_of_text

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_PREFIX = "ottla-checkpoint-"
_folders: set[Path] = set()


def new_checkpoint() -> Path:
    """A folder with this process's number in its name. Those of processes that were killed are removed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        found = re.fullmatch(rf"{_PREFIX}(\d+)-\w+", folder.name)
        if found is not None and not _is_alive(int(found[1])):
            shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    _folders.add(folder)
    return folder


@atexit.register
def _remove_all() -> None:
    for folder in list(_folders):
        _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _folders.discard(folder)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def read_through(folder: Path, batch_id: int) -> Offsets:
    """The last offset of each partition that Spark has planned for a batch of one source; nothing where it is unknown.

    Spark writes the plan before it runs the batch: a line with the version, one of its own, and one for each source,
    which the sources `ottla` and `kafka` write alike. `ottla` adds the topic's id: in the place `MARK` is its mark.
    In the place `COUNT` is how many partitions of it are read.
    """
    try:
        version, _, *sources = (folder / "offsets" / str(batch_id)).read_text().splitlines()
        if version != "v1" or len(sources) != 1:
            return {}
        found = json.loads(sources[0])
        told = {(topic, MARK): mark_of_text(ends["id"]) for topic, ends in found.items() if "id" in ends}
        told |= {(topic, COUNT): sum(map(str.isdecimal, ends)) for topic, ends in found.items()}
        return told | {
            (topic, int(partition)): end - 1
            for topic, ends in found.items()
            for partition, end in ends.items()
            if partition.isdecimal() and end > 0
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def remove_after(query: StreamingQuery, folder: Path) -> None:
    """Remove the folder when the query has ended, however it ends."""

    def wait() -> None:
        with contextlib.suppress(Exception):  # what the query failed with is told elsewhere
            query.awaitTermination()
        _remove(folder)

    threading.Thread(target=wait, name=f"remove {folder.name}", daemon=True).start()
