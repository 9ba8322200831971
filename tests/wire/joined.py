from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from ottla.wire.parts import Buffer, Part


def joined(parts: Iterable[Part]) -> bytes:
    """What would be sent, of parts that are all in memory."""
    return b"".join(cast(Iterable[Buffer], parts))
