"""What a struct looks like in one version: the declaration, resolved."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, NamedTuple, Union, cast, get_args, get_origin

from ottla.wire.schema import Struct
from ottla.wire.types import Blob, Fixed, Kind, RecordsBlob, Text
from ottla.wire.versions import ALWAYS, NEVER, Versions


class Array(Kind):
    """Elements behind their count."""

    def __init__(self, element: Kind) -> None:
        self.element = element


class Nested(Kind):
    """A struct in place."""

    def __init__(self, struct: type[Struct]) -> None:
        self.struct = struct


class Field(NamedTuple):
    """A declared field. `nullable` are the versions in which its bytes have a way to say null."""

    name: str
    kind: Kind
    default: object
    versions: Versions
    nullable: Versions
    ignorable: bool
    tag: int | None


class Layout(NamedTuple):
    """The fields of a struct by what one version does with them."""

    positional: Sequence[Field]
    tagged: Sequence[Field]
    """In the order of their tags."""
    refused: Sequence[Field]
    """Fields that this version cannot carry and that must not be lost."""
    absent: Sequence[Field]
    """All that this version does not carry, the refused ones too: they are read as their defaults."""


@cache
def fields_of(struct: type[Struct]) -> tuple[Field, ...]:
    """The declared fields, their annotations resolved."""
    names = vars(sys.modules[struct.__module__])
    return tuple(_field(struct, name, names) for name in struct.declared)


def _field(struct: type[Struct], name: str, names: dict[str, object]) -> Field:
    annotation, options = struct.declared[name]
    kind, optional = _resolve(eval(annotation, names))
    if options.nullable is not None:
        nullable = options.nullable
    elif isinstance(kind, Nested) and options.tag is not None:
        nullable = NEVER
    else:
        nullable = ALWAYS if optional else NEVER
    return Field(name, kind, options.default, options.versions, nullable, options.ignorable, options.tag)


def _resolve(annotation: object) -> tuple[Kind, bool]:
    """The kind of value that an annotation stands for, and whether it may be None."""
    origin = get_origin(annotation)
    if origin is Union or origin is types.UnionType:
        (given,) = (choice for choice in get_args(annotation) if choice is not type(None))
        return _resolve(given)[0], True
    if origin is Annotated:
        return cast(Kind, get_args(annotation)[1]), False
    if origin is list:
        return Array(_resolve(get_args(annotation)[0])[0]), False
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return Nested(annotation), False
    raise TypeError(f"no field can be declared as {annotation!r}")


@cache
def layout_of(struct: type[Struct], version: int) -> Layout:
    fields = fields_of(struct)
    carried = [field for field in fields if version in field.versions]
    absent = [field for field in fields if version not in field.versions]
    return Layout(
        positional=[field for field in carried if field.tag is None],
        tagged=sorted((field for field in carried if field.tag is not None), key=lambda field: field.tag or 0),
        refused=[field for field in absent if not field.ignorable],
        absent=absent,
    )


def least_size_bytes(kind: Kind, version: int, flexible: bool) -> int:
    """The fewest bytes that a value can take: what bounds a count before anything is allocated for it."""
    match kind:
        case Fixed():
            return kind.size_bytes
        case Text():
            return 1 if flexible else 2
        case Blob() | RecordsBlob() | Array():
            return 1 if flexible else 4
        case Nested():
            fields = layout_of(kind.struct, version).positional
            return flexible + sum(_least_field_size_bytes(field, version, flexible) for field in fields)
    raise TypeError(f"unknown kind {kind!r}")


def _least_field_size_bytes(field: Field, version: int, flexible: bool) -> int:
    if isinstance(field.kind, Nested) and version in field.nullable:
        return 1
    return least_size_bytes(field.kind, version, flexible)


def carries_records(struct: type[Struct], version: int) -> bool:
    """Whether record batches are anywhere inside."""
    return any(isinstance(kind, RecordsBlob) for kind in _kinds_in(struct, version))


def carries_repeats(struct: type[Struct], version: int) -> bool:
    """Whether structs are anywhere inside of which a list may stand in many places."""
    return any(isinstance(kind, Nested) and kind.struct.repeats for kind in _kinds_in(struct, version))


def _kinds_in(struct: type[Struct], version: int) -> Iterator[Kind]:
    """The kinds of all fields, with those inside of them."""
    layout = layout_of(struct, version)
    for field in (*layout.positional, *layout.tagged):
        kind = field.kind
        while isinstance(kind, Array):
            kind = kind.element
        yield kind
        if isinstance(kind, Nested):
            yield from _kinds_in(kind.struct, version)
