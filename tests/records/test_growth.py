"""Topics that grow in order: who is held back, and where keys belong."""

from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.build import build_batch
from ottla.records.compression import GZIP, NONE, ZSTD
from ottla.records.growth import (
    Growth,
    Held,
    Phase,
    decode_growths,
    encode_growths,
    held_back,
    is_checked,
)
from ottla.records.key_hash import murmur2, partitions_of_keys
from ottla.records.large import validate_large
from ottla.records.placement import CRC32, MURMUR2, Placement, strays_among
from ottla.records.validate import InvalidRecords, LargeBatch, MisplacedKeys, ProduceSettings, validate_produce
from ottla.wire.errors import ErrorCode

TWICE = (Growth(2, 4, fences={0: 10, 1: 20}), Growth(4, 8, fences={0: 30, 2: 5}))


@pytest.mark.parametrize(
    ("offsets", "held"),
    [
        ({}, {2, 3, 4, 6, 7}),
        ({0: 9, 1: 20}, {2, 4, 6}),
        ({0: 10, 1: 19}, {3, 4, 6, 7}),
        ({0: 10, 1: 20}, {4, 6}),
        ({0: 10, 1: 20, 2: 5}, {4}),
        ({0: 30, 1: 20, 2: 5}, set()),
        ({0: 30, 2: 5}, {3, 7}),
    ],
)
def test_a_group_is_held_back_until_it_has_read_the_parent(offsets: dict[int, int], held: set[int]) -> None:
    def committed(index: int) -> int:
        return offsets.get(index, -1)

    assert set(held_back(TWICE, committed)) == held


def test_what_is_not_open_is_held_back_from_everybody() -> None:
    growing = (Growth(1, 2, phase=Phase.DRAINING),)
    assert held_back(growing, lambda _index: 1 << 60) == {1: Held(0, -1)}
    assert is_checked(growing, 2)
    assert not is_checked(growing, 3)  # partitions were added in another way since


def test_as_json() -> None:
    growths = (*TWICE, Growth(8, 16, CRC32, Phase.FENCING, quiet_ms=7))
    assert decode_growths(encode_growths(growths)) == growths
    with pytest.raises((KeyError, ValueError)):
        decode_growths([{"from": 1}])


@given(st.binary(max_size=40), st.integers(1, 9), st.integers(2, 5))
def test_a_key_stays_or_goes_to_a_child_of_its_partition(key: bytes, count: int, times: int) -> None:
    [before], [after] = partitions_of_keys([key], count), partitions_of_keys([key], count * times)
    assert after % count == before == (murmur2(key) & 0x7FFF_FFFF) % count
    assert zlib.crc32(key) % (count * times) % count == zlib.crc32(key) % count


def test_partitioners() -> None:
    keys = [b"%d" % number for number in range(50)]
    for index in range(4):
        mine = [key for key, at in zip(keys, partitions_of_keys(keys, 4), strict=True) if at == index]
        assert not strays_among([*mine, None], index, 4, MURMUR2)
        assert strays_among([*mine, None], index ^ 1, 4, MURMUR2)
        assert strays_among(mine, index, 4, CRC32)
    assert not strays_among([b"", None], 3, 4, CRC32)  # these go anywhere


def keys_of(index: int, count: int, number: int) -> list[bytes]:
    candidates = [b"key-%d" % each for each in range(number * count * 4)]
    found = [key for key, at in zip(candidates, partitions_of_keys(candidates, count), strict=True) if at == index]
    return found[:number]


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
@pytest.mark.parametrize("number", [1, 20, 3000])
def test_a_batch_with_keys_of_elsewhere(codec: int, number: int) -> None:
    """It is looked into whatever its codec, in steps where it is large, and refused as a whole."""
    right = keys_of(1, 4, number)
    stray = keys_of(3, 4, 1)
    placement = Placement(1, 4, MURMUR2, required_count=4)
    for keys, is_refused in ((right, False), ([*right, *stray], True), ([*right, None], False)):
        batch = bytearray(build_batch([b"v"] * len(keys), keys=keys, timestamp=1000, codec=codec))
        with pytest.raises(MisplacedKeys) if is_refused else contextlib.nullcontext() as caught:
            validated(batch, placement)
        if caught is not None:
            assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert caught.value.header.count == len(keys)
    assert placement.strays == 1
    watching = Placement(1, 4, MURMUR2, required_count=None)
    validated(bytearray(build_batch([b"v"], keys=stray, timestamp=1000, codec=codec)), watching)
    assert watching.strays == 1


def test_what_was_asked_before_still_is_while_it_grows_again() -> None:
    placement = Placement(1, 8, MURMUR2, required_count=4)
    for key, is_refused in ((keys_of(1, 8, 1), False), (keys_of(5, 8, 1), False), (keys_of(3, 8, 1), True)):
        with pytest.raises(MisplacedKeys) if is_refused else contextlib.nullcontext():
            validated(bytearray(build_batch([b"v"], keys=key, timestamp=1000)), placement)
    assert placement.strays == 2


def validated(batch: bytearray, placement: Placement) -> None:
    settings = ProduceSettings(placement=placement)
    try:
        validate_produce(batch, settings, "t-1", 9, 2000)
    except LargeBatch as large:
        for _ in validate_large(large, settings, partition="t-1", now_ms=2000):
            pass


def test_other_faults_come_first() -> None:
    """A batch that no topic takes is told so, whatever its keys are."""
    settings = ProduceSettings(placement=Placement(0, 4, MURMUR2, required_count=4), is_compacted=True)
    batch = bytearray(build_batch([b"v", b"v"], keys=[None, keys_of(3, 4, 1)[0]], timestamp=1000))
    with pytest.raises(InvalidRecords) as caught:
        validate_produce(batch, settings, "t-0", 9, 2000)
    assert caught.value.code is ErrorCode.INVALID_RECORD
