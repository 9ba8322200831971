"""Texts as the wire and the log have them: their size is in bytes, and a string has a longest one."""

from __future__ import annotations

from ottla.wire.types import LONGEST_STRING_BYTES


def size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def shortened(text: str, most_bytes: int = LONGEST_STRING_BYTES) -> str:
    """The beginning of a text, so much of it as fits."""
    if size_bytes(text) <= most_bytes:
        return text
    return text.encode()[:most_bytes].decode(errors="ignore")
