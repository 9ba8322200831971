"""Records for the checks. Their values shrink well: a client may give up on compression that does not pay."""

from __future__ import annotations

from tests.compat.client import Record

FIRST_MS = 1_700_000_000_000
STEP_MS = 1_000

PLAIN = [
    Record(b"key", b"first " * 100, FIRST_MS, (("trace", b"1"), ("origin", b"test"))),
    Record(None, bytes(range(256)) * 10, FIRST_MS + STEP_MS),
    Record(b"other", "grüße 你好 ".encode() * 50, FIRST_MS + 2 * STEP_MS, (("trace", b"1"), ("trace", b"2"))),
    Record(b"key", b"\n\r\0 " * 200, FIRST_MS + 3 * STEP_MS, (("empty", b""),)),
]

NULL_AND_EMPTY = [
    Record(None, b"", FIRST_MS),
    Record(b"", b"value", FIRST_MS + 1),
    Record(b"a tombstone", None, FIRST_MS + 2),
    Record(b"\xff\x00", b"\x00", FIRST_MS + 3, (("", b"nameless"), ("bytes", bytes(range(256))))),
]


def numbered(count: int) -> list[Record]:
    """One record a second."""
    return [Record(b"%d" % number, b"value %d" % number, FIRST_MS + number * STEP_MS) for number in range(count)]
