# cython: boundscheck=False, wraparound=False
"""The wire's fast path: messages read and written by compiled code that goes through their layout.

It gives what the generated functions (reader.py, writer.py) give, and leaves to them what is not made as usual, and to
say what is wrong with it. Where this was not compiled they do all of it; the same text runs as Python for the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ottla.wire.apis import BY_KEY
from ottla.wire.header import RequestHeader, framed, has_tagged_response_header, read_request_header
from ottla.wire.layout import Array, Field, Nested, carries_repeats, layout_of
from ottla.wire.parts import BUFFERS, Buffer, Part
from ottla.wire.schema import REQUIRED, Message, Request, Response, Struct, constructor_order
from ottla.wire.types import Blob, Fixed, Kind, RecordsBlob, Text

try:
    import cython  # type: ignore[import-untyped]
except ModuleNotFoundError:
    from ottla.wire import octets as cython

if not cython.compiled:
    from ottla.wire.octets import (
        big_endian,
        get_slot,
        named_tuple,
        new,
        number_of,
        octets,
        put_big_endian,
        put_bytes,
        put_float,
        put_slot,
        put_text,
        read_bytes,
        read_float,
        read_text,
        read_uvarint,
        slot_of,
        taken,
        text_or_marks,
        text_size,
        view_of,
        writable,
    )

COMPILED: bool = cython.compiled

HEAD_BYTES = 2 + 2 + 4 + 2  # API, version, correlation id, length of the client id
ANSWER_HEAD_BYTES = 4 + 4  # size and correlation id
FIRST_BYTES = 512  # of what is written
MOST_KEPT_BYTES = 1 << 16  # of it, for the next
LONGEST_STRING_BYTES = 0x7FFF
UUID_BYTES = 16
MOST_INT32 = 0x7FFFFFFF
MOST_ELEMENTS = 25_000  # in all arrays of one request together
MOST_ELEMENTS_WITH_RECORDS = 10_000

SIGNED, UNSIGNED, BOOL, FLOAT, UUID, TEXT, BLOB, RECORDS, ARRAY, STRUCT = range(10)  # kinds of values
BEHIND_A_LENGTH: dict[type[Kind], int] = {Text: TEXT, Blob: BLOB, RecordsBlob: RECORDS}
FIXED = {"b": SIGNED, "h": SIGNED, "i": SIGNED, "q": SIGNED, "H": UNSIGNED, "?": BOOL, "d": FLOAT, "16s": UUID}

UNUSUAL = (TypeError, ValueError, OverflowError, AttributeError)  # what cannot be written so

KNOWN_APIS = {key: (api, api.flexible) for key, api in BY_KEY.items()}


def read_usual_header(frame: Buffer) -> RequestHeader:
    """The same as `read_request_header`."""
    view = view_of(frame)
    data = octets(view)
    end = view.nbytes
    if end < HEAD_BYTES:
        return read_request_header(frame)
    known = KNOWN_APIS.get(big_endian(data, 0, 2))
    version = big_endian(data, 2, 2)
    length = big_endian(data, 8, 2)
    if known is None or length > end - HEAD_BYTES:
        return read_request_header(frame)
    api, flexible = known
    position = HEAD_BYTES
    client_id = None
    if length >= 0:
        position += length
        client_id = text_or_marks(data, HEAD_BYTES, position)
    if version >= flexible:
        if position >= end or data[position]:
            return read_request_header(frame)
        position += 1
    header: RequestHeader = named_tuple(RequestHeader, (api, version, big_endian(data, 4, 4), client_id, position))
    return header


read_header: Callable[[Buffer], RequestHeader] = read_usual_header if COMPILED else read_request_header


# Layouts


class Step:
    """A value in a struct or an array: what it is, and where an object keeps it."""

    def __init__(
        self,
        kind: Kind,
        version: int,
        is_nullable: bool = False,
        slot: Any = 0,
        default: object = None,
        tag: int | None = None,
    ) -> None:
        self.slot = slot
        self.is_nullable = is_nullable
        self.default = default
        self.tag = -1 if tag is None else tag
        self.size = 0
        self.element: Any = None
        self.plan: Any = None
        self.last: Any = None  # of the texts that were read
        if isinstance(kind, Fixed):
            self.kind, self.size = FIXED[kind.code], kind.size_bytes
        elif isinstance(kind, Array):
            self.kind, self.element = ARRAY, Step(kind.element, version)
        elif isinstance(kind, Nested):
            self.kind, self.plan = STRUCT, plan_of(kind.struct, version)
        else:
            self.kind = BEHIND_A_LENGTH[type(kind)]


def steps_of(struct: type[Struct], fields: Sequence[Field], version: int) -> list[Step]:
    return [
        Step(field.kind, version, version in field.nullable, slot_of(struct, field.name), field.default, field.tag)
        for field in fields
    ]


class Plan:
    """A struct in one version."""

    def __init__(self, struct: type[Struct], version: int) -> None:
        layout = layout_of(struct, version)
        self.struct = struct
        self.positional = steps_of(struct, layout.positional, version)
        self.tagged = steps_of(struct, layout.tagged, version)
        self.absent = steps_of(struct, layout.absent, version)
        self.refused = steps_of(struct, layout.refused, version)


@cache
def plan_of(struct: type[Struct], version: int) -> Plan:
    return Plan(struct, version)


def has_nullable_tag(plan: Any) -> bool:
    """Whether a tagged struct may be null, which is written unlike anything else."""
    for step in (*plan.positional, *plan.tagged):
        while step.kind == ARRAY:
            step = step.element
        if step.kind == STRUCT and (has_nullable_tag(step.plan) or (step.tag >= 0 and step.is_nullable)):
            return True
    return False


def is_usual_message(message: type[Message], version: int) -> bool:
    """Whether it has nothing that only the generated functions know."""
    return not has_nullable_tag(plan_of(message, version)) and not carries_repeats(message, version)


class Constructor:
    """Makes structs of values in the order of their constructor, at a third of its cost."""

    def __init__(self, struct: type[Struct]) -> None:
        self.struct = struct
        defaults = [(name, struct.declared[name][1].default) for name in constructor_order(struct)]
        self.steps = [Step(Text(), 0, slot=slot_of(struct, name), default=default) for name, default in defaults]
        self.least = len([name for name, default in defaults if default is REQUIRED])

    def make(self, values: tuple[object, ...]) -> Any:
        given, count = len(values), len(self.steps)
        if given < self.least or given > count:
            raise TypeError(f"{self.struct.__name__} is not made of {given} values")
        made = new(self.struct)
        for number in range(count):
            step = self.steps[number]
            put_slot(made, step.slot, values[number] if number < given else default_of(step))
        return made


def default_of(step: Any) -> Any:
    return [] if type(step.default) is list else step.default


# Reading


class MessageReader:
    """Reads a message of one version."""

    def __init__(self, message: type[Message], version: int, generate: Callable[[type[Message], int], Any]) -> None:
        self.message = message
        self.version = version
        self.generate = generate
        self.otherwise: Any = None
        self.plan = plan_of(message, version)
        self.is_flexible = version in message.flexible
        self.most_elements = -1
        if issubclass(message, Request):
            self.most_elements = MOST_ELEMENTS_WITH_RECORDS if has_records(self.plan) else MOST_ELEMENTS

    def __call__(self, data: Buffer, position: int) -> tuple[Any, int]:
        cursor = Cursor(view_of(data), position, self.is_flexible, self.most_elements)
        try:
            made = cursor.struct(self.plan)
        except UnicodeDecodeError:
            made = None
        if made is None:
            if self.otherwise is None:
                self.otherwise = self.generate(self.message, self.version)
            return self.otherwise(data, position)  # type: ignore[no-any-return]
        return made, cursor.position


def has_records(plan: Any) -> bool:
    for step in (*plan.positional, *plan.tagged):
        while step.kind == ARRAY:
            step = step.element
        if step.kind == RECORDS or (step.kind == STRUCT and has_records(step.plan)):
            return True
    return False


class Cursor:
    """A place in a message that is read. What is not as usual ends it: nothing that was read counts then."""

    def __init__(self, view: memoryview, position: int, is_flexible: bool, most_elements: int) -> None:
        self.view = view
        self.data = octets(view)
        self.position = position
        self.end = view.nbytes
        self.is_flexible = is_flexible
        self.left = most_elements  # negative: any number
        self.is_limited = most_elements >= 0
        self.is_over = position < 0

    def struct(self, plan: Plan) -> Any:
        """None where something is not as usual."""
        made = new(plan.struct)
        for step in plan.positional:
            put_slot(made, step.slot, self.value(step))
            if self.is_over:
                return None
        for step in plan.absent:
            put_slot(made, step.slot, default_of(step))
        if self.is_flexible:
            if not plan.tagged and self.position < self.end and self.data[self.position] == 0:
                self.position += 1  # no tags, as ever
            elif not self.tags(plan, made):
                self.is_over = True
                return None
        return made

    def value(self, step: Step) -> Any:
        kind = step.kind
        start = self.position
        if kind <= UUID:
            stop = start + step.size
            if stop > self.end:
                self.is_over = True
                return None
            self.position = stop
            if kind == SIGNED:
                return big_endian(self.data, start, step.size)
            if kind == UUID:
                return read_bytes(self.data, start, stop)
            if kind == BOOL:
                return self.data[start] != 0
            if kind == UNSIGNED:
                return big_endian(self.data, start, 2) & 0xFFFF
            return read_float(self.data, start)
        if kind == STRUCT:
            return self.nested(step)
        length = self.length(2 if kind == TEXT else 4)
        if self.is_over or length < 0:
            if not step.is_nullable:
                self.is_over = True
            return None
        if kind == ARRAY:
            return self.array(step, length)
        start = self.position
        stop = start + length
        if stop > self.end or (kind == TEXT and length > LONGEST_STRING_BYTES):
            self.is_over = True
            return None
        self.position = stop
        if kind == TEXT:
            step.last = read_text(step.last, self.data, start, stop)
            return step.last
        if kind == BLOB:
            return read_bytes(self.data, start, stop)
        return self.view[start:stop]

    def length(self, size: int) -> int:
        """A length or count; negative: null."""
        if self.is_flexible:
            length, position = read_uvarint(self.data, self.position, self.end)
            if position < 0:
                self.is_over = True
                return 0
            self.position = position
            return length - 1
        position = self.position + size
        if position > self.end:
            self.is_over = True
            return 0
        self.position = position
        return big_endian(self.data, position - size, size)

    def array(self, step: Step, count: int) -> Any:
        element = step.element
        if count > self.end - self.position or not self.spend(count):
            self.is_over = True
            return None
        made: list[Any] = []
        for _ in range(count):
            if element.kind == STRUCT:
                made.append(self.struct(element.plan))
            else:
                made.append(self.value(element))
            if self.is_over:
                return None
        return made

    def spend(self, count: int) -> bool:
        if not self.is_limited:
            return True
        self.left -= count
        return self.left >= 0

    def nested(self, step: Step) -> Any:
        if step.is_nullable:
            if self.position >= self.end:
                self.is_over = True
                return None
            self.position += 1
            if self.data[self.position - 1] > 0x7F:
                return None
        made = self.struct(step.plan)
        if made is None:
            self.is_over = True
        return made

    def tags(self, plan: Plan, made: Any) -> bool:
        """False where something is not as usual."""
        for step in plan.tagged:
            put_slot(made, step.slot, default_of(step))
        count, position = read_uvarint(self.data, self.position, self.end)
        if position < 0 or not self.spend(count):
            return False
        for _ in range(count):
            tag, position = read_uvarint(self.data, position, self.end)
            if position < 0:
                return False
            size, position = read_uvarint(self.data, position, self.end)
            if position < 0 or size > self.end - position:
                return False
            self.position = position
            position += size
            for step in plan.tagged:
                if step.tag == tag:
                    put_slot(made, step.slot, self.value(step))
                    if self.is_over or self.position != position:
                        return False
        self.position = position
        return True


# Writing


class MessageWriter:
    """Writes a message of one version."""

    def __init__(self, message: type[Message], version: int, generate: Callable[[type[Message], int], Any]) -> None:
        self.message = message
        self.version = version
        self.generate = generate
        self.otherwise: Any = None
        self.plan = plan_of(message, version)
        self.is_flexible = version in message.flexible
        self.output: Output | None = None  # between two messages
        self.has_tagged_head = issubclass(message, Response) and has_tagged_response_header(message.api, version)

    def __call__(self, message: Message) -> list[Part]:
        output = self.taken_output()
        if not output.message(self.plan, message):
            return self.generated(message)
        parts = output.finished()
        self.output = output
        return parts

    def frame(self, correlation_id: int, response: Response) -> list[Part]:
        """An answer with its size and header in front."""
        output = self.taken_output()
        head_bytes = ANSWER_HEAD_BYTES + (1 if self.has_tagged_head else 0)
        output.room(head_bytes)
        output.position = head_bytes
        put_big_endian(writable(output.data), 4, correlation_id, 4)
        if self.has_tagged_head:
            put_big_endian(writable(output.data), 8, 0, 1)
        if not output.message(self.plan, response):
            return framed(correlation_id, self.has_tagged_head, self.generated(response))
        parts = output.framed()
        self.output = output
        return parts

    def taken_output(self) -> Output:
        output, self.output = self.output, None
        if output is None:
            output = Output(self.is_flexible)
        return output

    def generated(self, message: Message) -> list[Part]:
        if self.otherwise is None:
            self.otherwise = self.generate(self.message, self.version)
        return self.otherwise(message)  # type: ignore[no-any-return]


def encode_usual(correlation_id: int, response: Response, version: int) -> list[Part] | None:
    """The frame of an answer; None where this was not compiled, or only the generated functions know the message."""
    write = response.writers[version]
    return write.frame(correlation_id, response) if type(write) is MessageWriter else None


class Output:
    """What is written of a message: pieces, with the records between them, and the piece at hand."""

    def __init__(self, is_flexible: bool) -> None:
        self.is_flexible = is_flexible
        self.data = bytearray(FIRST_BYTES)
        self.size = FIRST_BYTES
        self.position = 0
        self.parts: list[Any] = []
        self.parts_bytes = 0

    def finished(self) -> list[Part]:
        parts = self.parts
        if self.position or not parts:
            parts.append(taken(self.data, self.position))
        self.begin()
        return parts

    def framed(self) -> list[Part]:
        """The same with the size of all in front."""
        size = self.parts_bytes + self.position - 4
        if not self.parts:
            put_big_endian(writable(self.data), 0, size, 4)
            return self.finished()
        first = bytearray(self.parts[0])
        put_big_endian(writable(first), 0, size, 4)
        self.parts[0] = first
        return self.finished()

    def begin(self) -> None:
        self.position = 0
        self.parts = []
        self.parts_bytes = 0
        if self.size > MOST_KEPT_BYTES:
            self.data, self.size = bytearray(FIRST_BYTES), FIRST_BYTES

    def room(self, count: int) -> None:
        """Have so many bytes behind the position."""
        if self.position + count > self.size:
            self.size = 2 * self.size + count
            self.data = self.data + bytearray(self.size - len(self.data))

    def message(self, plan: Plan, message: Any) -> bool:
        """False where something is not as usual: nothing that was written counts then."""
        try:
            return self.struct(plan, message)
        except UNUSUAL:
            return False

    def struct(self, plan: Plan, owner: Any) -> bool:
        if type(owner) is not plan.struct:
            return False
        for step in plan.refused:
            if not is_default(get_slot(owner, step.slot), step.default):
                return False
        for step in plan.positional:
            if not self.value(step, get_slot(owner, step.slot)):
                return False
        if not self.is_flexible:
            return True
        if plan.tagged:
            return self.tags(plan, owner)
        self.room(1)
        self.position = put_big_endian(writable(self.data), self.position, 0, 1)
        return True

    def value(self, step: Step, value: Any) -> bool:
        kind = step.kind
        if kind <= FLOAT:
            return self.number(step, value)
        if kind == STRUCT:
            return self.nested(step, value)
        if kind == UUID:
            if type(value) is not bytes or len(value) != UUID_BYTES:
                return False
            self.room(UUID_BYTES)
            self.position = put_bytes(writable(self.data), self.position, value)
            return True
        length_bytes = 2 if kind == TEXT else 4
        if value is None:
            self.length(-1, length_bytes)
            return step.is_nullable
        if kind == TEXT:
            return self.text(value)
        if kind == ARRAY:
            return self.array(step, value)
        if kind == BLOB:
            if type(value) is not bytes:
                return False
            size = len(value)
            self.length(size, 4)
            self.room(size)
            self.position = put_bytes(writable(self.data), self.position, value)
            return True
        size = len(value) if isinstance(value, BUFFERS) else value.size_bytes
        if size > MOST_INT32:
            return False
        self.length(size, 4)
        if size > 0:
            self.parts.append(taken(self.data, self.position))
            self.parts.append(value)
            self.parts_bytes += self.position + size
            self.position = 0
        return True

    def number(self, step: Step, value: Any) -> bool:
        kind, size = step.kind, step.size
        self.room(8)
        if kind == FLOAT:
            put_float(writable(self.data), self.position, value)
            self.position += 8
            return True
        if kind == BOOL:
            self.position = put_big_endian(writable(self.data), self.position, 1 if value else 0, 1)
            return True
        number = number_of(value)
        if kind == UNSIGNED:
            if number < 0 or number > 0xFFFF:
                return False
        elif size == 2:
            if number < -0x8000 or number > 0x7FFF:
                return False
        elif size == 4:
            if number < -0x80000000 or number > 0x7FFFFFFF:
                return False
        elif size == 1 and (number < -0x80 or number > 0x7F):
            return False
        self.position = put_big_endian(writable(self.data), self.position, number, size)
        return True

    def length(self, length: int, size: int) -> None:
        """A length or count; -1: null."""
        self.room(5)
        if self.is_flexible:
            self.uvarint(length + 1)
        else:
            self.position = put_big_endian(writable(self.data), self.position, length, size)

    def uvarint(self, value: int) -> None:
        """There is room for it."""
        while value > 0x7F:
            self.position = put_big_endian(writable(self.data), self.position, value & 0x7F | 0x80, 1)
            value >>= 7
        self.position = put_big_endian(writable(self.data), self.position, value, 1)

    def text(self, value: Any) -> bool:
        if type(value) is not str:
            return False
        size = text_size(value)
        if size > LONGEST_STRING_BYTES:
            return False
        self.length(size, 2)
        self.room(size)
        self.position = put_text(writable(self.data), self.position, value, size)
        return True

    def array(self, step: Step, value: Any) -> bool:
        if type(value) is not list:
            return False
        element = step.element
        self.length(len(value), 4)
        for each in value:
            if element.kind == STRUCT:
                if not self.struct(element.plan, each):
                    return False
            elif not self.value(element, each):
                return False
        return True

    def nested(self, step: Step, value: Any) -> bool:
        if step.is_nullable:
            self.room(1)
            self.position = put_big_endian(writable(self.data), self.position, -1 if value is None else 1, 1)
            if value is None:
                return True
        return self.struct(step.plan, value)

    def tags(self, plan: Plan, owner: Any) -> bool:
        """Those that are not their defaults; none of more than 127 bytes."""
        count = 0
        for step in plan.tagged:
            if is_tag_written(step, get_slot(owner, step.slot)):
                count += 1
        self.room(5)
        self.uvarint(count)
        if count == 0:
            return True
        for step in plan.tagged:
            value = get_slot(owner, step.slot)
            if not is_tag_written(step, value):
                continue
            self.room(6)
            self.uvarint(step.tag)
            start = self.position = self.position + 1
            if not self.value(step, value) or self.position - start > 0x7F or self.position < start:
                return False
            put_big_endian(writable(self.data), start - 1, self.position - start, 1)
        return True


def is_default(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if default is None:
        return False
    if type(default) is list and type(value) is list:
        return len(value) == 0
    return bool(value == default)


def is_tag_written(step: Any, value: Any) -> bool:
    if is_default(value, step.default):
        return False
    return step.kind != STRUCT or bool(value != empty(step.plan.struct))


@cache
def empty(struct: Any) -> Any:
    """The struct with nothing said: Kafka does not write a tagged one that equals it."""
    return struct()
