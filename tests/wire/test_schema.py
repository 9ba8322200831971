"""The declaration language, on messages made for the purpose."""

from __future__ import annotations

import copy
import pickle

import pytest

from ottla.wire.errors import ProtocolError
from ottla.wire.layout import fields_of, layout_of
from ottla.wire.schema import Message, Struct, at, ignorable, tagged
from ottla.wire.types import Bool, Bytes, Float64, Int8, Int16, Int32, Int64, String, UInt16, Uuid
from ottla.wire.uuids import ZERO_UUID
from ottla.wire.versioned import decode_body, encode_body


class Point(Struct):
    x: Int32 = 0
    y: Int32 = 0


class Sample(Message, versions="0-3", flexible="2+"):
    early: Int16 = at("0-1", -1)
    name: String
    points: list[Point] = ignorable("1+", [])
    note: String | None = at("0+", "", nullable="1+")
    origin: Point | None = tagged(0, "2+", None)
    corner: Point | None = tagged(3, "3+", None, nullable="3+")
    weight: Float64 = tagged(1, "2+", 1.5, ignorable=True)


class Scalars(Message, versions="0"):
    a: Int8
    b: Int16
    c: UInt16
    d: Int32
    e: Int64
    f: Float64
    g: Bool
    h: Uuid
    i: Bytes | None
    j: list[Int16]
    k: list[Uuid]
    m: Point | None


class Nothing(Message, versions="0-1", flexible="1+"):
    pass


def encoded(message: Message, version: int) -> str:
    return encode_body(message, version).hex()


def test_the_constructor_knows_defaults_and_what_is_required() -> None:
    sample = Sample(name="a")
    assert (sample.early, sample.note, sample.origin, sample.weight) == (-1, "", None, 1.5)
    with pytest.raises(TypeError, match="name"):
        Sample()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown"):
        Sample(name="a", unknown=1)  # type: ignore[call-arg]


def test_lists_are_not_shared_between_messages() -> None:
    first, second = Sample(name="a"), Sample(name="b")
    first.points.append(Point())
    assert second.points == []


def test_messages_are_compared_by_value_and_by_class() -> None:
    assert Point(x=1) == Point(x=1, y=0)
    assert Point(x=1) != Point(x=2)
    assert Point() != Nothing()
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point())


def test_only_declared_fields_can_be_set() -> None:
    with pytest.raises(AttributeError):
        Point().z = 1  # type: ignore[attr-defined]


def test_repr_can_be_read_and_shows_views_by_size() -> None:
    assert repr(Point(x=1)) == "Point(x=1, y=0)"
    sample = Sample(name="a")
    sample.note = memoryview(b"abc")  # type: ignore[assignment]
    assert "note=<3 bytes>" in repr(sample)


def test_messages_are_copied_and_pickled() -> None:
    sample = Sample(name="a", points=[Point(x=1)])
    assert copy.deepcopy(sample) == sample
    assert pickle.loads(pickle.dumps(sample)) == sample


def test_each_scalar_has_its_bytes() -> None:
    scalars = Scalars(a=-1, b=-2, c=65535, d=1, e=2, f=0.5, g=True, h=bytes(range(16)), i=None, j=[1, -1], k=[], m=None)
    assert encoded(scalars, 0) == (
        "ff fffe ffff 00000001 0000000000000002 3fe0000000000000 01 000102030405060708090a0b0c0d0e0f"
        "ffffffff 00000002 0001 ffff 00000000 ff"
    ).replace(" ", "")


def test_arrays_of_ids_and_nullable_structs_come_back() -> None:
    scalars = Scalars(
        a=0,
        b=0,
        c=0,
        d=0,
        e=0,
        f=0.0,
        g=False,
        h=ZERO_UUID,
        i=b"xyz",
        j=[],
        k=[bytes(range(16)), ZERO_UUID],
        m=Point(x=7),
    )
    assert decode_body(Scalars, 0, encode_body(scalars, 0)) == scalars


