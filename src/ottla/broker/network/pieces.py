"""Short pieces of files, which are read to be sent with the rest of an answer."""

from __future__ import annotations

from typing import Any

READ_BYTES = 1 << 14  # a shorter range of a file is read and sent with the rest of the answer, in one call


def read_piece(part: Any) -> Any:
    """The bytes of a range of a file. If they cannot be read, the range itself: sending it tells why."""
    try:
        data = part.read()
    except OSError:
        return part
    return data if len(data) == part.size_bytes else part
