# cython: boundscheck=False, wraparound=False, cdivision=True
"""Rows of the binlog, straight to JSON. This is done for every column of every row, so it is compiled.

row_image.pxd gives it C types; where it was not compiled the same text runs as Python. No object is made for a column:
the digits and the text are written where they belong. What is rare (other character sets, bytes, enums of many values)
is left to functions that each make the JSON of one value.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from ottla.connect.mysql.layout import (
    BIT,
    CHOICE,
    DATE,
    DATETIME,
    DATETIME2,
    DECIMAL,
    DOUBLE,
    FLOAT,
    SIGNED,
    TEXT,
    TIME,
    TIME2,
    TIMESTAMP,
    TIMESTAMP2,
    UNSIGNED,
    WIDE_BIT,
    WIDE_UNSIGNED,
    YEAR,
    ColumnLayout,
)
from ottla.connect.mysql.values import quoted

try:
    import cython  # type: ignore[import-untyped]
except ModuleNotFoundError:
    from ottla.records import memory as cython

if not cython.compiled:
    from ottla.connect.mysql.row_memory import (
        big_endian_unsigned,
        double_at,
        float_at,
        little_endian,
        little_endian_signed,
        put_digits,
        put_escaped,
        put_number,
        put_unsigned,
    )
    from ottla.records.memory import copy, int32s, int64s, resize, writable

COMPILED = cython.compiled

ROOM = 128
"""Enough for whatever is written of a value that is not text."""
SECONDS_A_DAY = 86_400
LAST_DATETIME = 99_991_231_235_959
NULL = b"null"
# How many bytes the digits of a decimal take that do not fill four bytes of nine digits.
DIGIT_BYTES = array("i", [0, 1, 1, 2, 2, 3, 3, 4, 4, 4])
FRACTION_SCALE = array("i", [1, 10_000, 10_000, 100, 100, 1, 1])


def escaped(text: bytes) -> bytes:
    """The inside of a JSON string. What is no UTF-8 is repaired."""
    string = quoted(text.decode("utf-8", "replace"))
    return string[1 : len(string) - 1]


class CorruptRow(ValueError):
    """The bytes are not a row of this table."""


class RowImage:
    """How the rows of one table are read. Not to be shared between threads: it keeps the memory it writes to."""

    def __init__(self, columns: Sequence[ColumnLayout], keys: Sequence[int]) -> None:
        self.count = len(columns)
        self.kinds = array("i", [column.kind for column in columns])
        self.sizes = array("i", [column.size for column in columns])
        self.extras = array("i", [column.extra for column in columns])
        self.makers: list[Any] = [column.make for column in columns]
        self.names = [quoted(column.name) + b":" for column in columns]
        self.keys = list(keys)
        self.key_starts = array("q", [0] * len(columns))
        self.key_ends = array("q", [0] * len(columns))
        self.out = bytearray(4096)
        self.at = 0
        self.position = 0
        """Behind the last row that was read."""

    def decode(self, data: bytes, position: int, present: bytes) -> tuple[bytes, bytes | None]:
        """The row at `position` as a JSON object, and its key as one; None where a part of the key is not there.

        `present` has a bit for each column that the row image holds.
        """
        end = len(data)
        shown = 0
        for index in range(self.count):
            if present[index >> 3] >> (index & 7) & 1:
                shown += 1
        nulls_at = position
        position += (shown + 7) >> 3
        if position > end:
            raise CorruptRow("a row is cut")
        self.at = 0
        self.put_byte(0x7B)
        number = 0
        for index in range(self.count):
            if not present[index >> 3] >> (index & 7) & 1:
                int64s(self.key_ends)[index] = -1
                continue
            if number:
                self.put_byte(0x2C)
            int64s(self.key_starts)[index] = self.at
            self.put_bytes(self.names[index])
            if data[nulls_at + (number >> 3)] >> (number & 7) & 1:
                self.put_bytes(NULL)
            else:
                position = self.put_value(data, position, end, index)
            int64s(self.key_ends)[index] = self.at
            number += 1
        self.put_byte(0x7D)
        self.position = position
        row = bytes(memoryview(self.out)[: self.at])
        return row, self.key_of(row)

    def key_of(self, row: bytes) -> bytes | None:
        if not self.keys:
            return None
        parts = []
        for index in self.keys:
            if int64s(self.key_ends)[index] < 0:
                return None
            parts.append(row[int64s(self.key_starts)[index] : int64s(self.key_ends)[index]])
        return b"{" + b",".join(parts) + b"}"

    # Writing.

    def reserve(self, size: int) -> None:
        if self.at + size > len(self.out):
            resize(self.out, (self.at + size) * 2)

    def put_byte(self, byte: int) -> None:
        self.reserve(1)
        writable(self.out)[self.at] = byte
        self.at += 1

    def put_bytes(self, text: bytes) -> None:
        size = len(text)
        self.reserve(size)
        copy(writable(self.out), self.at, text, size)
        self.at += size

    def put_value(self, data: bytes, position: int, end: int, index: int) -> int:
        """Writes one value; the position behind it."""
        kind = int32s(self.kinds)[index]
        size = int32s(self.sizes)[index]
        extra = int32s(self.extras)[index]
        if kind >= TEXT:
            if position + size > end:
                raise CorruptRow("a row is cut")
            length = little_endian(data, position, size)
            position += size
            if length > end - position:
                raise CorruptRow("a row is cut")
            if kind == TEXT:
                self.reserve(6 * length + 2)
                target = writable(self.out)
                target[self.at] = 0x22
                at = put_escaped(target, self.at + 1, data, position, length)
                target[at] = 0x22
                self.at = at + 1
            else:
                self.put_bytes(self.makers[index](data[position : position + length]))
            return position + length
        if kind == DECIMAL:
            return self.put_decimal(data, position, end, size, extra)
        if kind in (TIMESTAMP2, DATETIME2, TIME2):
            size += (extra + 1) >> 1
        if position + size > end:
            raise CorruptRow("a row is cut")
        self.reserve(ROOM)
        target = writable(self.out)
        if kind == SIGNED:
            self.at = put_number(target, self.at, little_endian_signed(data, position, size))
        elif kind == UNSIGNED:
            self.at = put_unsigned(target, self.at, little_endian(data, position, size))
        elif kind == BIT:
            self.at = put_unsigned(target, self.at, big_endian_unsigned(data, position, size))
        elif kind in (WIDE_UNSIGNED, WIDE_BIT):
            target[self.at] = 0x22
            if kind == WIDE_BIT:
                at = put_unsigned(target, self.at + 1, big_endian_unsigned(data, position, size))
            else:
                at = put_unsigned(target, self.at + 1, little_endian(data, position, size))
            target[at] = 0x22
            self.at = at + 1
        elif kind == FLOAT:
            self.put_bytes(repr(float_at(data, position)).encode())
        elif kind == DOUBLE:
            self.put_bytes(repr(double_at(data, position)).encode())
        elif kind == CHOICE:
            self.put_bytes(self.makers[index](little_endian(data, position, size)))
        elif kind == YEAR:
            year = data[position]
            self.at = put_number(target, self.at, 1900 + year if year else 0)
        else:
            self.put_moment(data, position, size, kind, extra)
        return position + size

    # Decimals: nine digits in four bytes, big-endian, the digits that are left over in fewer.

    def put_decimal(self, data: bytes, position: int, end: int, precision: int, scale: int) -> int:
        whole = precision - scale
        first_digits = whole % 9
        last_digits = scale % 9
        size = int32s(DIGIT_BYTES)[first_digits] + whole // 9 * 4 + scale // 9 * 4 + int32s(DIGIT_BYTES)[last_digits]
        if size == 0 or position + size > end:
            raise CorruptRow("a row is cut")
        self.reserve(ROOM)
        out = writable(self.out)
        at = self.at
        is_negative = not data[position] & 0x80
        mask = 0xFFFFFFFF if is_negative else 0
        out[at] = 0x22
        at += 1
        if is_negative:
            out[at] = 0x2D
            at += 1
        is_begun = False
        flip = 0x80
        groups = whole // 9
        for group in range(-1, groups):
            count = first_digits if group < 0 else 9
            if count == 0:
                continue
            part_size = int32s(DIGIT_BYTES)[count]
            number = self.group(data, position, part_size, mask, flip)
            flip = 0
            position += part_size
            if is_begun:
                at = put_digits(out, at, number, count)
            elif number:
                at = put_unsigned(out, at, number)
                is_begun = True
        if not is_begun:
            out[at] = 0x30
            at += 1
        if scale:
            out[at] = 0x2E
            at += 1
            for group in range(scale // 9 + 1):
                count = 9 if group < scale // 9 else last_digits
                if count == 0:
                    continue
                part_size = int32s(DIGIT_BYTES)[count]
                at = put_digits(out, at, self.group(data, position, part_size, mask, flip), count)
                flip = 0
                position += part_size
        out[at] = 0x22
        self.at = at + 1
        return position

    def group(self, data: bytes, position: int, size: int, mask: int, flip: int) -> int:
        """A group of digits. The first byte of all has its highest bit turned; a negative number all of them."""
        number = big_endian_unsigned(data, position, size) ^ flip << (8 * size - 8)
        return (number ^ mask) & (0xFFFFFFFF >> (32 - 8 * size))

    # Dates and times: ISO 8601; null for days that are in no calendar, as 0000-00-00.

    def put_moment(self, data: bytes, position: int, size: int, kind: int, digits: int) -> None:
        fraction = 0
        if kind == DATE:
            packed = little_endian(data, position, 3)
            self.put_date(packed >> 9, packed >> 5 & 15, packed & 31, True)
        elif kind == DATETIME2:
            packed = big_endian_unsigned(data, position, 5) - 0x8000000000
            if size > 5:
                fraction = big_endian_unsigned(data, position + 5, size - 5) * int32s(FRACTION_SCALE)[digits]
            months = packed >> 22
            if packed < 0:
                self.put_bytes(NULL)  # no server writes that
            elif self.put_date(months // 13, months % 13, packed >> 17 & 31, False):
                self.put_clock(packed >> 12 & 31, packed >> 6 & 63, packed & 63, fraction, digits)
        elif kind in (TIMESTAMP2, TIMESTAMP):
            if kind == TIMESTAMP:
                packed = little_endian(data, position, 4)
            else:
                packed = big_endian_unsigned(data, position, 4)
            if size > 4:
                fraction = big_endian_unsigned(data, position + 4, size - 4) * int32s(FRACTION_SCALE)[digits]
            self.put_seconds(packed, fraction, digits)
        elif kind == DATETIME:
            packed = little_endian(data, position, 8)
            day = packed // 1_000_000
            clock = packed % 1_000_000
            if packed < 0 or packed > LAST_DATETIME:
                self.put_bytes(NULL)
            elif self.put_date(day // 10_000, day // 100 % 100, day % 100, False):
                self.put_clock(clock // 10_000, clock // 100 % 100, clock % 100, 0, 0)
        else:
            self.put_duration(data, position, size, kind, digits)

    def put_date(self, year: int, month: int, day: int, is_whole: bool) -> bool:
        """Whether there is such a day; else null is written. A clock may follow, unless it is whole."""
        out = writable(self.out)
        at = self.at
        if month == 0 or day == 0 or year == 0:
            self.put_bytes(NULL)
            return False
        out[at] = 0x22
        at = put_digits(out, at + 1, year, 4)
        out[at] = 0x2D
        at = put_digits(out, at + 1, month, 2)
        out[at] = 0x2D
        at = put_digits(out, at + 1, day, 2)
        if is_whole:
            out[at] = 0x22
            at += 1
        self.at = at
        return True

    def put_clock(self, hour: int, minute: int, second: int, fraction: int, digits: int) -> None:
        out = writable(self.out)
        at = self.at
        out[at] = 0x54
        at = put_digits(out, at + 1, hour, 2)
        out[at] = 0x3A
        at = put_digits(out, at + 1, minute, 2)
        out[at] = 0x3A
        at = put_digits(out, at + 1, second, 2)
        if digits:
            out[at] = 0x2E
            at = put_digits(out, at + 1, fraction, 6)
        out[at] = 0x22
        self.at = at + 1

    def put_seconds(self, seconds: int, fraction: int, digits: int) -> None:
        """Since 1970, in UTC. 0 stands for no time at all."""
        if seconds == 0 and fraction == 0:
            self.put_bytes(NULL)
            return
        days = seconds // SECONDS_A_DAY
        rest = seconds % SECONDS_A_DAY
        # Days since the 1st of March of the year 0, in cycles of 400 years: 146,097 days.
        days += 719_468
        cycle = days // 146_097
        day_of_cycle = days - cycle * 146_097
        year_of_cycle = (day_of_cycle - day_of_cycle // 1460 + day_of_cycle // 36_524 - day_of_cycle // 146_096) // 365
        day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle // 4 - year_of_cycle // 100)
        march_month = (5 * day_of_year + 2) // 153
        day = day_of_year - (153 * march_month + 2) // 5 + 1
        month = march_month + 3 if march_month < 10 else march_month - 9
        year = year_of_cycle + cycle * 400 + (1 if month <= 2 else 0)
        self.put_date(year, month, day, False)
        self.put_clock(rest // 3600, rest // 60 % 60, rest % 60, fraction, digits)

    def put_duration(self, data: bytes, position: int, size: int, kind: int, digits: int) -> None:
        fraction = 0
        if kind == TIME:
            packed = little_endian_signed(data, position, 3)
            is_negative = packed < 0
            if is_negative:
                packed = -packed
            hour, minute, second = packed // 10_000, packed // 100 % 100, packed % 100
        else:
            fraction_bits = 8 * (size - 3)
            middle = 0x800000
            middle <<= fraction_bits  # in two steps: the first number is no wider than it must be
            packed = big_endian_unsigned(data, position, size) - middle
            is_negative = packed < 0
            if is_negative:
                packed = -packed
            if fraction_bits:
                fraction = packed & ((1 << fraction_bits) - 1)
                packed = packed >> fraction_bits
                fraction *= int32s(FRACTION_SCALE)[digits]
            hour, minute, second = packed >> 12 & 1023, packed >> 6 & 63, packed & 63
        out = writable(self.out)
        at = self.at
        out[at] = 0x22
        at += 1
        if is_negative:
            out[at] = 0x2D
            at += 1
        if hour >= 100:
            at = put_digits(out, at, hour, 3)
        else:
            at = put_digits(out, at, hour, 2)
        out[at] = 0x3A
        at = put_digits(out, at + 1, minute, 2)
        out[at] = 0x3A
        at = put_digits(out, at + 1, second, 2)
        if digits:
            out[at] = 0x2E
            at = put_digits(out, at + 1, fraction, 6) - 6 + digits
        out[at] = 0x22
        self.at = at + 1
