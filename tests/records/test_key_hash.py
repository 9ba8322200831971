"""Kafka's hash of keys, compiled and as plain Python."""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import key_hash as installed
from tests.records.codecs import load_plain

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, as it loads its schemas
    from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

both_ways = pytest.mark.parametrize("module", [load_plain("key_hash"), installed], ids=["plain", "installed"])


# Answers of org.apache.kafka.common.utils.Utils.murmur2, which are signed.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"", 275646681),
        (b"21", -973932308),
        (b"abc", 479470107),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
@both_ways
def test_the_hash_is_kafkas(module: ModuleType, key: bytes, hashed: int) -> None:
    assert module.murmur2(key) == hashed & 0xFFFF_FFFF


@both_ways
@given(key=st.binary())
def test_the_hash_is_that_of_another_client(module: ModuleType, key: bytes) -> None:
    assert module.murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFF_FFFF


@both_ways
@given(keys=st.lists(st.none() | st.binary()), partition_count=st.integers(1, 1000))
def test_partitions_follow_from_the_hash(module: ModuleType, keys: list[bytes | None], partition_count: int) -> None:
    assert module.partitions_of_keys(keys, partition_count) == [
        -1 if key is None else (installed.murmur2(key) & 0x7FFF_FFFF) % partition_count for key in keys
    ]
