"""Memory for the next batch is never that of one on its way."""

from __future__ import annotations

from ottla.client.producer.buffer_pool import LARGEST_KEPT_BYTES, MOST_KEPT, BufferPool


def test_memory_is_used_again() -> None:
    pool = BufferPool()
    memory = bytearray(100)
    pool.give(memory)
    assert pool.take() is memory
    assert pool.take() is not memory


def test_memory_that_somebody_looks_at_is_not() -> None:
    pool = BufferPool()
    memory, other = bytearray(100), bytearray(100)
    pool.give(other)
    pool.give(memory)
    with memoryview(memory):
        assert pool.take() is other


def test_little_is_kept() -> None:
    pool = BufferPool()
    pool.give(bytearray())
    pool.give(bytearray(LARGEST_KEPT_BYTES + 1))
    assert len(pool.take()) == 0
    given = [bytearray(10) for _ in range(MOST_KEPT + 1)]
    for memory in given:
        pool.give(memory)
    assert sum(any(taken is memory for memory in given) for taken in [pool.take() for _ in given]) == MOST_KEPT
