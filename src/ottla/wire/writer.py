"""Makes writers: a message and a version in, one flat function out.

The function packs runs of fixed-size fields at once, the length in front of a string or array as part of the
run before it, and walks nested structs in place. It returns parts: all in one piece, except that records stand
between the pieces as they are, and that what is written in steps may be in several. What cannot be written raises a
ValueError that names the field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NoReturn, cast

from ottla.wire.layout import Array, Field, Layout, Nested, carries_records, carries_repeats, layout_of
from ottla.wire.parts import BUFFERS
from ottla.wire.schema import Message, StepWriter, Struct, Writer
from ottla.wire.source import Source
from ottla.wire.types import LONGEST_STRING_BYTES, Blob, Fixed, Kind, RecordsBlob, Text
from ottla.wire.varint import ONE_BYTE, uvarint

STEP_ELEMENTS = 512  # a power of two
JOINED_PIECES = 4096  # become one piece in a step: to join millions at the end would take long


class VersionTooLow(ValueError):
    """A field says what this version of the message has no place for."""


def generate_writer(message: type[Message], version: int) -> Writer:
    return cast(Writer, _WriterBuilder(message, version).build())


def compile_writer(message: type[Message], version: int) -> Writer:
    """The fast path, which generates one where that is needed; or a generated one where there is no fast path."""
    from ottla.wire import fast_path

    if fast_path.COMPILED and fast_path.is_usual_message(message, version):
        return fast_path.MessageWriter(message, version, generate_writer)
    return generate_writer(message, version)


def compile_step_writer(message: type[Message], version: int) -> StepWriter:
    """One that writes as a generator: it yields after some elements, and returns what the other returns."""
    return cast(StepWriter, _WriterBuilder(message, version, in_steps=True).build())


class _WriterBuilder:
    def __init__(self, message: type[Message], version: int, *, in_steps: bool = False) -> None:
        self.message = message
        self.in_steps = in_steps
        self.version = version
        self.flexible = version in message.flexible
        self.source = Source(_NAMES)
        self.add = "add"
        self.is_joined_in_steps = in_steps and not carries_records(message, version)
        self.run: list[tuple[str, str, str]] = []
        """Codes, expressions and places of fixed-size values still to be written, all with one pack."""

    def build(self) -> Callable[..., object]:
        source = self.source
        has_records = carries_records(self.message, self.version)
        title = f"{self.message.__name__} v{self.version}"
        with source.block("def write(message):"):
            if has_records or self.in_steps:
                source.line("parts = []")
            source.line("out = []")
            source.line("add = out.append")
            if self.in_steps:
                source.line("steps = 0")
                with source.block("if message is None:"):
                    source.line("yield")  # a message without arrays is a generator, too
            if carries_repeats(self.message, self.version):
                source.line("written = {}")
            with source.block("try:"):
                self.struct(self.message, "message", "")
                self.flush()
            with source.block("except ERRORS as error:"):
                source.line(f"explain(error, {title!r}, places)")
            if has_records:
                with source.block("if out:"):
                    source.line("parts.append(b''.join(out))")
                source.line("return parts")
            elif self.in_steps:
                source.line("parts.append(b''.join(out))")
                source.line("return parts")
            else:
                source.line("return [b''.join(out)]")
        return source.function("write", f"write {title}{' in steps' * self.in_steps}")

    def struct(self, struct: type[Struct], owner: str, path: str) -> None:
        layout = layout_of(struct, self.version)
        for field in layout.refused:
            self.source.place = path + field.name
            with self.source.block(f"if {self.differs(owner, field)}:"):
                self.source.line(f"refuse({owner}.{field.name}, {str(field.versions)!r})")
        for field in layout.positional:
            self.source.place = path + field.name
            self.value(field.kind, self.version in field.nullable, f"{owner}.{field.name}")
        self.source.place = path + "tagged fields"
        if self.flexible:
            self.tags(layout, owner, path)

    def differs(self, owner: str, field: Field) -> str:
        """The condition under which a field is not its default."""
        value = f"{owner}.{field.name}"
        if field.default is None:
            return f"{value} is not None"
        default = self.source.expression(f"default_{field.name}", field.default)
        return f"{value} != {default}"

    def value(self, kind: Kind, nullable: bool, value: str) -> None:
        match kind:
            case Fixed():
                self.defer(kind.code, value)
            case Text():
                self.text(value, nullable)
            case Blob():
                self.blob(value, nullable)
            case RecordsBlob():
                self.records(value, nullable)
            case Array():
                self.array(value, kind.element, nullable)
            case Nested() if nullable:
                self.nullable_struct(value, kind.struct)
            case Nested():
                self.struct(kind.struct, self.local("nested", value), self.source.place + ".")

    def local(self, hint: str, value: str) -> str:
        target = self.source.fresh(hint)
        self.source.line(f"{target} = {value}")
        return target

    def defer(self, code: str, value: str) -> None:
        self.run.append((code, value, self.source.place))

    def emit(self, packed: str) -> None:
        """Adds the expression for the run's bytes, and begins the next run."""
        first = self.run[0][2] if self.run else self.source.place
        last = self.run[-1][2] if self.run else self.source.place
        with self.source.placed(first, last):
            self.source.line(f"{self.add}({packed})")
        self.run = []

    def flush(self, padding: str = "") -> None:
        """Writes what has gathered in the run, and zeros behind it as the padding's codes say."""
        packed = self.packed(padding)
        if packed:
            self.emit(packed)

    def packed(self, codes: str = "", value: str = "") -> str:
        """The expression for the bytes of the run, of something more behind it if that is given."""
        codes = "".join(code for code, _, _ in self.run) + codes
        values = [value for code, value, _ in self.run if code != "x"] + [value] * bool(value)
        if codes == "x":
            return "ZERO"
        if not codes:
            return ""
        pack = self.source.constant("pack", struct.Struct(">" + codes).pack)
        return f"{pack}({', '.join(values)})"

    def length(self, code: str, length: str) -> None:
        """Writes a length or count, given as a variable; in flexible versions as one more than it is."""
        if not self.flexible:
            self.defer(code, length)
            self.flush()
            return
        short = self.packed("B", length) if self.run else f"ONE_BYTE[{length}]"
        long = " + ".join(filter(None, (self.packed(), f"uvarint({length})")))
        self.emit(f"{short} if {length} < 128 else {long}")

    def measured(self, value: str, nullable: bool, size: str, null: str) -> tuple[str, str]:
        """Puts a value and its length into variables, the length as it is written; null becomes empty."""
        source = self.source
        length = source.fresh("length")
        plus = " + 1" * self.flexible
        target = self.local("value", value)
        if not nullable:
            source.line(f"{length} = {size.format(target)}{plus}")
            return target, length
        with source.block(f"if {target} is None:"):
            source.line(f"{target} = {null}")
            source.line(f"{length} = {-1 + self.flexible}")
        with source.block("else:"):
            source.line(f"{length} = {size.format(target)}{plus}")
        return target, length

    def text(self, value: str, nullable: bool) -> None:
        source = self.source
        if nullable:
            value = self.local("text", value)
            value = f"None if {value} is None else {value}.encode()"
        else:
            value += ".encode()"
        target, length = self.measured(value, nullable, "len({})", "b''")
        if self.flexible:
            with source.block(f"if {length} > {LONGEST_STRING_BYTES + 1}:"):
                source.line(f"refuse_string({length} - 1)")
        self.length("h", length)
        source.line(f"{self.add}({target})")

    def blob(self, value: str, nullable: bool) -> None:
        target, length = self.measured(value, nullable, "len({})", "b''")
        self.length("i", length)
        self.source.line(f"{self.add}({target})")

    def records(self, value: str, nullable: bool) -> None:
        """Ends the piece at hand: the records follow it as a part of their own."""
        source = self.source
        size = "(len({0}) if isinstance({0}, BUFFERS) else {0}.size_bytes)"
        target, length = self.measured(value, nullable, size, "b''")
        self.length("i", length)
        with source.block(f"if {length} > {int(self.flexible)}:"):
            source.line(f"parts += (b''.join(out), {target})")
            source.line("out.clear()")

    def array(self, value: str, element: Kind, nullable: bool) -> None:
        source = self.source
        target, length = self.measured(value, nullable, "len({})", "()")
        self.length("i", length)
        if isinstance(element, Fixed):
            codes = f"'{element.code}' * len({target})"
            if len(element.code) == 1:
                codes = f"f'{{len({target})}}{element.code}'"
            source.line(f"{self.add}(pack('>' + {codes}, *{target}))")
            return
        if isinstance(element, Nested) and element.struct.repeats and self.add == "add":
            self.repeated_elements(target, element)
        else:
            self.elements(target, element)

    def elements(self, target: str, element: Kind) -> None:
        source = self.source
        each = source.fresh("element")
        with source.block(f"for {each} in {target}:"):
            if self.in_steps:
                source.line("steps += 1")
                with source.block(f"if not steps & {STEP_ELEMENTS - 1}:"):
                    if self.is_joined_in_steps and self.add == "add":
                        with source.block(f"if len(out) > {JOINED_PIECES}:"):
                            source.line("parts.append(b''.join(out))")
                            source.line("out.clear()")
                    source.line("yield")
            if isinstance(element, Nested):
                self.struct(element.struct, each, source.place + ".")
            else:
                self.value(element, False, each)
            self.flush()

    def repeated_elements(self, target: str, element: Kind) -> None:
        """The same list may stand in many places: its bytes are made once."""
        source = self.source
        start = source.fresh("start")
        with source.block(f"if id({target}) in written:"):
            source.line(f"add(written[id({target})])")
        with source.block("else:"):
            source.line(f"{start} = len(out)")
            is_joined, self.is_joined_in_steps = self.is_joined_in_steps, False  # they are needed once more
            self.elements(target, element)
            self.is_joined_in_steps = is_joined
            source.line(f"written[id({target})] = b''.join(out[{start}:])")

    def nullable_struct(self, value: str, struct: type[Struct], null: str = "MINUS_ONE") -> None:
        source = self.source
        target = self.local("nested", value)
        self.flush()
        with source.block(f"if {target} is None:"):
            source.line(f"{self.add}({null})")
        with source.block("else:"):
            self.defer("b", "1")
            self.struct(struct, target, source.place + ".")
            self.flush()

    def tags(self, layout: Layout, owner: str, path: str) -> None:
        """Writes the tagged fields that are not their defaults; a zero, in the run, if there are none."""
        if not layout.tagged:
            self.defer("x", "")
            return
        source = self.source
        any_differs = " or ".join(self.is_written(owner, field) for field in layout.tagged)
        run, self.run = self.run, list(self.run)
        with source.block(f"if {any_differs}:"):
            self.flush()
            count = self.local("tags", "0")
            bodies = self.local("bodies", "[]")
            for field in layout.tagged:
                source.place = path + field.name
                with source.block(f"if {self.is_written(owner, field)}{self.not_default_struct(owner, field)}:"):
                    self.tag(field, f"{owner}.{field.name}", bodies)
                    source.line(f"{count} += 1")
            source.line(f"{self.add}(uvarint({count}))")
            source.line(f"{self.add}(b''.join({bodies}))")
        self.run = run
        with source.block("else:"):
            self.flush("x")

    def is_written(self, owner: str, field: Field) -> str:
        """Where a tagged struct can be null, leaving it out does not say so: to Kafka that is an empty one."""
        is_nullable_struct = isinstance(field.kind, Nested) and self.version in field.nullable
        return "True" if is_nullable_struct else self.differs(owner, field)

    def not_default_struct(self, owner: str, field: Field) -> str:
        """Kafka does not write a tagged struct that equals an empty one; ours may still be given."""
        if not isinstance(field.kind, Nested) or self.version in field.nullable:
            return ""
        empty = self.source.constant("default_struct", default_struct(field.kind.struct))
        return f" and {owner}.{field.name} != {empty}"

    def tag(self, field: Field, value: str, bodies: str) -> None:
        source = self.source
        outer, self.add = self.add, source.fresh("add")
        body = self.local("body", "[]")
        source.line(f"{self.add} = {body}.append")
        if isinstance(field.kind, Nested) and self.version in field.nullable:
            self.nullable_struct(value, field.kind.struct, "ZERO")  # a length here, where others have a sign
        else:
            self.value(field.kind, self.version in field.nullable, value)
        self.flush()
        self.add = outer
        source.line(f"{body} = b''.join({body})")
        source.line(f"{bodies} += [uvarint({field.tag}), uvarint(len({body})), {body}]")


