"""Many reads of ZooKeeper in one request and one answer, which its servers have since 3.6 and kazoo does not.

Bytes in and out, nothing else: a request that kazoo can send as one of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ottla.controller.store import Node

GET_DATA = 4
GET_CHILDREN = 8
FAILED = -1

_HEADER = struct.Struct(">i?i")  # the type of an operation, whether it was the last, an error
_LENGTH = struct.Struct(">i")
_STAT = struct.Struct(">qqqqiiiqiiq")
_END = _HEADER.pack(-1, True, -1)


class FoundNode(NamedTuple):
    node: Node
    child_count: int


Found = FoundNode | list[str] | None
"""A node, the names of children, or None where there is no such node any more."""


class MultiRead:
    """Reads of one kind: GET_DATA or GET_CHILDREN of each path."""

    type = 22

    def __init__(self, kind: int, paths: Sequence[str]) -> None:
        self._kind = kind
        self._paths = paths

    def serialize(self) -> bytes:
        header = _HEADER.pack(self._kind, False, -1)
        parts = []
        for path in self._paths:
            name = path.encode()
            parts += [header, _LENGTH.pack(len(name)), name, b"\0"]  # watched by nobody
        return b"".join((*parts, _END))

    @staticmethod
    def deserialize(answer: bytes, offset: int) -> list[Found]:
        found: list[Found] = []
        while True:
            kind, is_end, _error = _HEADER.unpack_from(answer, offset)
            offset += _HEADER.size
            if is_end:
                return found
            if kind == GET_DATA:
                data, offset = _bytes(answer, offset)
                stat = _STAT.unpack_from(answer, offset)
                offset += _STAT.size
                found.append(FoundNode(Node(data, stat[4], stat[0], stat[7] != 0), stat[9]))
            elif kind == GET_CHILDREN:
                (count,) = _LENGTH.unpack_from(answer, offset)
                offset += _LENGTH.size
                names = []
                for _ in range(count):
                    name, offset = _bytes(answer, offset)
                    names.append(name.decode())
                found.append(names)
            else:
                offset += _LENGTH.size  # the code of the error: all paths are those of nodes that were there
                found.append(None)


def _bytes(answer: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(answer, offset)
    start = offset + _LENGTH.size
    end = start + max(length, 0)  # a node without data has -1
    return bytes(answer[start:end]), end
