"""Makes readers: a message and a version in, one flat function out.

The function reads runs of fixed-size fields with a single unpack, the length in front of a string or array as
part of the run before it, and nested structs in place. Every length and count is held against the bytes that
are left before anything is made of it. Whatever is wrong with the bytes becomes a ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NoReturn, cast

from ottla.wire.errors import ProtocolError
from ottla.wire.layout import Array, Field, Nested, carries_records, layout_of, least_size_bytes
from ottla.wire.schema import Message, Reader, Request, StepReader, Struct, constructor_order
from ottla.wire.source import Source
from ottla.wire.types import LONGEST_STRING_BYTES, Blob, Fixed, Kind, RecordsBlob, Text
from ottla.wire.varint import read_uvarint, read_uvarint_tail, skip_tags

MOST_ELEMENTS = 25_000  # in all arrays of one request together
MOST_ELEMENTS_WITH_RECORDS = 10_000  # likewise, where the request must be read at once, for its records stay in place
STEP_ELEMENTS = 512  # a power of two


def generate_reader(message: type[Message], version: int) -> Reader:
    return cast(Reader, _ReaderBuilder(message, version).build())


def compile_reader(message: type[Message], version: int) -> Reader:
    """The fast path, which generates one where that is needed; or a generated one where there is no fast path."""
    from ottla.wire import fast_path

    if fast_path.COMPILED and fast_path.is_usual_message(message, version):
        return fast_path.MessageReader(message, version, generate_reader)
    return generate_reader(message, version)


def compile_step_reader(message: type[Message], version: int) -> StepReader:
    """One that reads as a generator: it yields after some elements, and returns what the other returns."""
    return cast(StepReader, _ReaderBuilder(message, version, in_steps=True).build())


class _ReaderBuilder:
    def __init__(self, message: type[Message], version: int, *, in_steps: bool = False) -> None:
        self.message = message
        self.in_steps = in_steps
        self.is_request = issubclass(message, Request)
        self.version = version
        self.flexible = version in message.flexible
        self.has_records = carries_records(message, version)
        self.source = Source(_NAMES)
        self.run: list[tuple[str, str, str]] = []
        """Codes, variables and places of fixed-size values that are still to be read, all with one unpack."""

    def build(self) -> Callable[..., object]:
        source = self.source
        title = f"{self.message.__name__} v{self.version}"
        with source.block("def read(data, position):"):
            if self.has_records:
                source.line("view = memoryview(data)")
            else:
                # Bytes are indexed and sliced faster than views, and such messages are small.
                with source.block("if type(data) is not bytes:"):
                    source.line("data = bytes(data)")
            source.line("end = len(data)")
            if self.is_request:
                source.line(f"left = {MOST_ELEMENTS_WITH_RECORDS if self.has_records else MOST_ELEMENTS}")
            if self.in_steps:
                source.line("steps = 0")
                with source.block("if end < 0:"):
                    source.line("yield")  # a message without arrays is a generator, too
            with source.block("try:"):
                source.line(f"return {self.struct(self.message, '')}, position")
            with source.block("except ERRORS as error:"):
                source.line(f"explain(error, {title!r}, places, position, end)")
        return source.function("read", f"read {title}{' in steps' * self.in_steps}")

    def struct(self, struct: type[Struct], path: str) -> str:
        """Reads the fields into variables. Returns the expression that makes the struct of them."""
        layout = layout_of(struct, self.version)
        values = {field.name: self.default(field) for field in layout.absent}
        for field in layout.positional:
            self.source.place = path + field.name
            values[field.name] = self.field(field)
        self.source.place = path + "tagged fields"
        if self.flexible:
            values |= self.tags(layout.tagged, path)
        self.flush()
        made = ", ".join(values[name] for name in constructor_order(struct))
        return f"{self.source.constant(struct.__name__, struct)}({made})"

    def field(self, field: Field) -> str:
        return self.value(field.kind, self.version in field.nullable, field.name)

    def default(self, field: Field) -> str:
        return self.source.expression(f"default_{field.name}", field.default)

    def value(self, kind: Kind, nullable: bool, hint: str) -> str:
        """Reads one value. Returns the variable that holds it, at the latest after the next flush."""
        target = self.source.fresh(hint)
        match kind:
            case Fixed():
                self.defer(kind.code, target)
            case Text():
                self.text(target, nullable)
            case Blob():
                self.blob(target, nullable, "bytes(data[position:stop])")
            case RecordsBlob():
                self.blob(target, nullable, "view[position:stop]")
            case Array():
                self.array(target, kind.element, nullable)
            case Nested() if nullable:
                self.nullable_struct(target, kind.struct)
            case Nested():
                made = self.struct(kind.struct, self.source.place + ".")
                self.source.line(f"{target} = {made}")
        return target

    def defer(self, code: str, target: str) -> None:
        self.run.append((code, target, self.source.place))

    def flush(self) -> None:
        """Reads what has gathered in the run."""
        if not self.run:
            return
        codes, targets, places = zip(*self.run, strict=True)
        self.run = []
        with self.source.placed(places[0], places[-1]):
            if codes == ("B",):
                self.source.line(f"{targets[0]} = data[position]")
                self.source.line("position += 1")
                return
            unpacked = struct.Struct(">" + "".join(codes))
            unpack = self.source.constant("unpack", unpacked.unpack_from)
            self.source.line(f"{', '.join(targets)}{',' * (len(targets) == 1)} = {unpack}(data, position)")
            self.source.line(f"position += {unpacked.size}")

    def uvarint(self, hint: str) -> str:
        target = self.source.fresh(hint)
        self.defer("B", target)
        self.flush()
        with self.source.block(f"if {target} > 127:"):
            self.source.line(f"{target}, position = read_uvarint_tail(data, position, {target})")
        return target

    def length(self, code: str) -> str:
        """Reads a length or count. Returns the expression for it: negative stands for null."""
        if self.flexible:
            return self.uvarint("length") + " - 1"
        target = self.source.fresh("length")
        self.defer(code, target)
        self.flush()
        return target

    def text(self, target: str, nullable: bool) -> None:
        length = self.length("h")
        if self.flexible:
            with self.source.block(f"if {length} > {LONGEST_STRING_BYTES}:"):
                self.source.line(f"refuse_length({length}, end - position)")
        # Views have no decode.
        text = "str(data[position:stop], 'utf-8')" if self.has_records else "data[position:stop].decode()"
        self.slice(target, nullable, length, text)

    def blob(self, target: str, nullable: bool, taken: str) -> None:
        self.slice(target, nullable, self.length("i"), taken)

    def slice(self, target: str, nullable: bool, length: str, taken: str) -> None:
        source = self.source
        if nullable:
            with source.block(f"if {length} < 0:"):
                source.line(f"{target} = None")
            with source.block("else:"):
                self.slice(target, False, length, taken)
            return
        source.line(f"stop = position + {length}")
        with source.block("if not position <= stop <= end:"):
            source.line(f"refuse_length({length}, end - position)")
        source.line(f"{target} = {taken}")
        source.line("position = stop")

    def array(self, target: str, element: Kind, nullable: bool) -> None:
        source = self.source
        length = self.length("i")
        if nullable:
            with source.block(f"if {length} < 0:"):
                source.line(f"{target} = None")
            with source.block("else:"):
                self.elements(target, element, length)
        else:
            self.elements(target, element, length)

    def elements(self, target: str, element: Kind, length: str) -> None:
        source = self.source
        count = source.fresh("count")
        source.line(f"{count} = {length}")
        least = max(1, least_size_bytes(element, self.version, self.flexible))
        with source.block(f"if not 0 <= {count} * {least} <= end - position:"):
            source.line(f"refuse_count({count}, {least}, end - position)")
        self.spend(count)
        if isinstance(element, Fixed):
            codes = f"'{element.code}' * {count}" if len(element.code) > 1 else f"f'{{{count}}}{element.code}'"
            source.line(f"{target} = list(unpack_from('>' + {codes}, data, position))")
            source.line(f"position += {count} * {element.size_bytes}")
            return
        append = source.fresh("append")
        source.line(f"{target} = []")
        source.line(f"{append} = {target}.append")
        with source.block(f"for _ in range({count}):"):
            if self.in_steps:
                source.line("steps += 1")
                with source.block(f"if not steps & {STEP_ELEMENTS - 1}:"):
                    source.line("yield")
            if isinstance(element, Nested):
                made = self.struct(element.struct, source.place + ".")
            else:
                made = self.value(element, False, "element")
                self.flush()
            source.line(f"{append}({made})")

    def spend(self, count: str) -> None:
        """Holds the work that a request asks for to a limit, before it is begun."""
        if self.is_request:
            self.source.line(f"left -= {count}")
            with self.source.block("if left < 0:"):
                self.source.line("refuse_elements()")

    def nullable_struct(self, target: str, struct: type[Struct], null: str = "< 0") -> None:
        source = self.source
        marker = source.fresh("marker")
        self.defer("b", marker)
        self.flush()
        with source.block(f"if {marker} {null}:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            made = self.struct(struct, source.place + ".")
            source.line(f"{target} = {made}")

    def tags(self, fields: Sequence[Field], path: str) -> dict[str, str]:
        """Reads the tagged fields. As in Kafka, their order is free and of two alike the last holds."""
        source = self.source
        count = self.uvarint("tags")
        if not fields:
            with source.block(f"if {count}:"):
                self.spend(count)
                source.line(f"position = skip_tags(data, position, {count})")
            return {}
        values = {field.name: source.fresh(field.name) for field in fields}
        for field in fields:
            source.line(f"{values[field.name]} = {self.default(field)}")
        tag, stop = source.fresh("tag"), source.fresh("stop")
        with source.block(f"if {count}:"):
            self.spend(count)
        with source.block(f"for _ in range({count}) if {count} else ():"):
            source.line(f"{tag}, position = read_uvarint(data, position)")
            source.line(f"{stop}, position = read_uvarint(data, position)")
            source.line(f"{stop} += position")
            with source.block(f"if {stop} > end:"):
                source.line(f"refuse_length({stop} - position, end - position)")
            for nth, field in enumerate(fields):
                source.place = path + field.name
                with source.block(f"{'el' * (nth > 0)}if {tag} == {field.tag}:"):
                    if isinstance(field.kind, Nested) and self.version in field.nullable:
                        value = source.fresh(field.name)
                        self.nullable_struct(value, field.kind.struct, "<= 0")  # a length here, not a sign
                    else:
                        value = self.field(field)
                    self.flush()
                    source.line(f"{values[field.name]} = {value}")
                    with source.block(f"if position != {stop}:"):
                        source.line(f"refuse_tag({stop} - position)")
            source.line(f"position = {stop}")
        return values


def _refuse_length(length: int, left: int) -> NoReturn:
    if length < 0:
        raise ProtocolError("null where null is not allowed")
    if length <= left:
        raise ProtocolError(f"string of {length} bytes, {LONGEST_STRING_BYTES} at most are allowed")
    raise ProtocolError(f"{length} bytes announced, {left} left")


def _refuse_count(count: int, least: int, left: int) -> NoReturn:
    if count < 0:
        raise ProtocolError("null where null is not allowed")
    raise ProtocolError(f"{count} elements of {least} bytes or more announced, {left} bytes left")


def _refuse_elements() -> NoReturn:
    raise ProtocolError("more elements than a request may have")


def _refuse_tag(left: int) -> NoReturn:
    raise ProtocolError(f"{abs(left)} bytes {'more' if left > 0 else 'fewer'} announced than the field takes")


def _explain(error: Exception, title: str, places: list[str], position: int, end: int) -> NoReturn:
    """Says what is wrong and where. The line that failed tells the field."""
    traceback = error.__traceback__
    place = places[traceback.tb_lineno] if traceback is not None else ""
    if isinstance(error, ProtocolError):
        what = str(error)
    elif isinstance(error, UnicodeDecodeError):
        what = "not UTF-8"
    else:
        what = "ends too early"
    raise ProtocolError(f"{title}: {place}: {what} (byte {position} of {end})") from error


_NAMES: dict[str, object] = {
    "ERRORS": (ProtocolError, struct.error, IndexError, UnicodeDecodeError),
    "explain": _explain,
    "read_uvarint": read_uvarint,
    "read_uvarint_tail": read_uvarint_tail,
    "refuse_count": _refuse_count,
    "refuse_elements": _refuse_elements,
    "refuse_length": _refuse_length,
    "refuse_tag": _refuse_tag,
    "skip_tags": skip_tags,
    "unpack_from": struct.unpack_from,
}
