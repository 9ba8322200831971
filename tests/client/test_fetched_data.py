"""What one answer brought: batches whose offsets do not ascend are damaged, though no checksum covers their offsets."""

from __future__ import annotations

import pytest

from ottla.client import MalformedAnswer
from ottla.client.consumer.fetched_data import FetchedData
from ottla.client.producer.arrow import record_batches
from ottla.records.build import build_batch

SIZE = 3
"""Records of a batch."""


def answer(*base_offsets: int, fetch_offset: int = 10) -> FetchedData:
    batches = [build_batch([b"x"] * SIZE, timestamp=0, base_offset=offset) for offset in base_offsets]
    return FetchedData("t", 0, fetch_offset, b"".join(batches), [], 1_000)


@pytest.mark.parametrize(
    ("base_offsets", "offsets"),
    [
        ((10, 13 + (1 << 20), 16, 19), [10, 11, 12]),  # it says that it is far ahead
        ((10, 13, 16 - 8, 19), [10, 11, 12, 13, 14, 15]),  # or that it comes again
        ((10 + (1 << 20), 13, 16), []),
        ((8, 11 + (1 << 40), 14), [10]),
        ((10, 13, 16 + (1 << 40)), [10, 11, 12, 13, 14, 15]),  # the last one, where nothing comes to tell
        ((10 + (1 << 40),), []),
        ((10, 13, 13), [10, 11, 12]),  # which of the two it is, nobody knows
    ],
)
def test_a_batch_out_of_order_is_damage_where_it_lies(base_offsets: tuple[int, ...], offsets: list[int]) -> None:
    data = answer(*base_offsets)
    end = offsets[-1] + 1 if offsets else 10
    for start in (10, end):
        sound = data.sound(start)
        assert [record.offset for record in sound.records] == [offset for offset in offsets if offset >= start]
        assert sound.next_offset == end
        assert isinstance(sound.damage, MalformedAnswer)
        assert f"a damaged batch at or behind offset {end}: a batch that ends at offset" in str(sound.damage)
    tables, next_offset, damage = record_batches(data, 10, None, with_headers=False)
    assert [offset for table in tables for offset in table.column("offset").to_pylist()] == offsets
    assert next_offset == end
    assert isinstance(damage, MalformedAnswer)
    assert data.next_offset == end
    assert all(offset < end for offset, _ in data.epochs)


def test_gaps_and_a_first_batch_that_begins_before_are_sound() -> None:
    sound = answer(8, 20, 40).sound(10)
    assert [record.offset for record in sound.records] == [10, 20, 21, 22, 40, 41, 42]
    assert (sound.next_offset, sound.damage) == (43, None)
