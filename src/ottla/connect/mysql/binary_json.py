# cython: boundscheck=False, wraparound=False, cdivision=True
"""MySQL's binary JSON, as it stands in the binlog, as the text that MySQL itself shows of it.

A document is a byte with its type and a value. Objects and arrays begin with how many there are and with their size,
and have a table of where their keys and values are, counted from their own first byte; small values stand in the table.
Compiled as row_image.py is; binary_json.pxd has the C types.
"""

from __future__ import annotations

import binascii
from decimal import Decimal

from ottla.connect.mysql import layout
from ottla.connect.mysql.layout import ColumnLayout
from ottla.connect.mysql.row_image import CorruptRow, RowImage
from ottla.connect.mysql.values import quoted

try:
    import cython  # type: ignore[import-untyped]
except ModuleNotFoundError:
    from ottla.records import memory as cython

if not cython.compiled:
    from ottla.connect.mysql.row_memory import double_at, little_endian, little_endian_signed

COMPILED = cython.compiled

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL = 0, 1, 2, 3, 4
INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE, STRING, OPAQUE = 5, 6, 7, 8, 9, 10, 11, 12, 15
MOST_DEPTH = 100
"""MySQL takes no document that is deeper."""
LITERALS = (b"null", b"true", b"false")
SIZES = (0, 0, 0, 0, 1, 2, 2, 4, 4, 8, 8, 8)
TIMESTAMP, DATE, TIME, DATETIME, DECIMAL = 7, 10, 11, 12, 246
FIRST_EXPONENT, LAST_EXPONENT = -15, 14
"""Of a double that is written without an exponent."""
LEAST_PLAIN, MOST_PLAIN = 1e-4, 1e15
"""Between these Python writes it as MySQL does."""
BASE64_LINE_BYTES = 57
"""MySQL writes 76 digits of base64 in a line."""


