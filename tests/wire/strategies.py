"""Hypothesis strategies that are derived from the declarations: any value that a version can carry."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from ottla.wire.layout import Array, Field, Nested, layout_of
from ottla.wire.schema import Struct
from ottla.wire.types import Blob, Fixed, Kind, RecordsBlob, Text
from ottla.wire.writer import default_struct

LONGER_THAN_A_ONE_BYTE_LENGTH = 150

Narrow = Callable[[type[Struct], str], st.SearchStrategy[Any] | None]
"""Replaces the strategy of a struct's field, for a counterpart that does not know all of its values."""

TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from(["", "\0", "\U0010ffff", "orders", "ö" * LONGER_THAN_A_ONE_BYTE_LENGTH]),
)
BLOBS = st.one_of(st.binary(max_size=8), st.just(bytes(range(LONGER_THAN_A_ONE_BYTE_LENGTH))))

FIXED: dict[str, st.SearchStrategy[Any]] = {
    "b": st.integers(-(2**7), 2**7 - 1),
    "h": st.integers(-(2**15), 2**15 - 1),
    "H": st.integers(0, 2**16 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "q": st.integers(-(2**63), 2**63 - 1),
    "d": st.floats(allow_nan=False, allow_infinity=False),
    "?": st.booleans(),
    "16s": st.binary(min_size=16, max_size=16),
}


def keep(struct: type[Struct], field: str) -> None:
    """Narrows nothing."""


@cache
def structs(struct: type[Struct], version: int, narrow: Narrow = keep) -> st.SearchStrategy[Any]:
    """Values of all fields that the version carries; the others keep their defaults."""
    layout = layout_of(struct, version)
    values = {}
    for field in (*layout.positional, *layout.tagged):
        narrowed = narrow(struct, field.name)
        values[field.name] = _values(field, version, narrow) if narrowed is None else narrowed
    return st.fixed_dictionaries(values).map(lambda fields: struct(**fields))


def _values(field: Field, version: int, narrow: Narrow) -> st.SearchStrategy[Any]:
    values = _kinds(field.kind, version, narrow)
    if version in field.nullable:
        return st.none() | values
    if field.tag is not None and isinstance(field.kind, Nested):
        # One that equals the default is not written, so it would not come back.
        empty = default_struct(field.kind.struct)
        return st.none() | values.filter(lambda value: value != empty)
    if field.tag is not None:
        return st.just(field.default) | values
    return values


def _kinds(kind: Kind, version: int, narrow: Narrow) -> st.SearchStrategy[Any]:
    match kind:
        case Fixed():
            return FIXED[kind.code]
        case Text():
            return TEXTS
        case Blob() | RecordsBlob():
            return BLOBS
        case Array():
            return st.lists(_kinds(kind.element, version, narrow), max_size=2)
        case Nested():
            return structs(kind.struct, version, narrow)
    raise TypeError(f"no values for {kind!r}")


def filled(struct: type[Struct], version: int) -> Any:
    """One value with something in every field that the version carries."""
    layout = layout_of(struct, version)
    carried = (*layout.positional, *layout.tagged)
    return struct(**{field.name: _something(field.kind, version) for field in carried})


def _something(kind: Kind, version: int) -> Any:
    match kind:
        case Fixed():
            return {"?": True, "d": 0.5, "16s": bytes(range(16))}.get(kind.code, 3)
        case Text():
            return "abc"
        case Blob() | RecordsBlob():
            return b"abc"
        case Array():
            return [_something(kind.element, version)] * 2
        case Nested():
            return filled(kind.struct, version)
    raise TypeError(f"no value for {kind!r}")