def default_struct(struct: type[Struct]) -> Struct:
    """The struct with nothing said: only for those whose fields all have a default."""
    return struct()


def _refuse(value: object, versions: str) -> NoReturn:
    raise VersionTooLow(f"only versions {versions} can carry {value!r}")


def _refuse_string(length_bytes: int) -> NoReturn:
    raise ValueError(f"string of {length_bytes} bytes, {LONGEST_STRING_BYTES} at most are allowed")


def _explain(error: Exception, title: str, places: list[str]) -> NoReturn:
    """Says what could not be written. The line that failed tells the field, or the first of a run."""
    traceback = error.__traceback__
    place = places[traceback.tb_lineno] if traceback is not None else ""
    kind = VersionTooLow if isinstance(error, VersionTooLow) else ValueError
    raise kind(f"{title}: {place}: {error}") from error


_NAMES: dict[str, object] = {
    "BUFFERS": BUFFERS,
    "ERRORS": (ValueError, TypeError, AttributeError, OverflowError, struct.error),
    "MINUS_ONE": b"\xff",
    "ONE_BYTE": ONE_BYTE,
    "ZERO": b"\0",
    "explain": _explain,
    "pack": struct.pack,
    "refuse": _refuse,
    "refuse_string": _refuse_string,
    "uvarint": uvarint,
}
