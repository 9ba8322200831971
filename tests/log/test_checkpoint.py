"""Kafka's small text files: both ways, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.checkpoint import (
    CorruptCheckpoint,
    format_epochs,
    format_offsets,
    format_partition_metadata,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
)

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
OFFSETS = st.integers(0, 2**63 - 1)


@given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 1000)), OFFSETS))
def test_offsets_both_ways(offsets: dict[tuple[str, int], int]) -> None:
    assert parse_offsets(format_offsets(offsets)) == offsets


@given(st.lists(st.tuples(st.integers(0, 1000), OFFSETS)))
def test_epochs_both_ways(entries: list[tuple[int, int]]) -> None:
    assert parse_epochs(format_epochs(entries)) == entries


@given(st.binary(min_size=16, max_size=16))
def test_topic_ids_both_ways(topic_id: bytes) -> None:
    assert parse_partition_metadata(format_partition_metadata(topic_id)) == topic_id


def test_the_texts_are_kafkas() -> None:
    assert format_offsets({("topic", 3): 12, ("other", 0): 0}) == b"0\n2\ntopic 3 12\nother 0 0\n"
    assert format_epochs([(1, 0), (4, 99)]) == b"0\n2\n1 0\n4 99\n"
    assert format_partition_metadata(bytes(16)) == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize(
    "data",
    [
        b"0",
        b"1\n0\n",
        b"0\n1\n",
        b"0\n2\na 1 2\n",
        b"0\n1\na 1 2\nb 1 2\n",
        b"0\n1\na 1\n",
        b"0\n1\na one 2\n",
        b"0\nx\n",
        b"\0\0\0\0",
        b"\xff\xff",
    ],
)
def test_what_is_torn_or_strange_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_offsets(data)


@pytest.mark.parametrize(
    "data", [b"", b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"version: 0", b"version: 0\ntopic_id: AAAA"]
)
def test_a_strange_topic_id_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_partition_metadata(data)
