"""What is on a simulated disk, and what is not yet: files and folders with the changes that no sync has settled."""

from __future__ import annotations

from typing import NamedTuple

from ottla.testing.loss import ALL_KEPT, Loss


class Write(NamedTuple):
    position: int
    data: bytes

    def apply(self, contents: bytearray, loss: Loss) -> None:
        for start, end in loss.pieces_kept(len(self.data)):
            _write_into(contents, self.position + start, self.data[start:end])


class Truncation(NamedTuple):
    size_bytes: int

    def apply(self, contents: bytearray, loss: Loss) -> None:
        if loss.truncation_kept():
            _resize(contents, self.size_bytes)


def _resize(contents: bytearray, size_bytes: int) -> None:
    if size_bytes > len(contents):
        contents.extend(bytes(size_bytes - len(contents)))
    else:
        del contents[size_bytes:]


def _write_into(contents: bytearray, position: int, data: bytes) -> None:
    if position > len(contents):
        _resize(contents, position)
    contents[position : position + len(data)] = data


class Contents:
    """A file without its name."""

    __slots__ = ("durable", "modified_ms", "now", "volatile")

    def __init__(self) -> None:
        self.now = bytearray()
        self.durable = bytearray()
        self.volatile: list[Write | Truncation] = []
        self.modified_ms = 0

    def change(self, change: Write | Truncation) -> None:
        change.apply(self.now, ALL_KEPT)
        self.volatile.append(change)

    def settle(self, count: int, loss: Loss = ALL_KEPT) -> None:
        """Bring the oldest changes to the disk, as far as `loss` lets them."""
        for change in self.volatile[:count]:
            change.apply(self.durable, loss)
        del self.volatile[:count]

    def lose(self, loss: Loss) -> None:
        self.settle(len(self.volatile), loss)
        self.now = bytearray(self.durable)


NameChange = dict[str, "Contents | Folder | None"]  # None: the name goes; all of one change or nothing


class Folder:
    __slots__ = ("durable", "now", "volatile")

    def __init__(self) -> None:
        self.now: dict[str, Contents | Folder] = {}
        self.durable: dict[str, Contents | Folder] = {}
        self.volatile: list[NameChange] = []

    def change(self, change: NameChange) -> None:
        _rename(self.now, change)
        self.volatile.append(change)

    def settle(self, count: int) -> None:
        for change in self.volatile[:count]:
            _rename(self.durable, change)
        del self.volatile[:count]

    def lose(self, loss: Loss) -> None:
        self.settle(loss.names_kept(len(self.volatile)))
        self.volatile.clear()
        self.now = dict(self.durable)
        for node in self.now.values():
            node.lose(loss)


def _rename(names: dict[str, Contents | Folder], change: NameChange) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