class BinaryJson:
    """One document at a time. Not to be shared between threads."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.left = 0
        """How many bytes of the document are not read yet. No byte belongs to two values: crooked bytes, where many
        values are in one place, would be a text without an end."""

    def to_json(self, data: bytes) -> bytes:
        """The text as a JSON string. A document of no bytes is null, as in MySQL."""
        text = self.text(data) if data else LITERALS[0]
        return quoted(text.decode("utf-8", "replace"))

    def text(self, data: bytes) -> bytes:
        self.parts = []
        self.left = len(data)
        self.spend(1)
        self.put(data, data[0], 1, 0)
        return b"".join(self.parts)

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise CorruptRow("a JSON document is cut, or its values overlap")

    def check(self, data: bytes, position: int, size: int) -> None:
        if position < 0 or size < 0 or size > len(data) - position:
            raise CorruptRow("a JSON document is cut")
        self.spend(size)

    def put(self, data: bytes, kind: int, position: int, depth: int) -> None:
        if kind <= LARGE_ARRAY:
            self.put_container(data, kind, position, depth + 1)
        elif kind <= DOUBLE:
            self.check(data, position, SIZES[kind])
            self.put_scalar(data, kind, position)
        elif kind == STRING:
            size = self.length(data, position)
            position += length_bytes(size)
            self.check(data, position, size)
            self.put_text(data[position : position + size])
        elif kind == OPAQUE:
            self.check(data, position, 1)
            size = self.length(data, position + 1)
            start = position + 1 + length_bytes(size)
            self.check(data, start, size)
            self.parts.append(opaque_text(data[position], data[start : start + size]))
        else:
            raise CorruptRow(f"a JSON document has a value of type {kind}, which is not known")

    def put_container(self, data: bytes, kind: int, start: int, depth: int) -> None:
        if depth > MOST_DEPTH:
            raise CorruptRow(f"a JSON document is deeper than {MOST_DEPTH}")
        parts = self.parts
        width = 4 if kind in (LARGE_OBJECT, LARGE_ARRAY) else 2
        is_object = kind <= LARGE_OBJECT
        self.check(data, start, 2 * width)
        count = little_endian(data, start, width)
        size = little_endian(data, start + width, width)
        keys_at = start + 2 * width
        values_at = keys_at + (count * (width + 2) if is_object else 0)
        if size > len(data) - start or values_at + count * (1 + width) - start > size:
            raise CorruptRow("a JSON document is cut")
        self.spend(values_at + count * (1 + width) - keys_at)
        parts.append(b"{" if is_object else b"[")
        for index in range(count):
            if index:
                parts.append(b", ")
            if is_object:
                entry = keys_at + index * (width + 2)
                key_at = start + little_endian(data, entry, width)
                key_bytes = little_endian(data, entry + width, 2)
                self.check(data, key_at, key_bytes)
                self.put_text(data[key_at : key_at + key_bytes])
                parts.append(b": ")
            entry = values_at + index * (1 + width)
            value_kind = data[entry]
            if LITERAL <= value_kind <= UINT16 or (width == 4 and INT32 <= value_kind <= UINT32):
                self.put_scalar(data, value_kind, entry + 1)
            else:
                self.put(data, value_kind, start + little_endian(data, entry + 1, width), depth)
        parts.append(b"}" if is_object else b"]")

    def put_scalar(self, data: bytes, kind: int, position: int) -> None:
        if kind == LITERAL:
            which = data[position]
            if which > 2:
                raise CorruptRow(f"a JSON document has a literal {which}, which is not known")
            self.parts.append(LITERALS[which])
        elif kind in (INT16, INT32, INT64):
            self.parts.append(b"%d" % little_endian_signed(data, position, SIZES[kind]))
        elif kind == DOUBLE:
            self.parts.append(double_text(double_at(data, position)))
        else:
            self.parts.append(b"%d" % little_endian(data, position, SIZES[kind]))

    def put_text(self, text: bytes) -> None:
        self.parts.append(quoted(text.decode("utf-8", "replace")))

    def length(self, data: bytes, position: int) -> int:
        """Seven bits in each byte, the lowest first; the highest bit says that there are more."""
        size = 0
        for index in range(5):
            self.check(data, position + index, 1)
            byte = data[position + index]
            size |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if index and not byte:
                    break
                return size
        raise CorruptRow("a JSON document has a length that is none")


def length_bytes(size: int) -> int:
    """How many bytes such a length takes."""
    count = 1
    while size >= 0x80:
        size >>= 7
        count += 1
    return count


def double_text(number: float) -> bytes:
    """The shortest digits that mean it; with an exponent where it is far from 1."""
    size = abs(number)
    if size == 0 or LEAST_PLAIN <= size < MOST_PLAIN:
        return repr(number).encode()
    sign, digits, shift = Decimal(repr(number)).normalize().as_tuple()
    if not isinstance(shift, int):
        raise CorruptRow("a JSON document has a number that is none")
    text = "".join(map(str, digits))
    count = len(text)
    exponent = count - 1 + shift
    minus = "-" if sign else ""
    if exponent < FIRST_EXPONENT or (exponent > LAST_EXPONENT and count <= exponent + 1):
        point = "." if count > 1 else ""
        return f"{minus}{text[0]}{point}{text[1:]}e{exponent}".encode()
    if exponent < 0:
        return f"{minus}0.{'0' * (-exponent - 1)}{text}".encode()
    return f"{minus}{text[: exponent + 1]}.{text[exponent + 1 :]}".encode()


def opaque_text(kind: int, data: bytes) -> bytes:
    """Values that JSON does not have, by the number of the type of a column."""
    if kind == DECIMAL:
        return _decimal_text(data)
    if kind in (TIMESTAMP, DATE, TIME, DATETIME):
        if len(data) != 8:
            raise CorruptRow("a JSON document has a time that is cut")
        return _moment_text(kind, int.from_bytes(data, "little", signed=True))
    lines = [
        binascii.b2a_base64(data[start : start + BASE64_LINE_BYTES], newline=False)
        for start in range(0, len(data), BASE64_LINE_BYTES)
    ]
    return b'"base64:type%d:%s"' % (kind, b"\\n".join(lines))


def _decimal_text(data: bytes) -> bytes:
    """Its digits, its digits behind the point, and the value as in a column of that type."""
    if len(data) < 2 or not 1 <= data[0] <= 65 or data[1] > min(data[0], 30):
        raise CorruptRow("a JSON document has a decimal that is none")
    image = RowImage([ColumnLayout("", layout.DECIMAL, data[0], data[1])], [])
    row, _ = image.decode(b"\0" + data[2:], 0, b"\x01")
    return row.removeprefix(b'{"":"').removesuffix(b'"}')


def _moment_text(kind: int, packed: int) -> bytes:
    sign = "-" if packed < 0 else ""
    packed = abs(packed)
    whole, fraction = packed >> 24, packed & 0xFFFFFF
    minute, second = whole >> 6 & 63, whole & 63
    if kind == TIME:
        return f'"{sign}{whole >> 12 & 1023:02d}:{minute:02d}:{second:02d}.{fraction:06d}"'.encode()
    months, day = whole >> 22, whole >> 17 & 31
    date = f"{sign}{months // 13:04d}-{months % 13:02d}-{day:02d}"
    if kind == DATE:
        return f'"{date}"'.encode()
    return f'"{date} {whole >> 12 & 31:02d}:{minute:02d}:{second:02d}.{fraction:06d}"'.encode()
