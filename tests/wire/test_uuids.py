from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.uuids import ZERO_UUID, new_uuid, parse_uuid, uuid_text


@given(st.binary(min_size=16, max_size=16))
def test_text_and_back(raw: bytes) -> None:
    text = uuid_text(raw)
    assert len(text) == 22
    assert parse_uuid(text) == raw


def test_new_ones_are_random_of_version_4() -> None:
    made = [uuid.UUID(bytes=new_uuid()) for _ in range(100)]
    assert {(each.version, each.variant) for each in made} == {(4, uuid.RFC_4122)}
    assert len(set(made)) == 100
    assert all(len({each.bytes[index] for each in made}) > 1 for index in range(16))


def test_known_texts() -> None:
    # As org.apache.kafka.common.Uuid prints them.
    assert uuid_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_text(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"
    assert uuid_text(b"\xfb\xff" * 8) == "-__7__v_-__7__v_-__7_w"


@pytest.mark.parametrize(
    "text",
    ["", "AAAA", "A" * 21, "A" * 23, "A" * 24, "AAAAAAAAAAAAAAAAAAAA+/", "AAAAAAAAAAAAAAAAAAAAA!", "é" * 22],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an id"):
        parse_uuid(text)


def test_only_16_bytes_are_an_id() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 15"):
        uuid_text(bytes(15))