def test_a_message_of_nothing() -> None:
    assert encoded(Nothing(), 0) == ""
    assert encoded(Nothing(), 1) == "00"
    assert decode_body(Nothing, 1, b"\0") == Nothing()


def test_layout_follows_the_version() -> None:
    def names(version: int) -> tuple[list[str], list[str], list[str]]:
        layout = layout_of(Sample, version)
        return (
            [field.name for field in layout.positional],
            [field.name for field in layout.tagged],
            [field.name for field in layout.refused],
        )

    assert names(0) == (["early", "name", "note"], [], ["origin", "corner"])
    assert names(1) == (["early", "name", "points", "note"], [], ["origin", "corner"])
    assert names(3) == (["name", "points", "note"], ["origin", "weight", "corner"], ["early"])


def test_what_a_version_cannot_carry_is_read_as_its_default() -> None:
    sample = decode_body(Sample, 0, bytes.fromhex("0005 0001 61 0001 62"))
    assert sample == Sample(early=5, name="a", note="b")


def test_ignorable_fields_are_dropped() -> None:
    sample = Sample(early=5, name="a", note="b", points=[Point()], weight=9.0)
    assert encoded(sample, 0) == "0005000161000162"


@pytest.mark.parametrize(
    ("sample", "version", "complaint"),
    [
        (Sample(name="a", early=5), 2, r"Sample v2: early: only versions 0-1 can carry 5"),
        (Sample(name="a", origin=Point()), 1, r"Sample v1: origin: only versions 2\+ can carry Point"),
        (Sample(name="a", corner=Point()), 2, r"Sample v2: corner: only versions 3\+ can carry"),
    ],
)
def test_what_matters_is_not_dropped(sample: Sample, version: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_body(sample, version)


def test_null_only_where_the_version_allows_it() -> None:
    assert encoded(Sample(name="a", note=None), 1) == "ffff00016100000000ffff"
    with pytest.raises(ValueError, match=r"Sample v0: note: .*None"):
        encode_body(Sample(name="a", note=None), 0)
    with pytest.raises(ProtocolError, match=r"Sample v0: note: null where null is not allowed"):
        decode_body(Sample, 0, bytes.fromhex("0005 0001 61 ffff"))


def test_tagged_fields_are_written_unless_default() -> None:
    assert encoded(Sample(name="a"), 2) == "0261 01 01 00".replace(" ", "")
    # A struct that equals the empty one is not written either.
    assert encoded(Sample(name="a", origin=Point()), 2) == "0261 01 01 00".replace(" ", "")
    # One that could be null says so, in tag 3 of 1 byte.
    assert encoded(Sample(name="a"), 3) == "0261 01 01 01 03 01 00".replace(" ", "")
    assert decode_body(Sample, 3, encode_body(Sample(name="a"), 3)) == Sample(name="a")
    assert decode_body(Sample, 3, bytes.fromhex("0261 01 01 00")) == Sample(name="a")
    # Tag 0 of 9 bytes, tag 1 of 8, tag 3 of 10: that one could be null and says that it is not.
    full = Sample(name="a", origin=Point(x=1), corner=Point(), weight=2.0)
    assert encoded(full, 3) == (
        "0261 01 01 03 00 09 00000001 00000000 00 01 08 4000000000000000 03 0a 01 00000000 00000000 00"
    ).replace(" ", "")
    assert decode_body(Sample, 3, encode_body(full, 3)) == full


def test_there_is_no_other_version() -> None:
    with pytest.raises(ValueError, match="Sample has no version 4"):
        encode_body(Sample(name="a"), 4)
    with pytest.raises(ProtocolError, match="Sample has no version -1"):
        decode_body(Sample, -1, b"")


def test_a_type_that_is_none_of_ours_is_refused() -> None:
    class Wrong(Struct):
        number: int

    with pytest.raises(TypeError, match="int"):
        fields_of(Wrong)
