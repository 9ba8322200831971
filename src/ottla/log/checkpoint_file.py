"""A checkpoint that the partitions of a data folder share, as a file that changes while the broker runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

from ottla.log.checkpoint import TopicPartition, format_offsets, parse_offsets
from ottla.log.files import Files


class CheckpointFile:
    """Written on any thread, and never by what was known earlier over what was known later."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._lock = threading.Lock()
        self._asked = 0
        self._written = 0
        self._contents: bytes | None = None  # of the file, where that is known
        self._offsets: Mapping[TopicPartition, int] | None = None  # the same

    def read(self) -> dict[TopicPartition, int]:
        """The offsets in the file, none where it is missing; CorruptCheckpoint if they cannot be read."""
        if not self._files.exists(self._path):
            self._contents, self._offsets = format_offsets({}), {}
            return {}
        contents = self._files.read_all(self._path)
        offsets = parse_offsets(contents)
        self._contents, self._offsets = contents, offsets
        return dict(offsets)

    def tells_at_most(self, partition: TopicPartition, offset: int) -> bool:
        """Whether the file has no larger offset of a partition, and nothing is on its way to it."""
        offsets = self._offsets
        return self._written == self._asked and offsets is not None and offsets.get(partition, 0) <= offset

    def next_number(self) -> int:
        """For who begins to gather offsets: what others gather later counts more, whoever writes first."""
        self._asked += 1
        return self._asked

    def writing(self, offsets: Mapping[TopicPartition, int], number: int | None = None) -> Callable[[], None]:
        """The job of writing offsets, which nobody changes any more; one that would change nothing does nothing."""
        return partial(self._write, self.next_number() if number is None else number, offsets)

    def _write(self, number: int, offsets: Mapping[TopicPartition, int]) -> None:
        contents = format_offsets(offsets)
        with self._lock:
            if number < self._written:
                return
            if contents != self._contents:
                self._contents = self._offsets = None
                self._files.replace(self._path, contents)
                self._contents, self._offsets = contents, offsets
            self._written = number  # what failed has done nothing for those who came before it
