"""Memory for the next batch is never that of one on its way."""

from __future__ import annotations

from ottla.client.spares import LARGEST_SPARE_BYTES, MOST_SPARES, Spares


def test_memory_is_used_again() -> None:
    spares = Spares()
    memory = bytearray(100)
    spares.give(memory)
    assert spares.take() is memory
    assert spares.take() is not memory


def test_memory_that_somebody_looks_at_is_not() -> None:
    spares = Spares()
    memory, other = bytearray(100), bytearray(100)
    spares.give(other)
    spares.give(memory)
    with memoryview(memory):
        assert spares.take() is other


def test_little_is_kept() -> None:
    spares = Spares()
    spares.give(bytearray())
    spares.give(bytearray(LARGEST_SPARE_BYTES + 1))
    assert len(spares.take()) == 0
    given = [bytearray(10) for _ in range(MOST_SPARES + 1)]
    for memory in given:
        spares.give(memory)
    assert sum(any(taken is memory for memory in given) for taken in [spares.take() for _ in given]) == MOST_SPARES
