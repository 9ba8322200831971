"""What the records of a chunk weigh."""

from __future__ import annotations

import threading
from itertools import accumulate

import pytest

from ottla.client.producer.chunk import RECORD_OVERHEAD_BYTES, Chunk, Headers


@pytest.mark.parametrize(
    ("values", "keys", "headers", "expected"),
    [
        ([b"abc", b""], None, None, [3, 0]),
        ([b"abc", None], None, None, [3, 0]),
        ([b"abc", b"d"], [b"key", b"k"], None, [6, 2]),
        ([None, b"d"], [None, b"k"], None, [0, 2]),
        ([b"abc", b"d"], None, [[("name", b"value")], ()], [3 + 4 + 5 + 4, 1]),
        ([b"abc", None], [b"k", None], [(), [("n", None)]], [4, 1 + 4]),
    ],
)
def test_sizes(
    values: list[bytes | None], keys: list[bytes | None] | None, headers: list[Headers] | None, expected: list[int]
) -> None:
    chunk = Chunk("topic", threading.Lock(), 0.0)
    chunk.values, chunk.keys, chunk.headers = values, keys, headers
    assert list(chunk.weigh()) == list(accumulate(RECORD_OVERHEAD_BYTES + size for size in expected))
