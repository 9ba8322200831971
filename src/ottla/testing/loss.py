"""What a loss of power leaves of the changes that were not synced. `SimulatedFiles.crash` asks one of these."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

Pieces = Sequence[tuple[int, int]]

SECTOR_BYTES = 512


class Loss(Protocol):
    """Decides what of the volatile changes had reached the disk when the power went."""

    def names_kept(self, count: int) -> int:
        """Of `count` changes of names in a folder, how many; the first ones stay."""

    def truncation_kept(self) -> bool: ...

    def pieces_kept(self, size_bytes: int) -> Pieces:
        """Of one write, the pieces that arrived, as start and end within it; none: the write never was.

        The file grows to the end of the last piece. An empty piece stands for length without contents.
        """


class _AllKept:
    def names_kept(self, count: int) -> int:
        return count

    def truncation_kept(self) -> bool:
        return True

    def pieces_kept(self, size_bytes: int) -> Pieces:
        return [(0, size_bytes)]


class _SyncedOnly:
    def names_kept(self, count: int) -> int:
        return 0

    def truncation_kept(self) -> bool:
        return False

    def pieces_kept(self, size_bytes: int) -> Pieces:
        return ()


class RandomLoss:
    """Each change is kept, lost or torn as a seeded source of randomness says."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def names_kept(self, count: int) -> int:
        return self._random.randint(0, count)

    def truncation_kept(self) -> bool:
        return self._random.random() < 0.5

    def pieces_kept(self, size_bytes: int) -> Pieces:
        drawn = self._random.choice(("whole", "whole", "lost", "cut", "sectors", "length"))
        if drawn == "whole":
            return [(0, size_bytes)]
        if drawn == "cut":
            return [(0, self._random.randint(0, size_bytes))]
        if drawn == "sectors":
            starts = range(0, size_bytes, SECTOR_BYTES)
            kept = [start for start in starts if self._random.random() < 0.5]
            pieces = [(start, min(start + SECTOR_BYTES, size_bytes)) for start in kept]
            return [*pieces, (size_bytes, size_bytes)]
        return [(size_bytes, size_bytes)] if drawn == "length" else ()


ALL_KEPT: Loss = _AllKept()
SYNCED_ONLY: Loss = _SyncedOnly()  # the worst: nothing that was not synced
