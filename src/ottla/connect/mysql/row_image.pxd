# The C types of row_image.py, and the C twins of row_memory.py. Read row_image.py first; nothing here adds behaviour.
cimport cython
from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

ctypedef const uint8_t* octets_t

cdef int SIGNED, UNSIGNED, WIDE_UNSIGNED, FLOAT, DOUBLE, DECIMAL
cdef int DATE, TIME, DATETIME, TIMESTAMP, TIMESTAMP2, DATETIME2, TIME2, YEAR
cdef int BIT, WIDE_BIT, CHOICE, TEXT
cdef int ROOM, SECONDS_A_DAY
cdef int64_t LAST_DATETIME
cdef bytes NULL
cdef array.array DIGIT_BYTES, FRACTION_SCALE

cdef inline octets_t at_of(bytes data, Py_ssize_t position) noexcept:
    return <octets_t> PyBytes_AS_STRING(data) + position

cdef inline uint64_t little_endian(bytes data, Py_ssize_t position, int size) noexcept:
    cdef octets_t here = at_of(data, position)
    cdef uint64_t number = 0
    cdef int index
    for index in range(size):
        number |= <uint64_t> here[index] << (8 * index)
    return number

cdef inline int64_t little_endian_signed(bytes data, Py_ssize_t position, int size) noexcept:
    cdef uint64_t number = little_endian(data, position, size)
    if size < 8 and number >> (8 * size - 1):
        number |= ~<uint64_t> 0 << (8 * size)
    return <int64_t> number

cdef inline uint64_t big_endian_unsigned(bytes data, Py_ssize_t position, int size) noexcept:
    cdef octets_t here = at_of(data, position)
    cdef uint64_t number = 0
    cdef int index
    for index in range(size):
        number = number << 8 | here[index]
    return number

cdef inline double float_at(bytes data, Py_ssize_t position) noexcept:
    cdef float number
    memcpy(&number, at_of(data, position), 4)
    return number

cdef inline double double_at(bytes data, Py_ssize_t position) noexcept:
    cdef double number
    memcpy(&number, at_of(data, position), 8)
    return number

cdef inline uint8_t* writable(bytearray out) noexcept:
    return <uint8_t*> PyByteArray_AS_STRING(out)

cdef inline int32_t* int32s(array.array numbers) noexcept:
    return <int32_t*> numbers.data.as_chars

cdef inline int64_t* int64s(array.array numbers) noexcept:
    return <int64_t*> numbers.data.as_chars

cdef inline int resize(bytearray out, Py_ssize_t size) except -1:
    return PyByteArray_Resize(out, size)

cdef inline void copy(uint8_t* out, Py_ssize_t position, bytes source, Py_ssize_t size) noexcept:
    memcpy(out + position, PyBytes_AS_STRING(source), size)

cdef inline Py_ssize_t put_unsigned(uint8_t* out, Py_ssize_t at, uint64_t number) noexcept:
    cdef uint8_t digits[20]
    cdef int count = 0
    while True:
        digits[count] = <uint8_t> (0x30 + number % 10)
        count += 1
        number //= 10
        if number == 0:
            break
    while count:
        count -= 1
        out[at] = digits[count]
        at += 1
    return at

cdef inline Py_ssize_t put_number(uint8_t* out, Py_ssize_t at, int64_t number) noexcept:
    if number < 0:
        out[at] = 0x2D
        return put_unsigned(out, at + 1, ~<uint64_t> number + 1)
    return put_unsigned(out, at, <uint64_t> number)

cdef inline Py_ssize_t put_digits(uint8_t* out, Py_ssize_t at, uint64_t number, int count) noexcept:
    cdef int index
    for index in range(count - 1, -1, -1):
        out[at + index] = <uint8_t> (0x30 + number % 10)
        number //= 10
    return at + count

cdef inline bint is_plain(octets_t here, Py_ssize_t size) noexcept:
    cdef Py_ssize_t index
    cdef uint8_t byte
    for index in range(size):
        byte = here[index]
        if byte < 0x20 or byte == 0x22 or byte == 0x5C or byte >= 0x80:
            return False
    return True

# ASCII without anything to escape is copied; all else goes the way that Python has.
cdef inline Py_ssize_t put_escaped(uint8_t* out, Py_ssize_t at, bytes data, Py_ssize_t start, Py_ssize_t size) except -1:
    cdef octets_t here = at_of(data, start)
    cdef Py_ssize_t index
    cdef uint8_t byte
    cdef bytes text
    if is_plain(here, size):
        memcpy(out + at, here, size)
        return at + size
    text = escaped(data[start:start + size])
    memcpy(out + at, PyBytes_AS_STRING(text), len(text))
    return at + len(text)

cpdef bytes escaped(bytes text)

@cython.final
cdef class RowImage:
    cdef Py_ssize_t count
    cdef array.array kinds, sizes, extras, key_starts, key_ends
    cdef list makers, names, keys
    cdef bytearray out
    cdef Py_ssize_t at
    cdef readonly Py_ssize_t position

    @cython.locals(end=Py_ssize_t, shown=Py_ssize_t, nulls_at=Py_ssize_t, index=Py_ssize_t, number=Py_ssize_t, row=bytes)
    cpdef tuple decode(self, bytes data, Py_ssize_t position, bytes present)

    @cython.locals(index=Py_ssize_t, parts=list)
    cdef object key_of(self, bytes row)

    cdef void reserve(self, Py_ssize_t size) except *
    cdef void put_byte(self, uint8_t byte) except *
    @cython.locals(size=Py_ssize_t)
    cdef void put_bytes(self, bytes text) except *

    @cython.locals(kind=int, size=Py_ssize_t, extra=int, length=Py_ssize_t, at=Py_ssize_t, year=int)
    cdef Py_ssize_t put_value(self, bytes data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t index) except -1

    @cython.locals(whole=int, first_digits=int, last_digits=int, size=int, at=Py_ssize_t, is_negative=bint, mask=uint64_t,
                   is_begun=bint, flip=uint64_t, groups=int, group=int, count=int, part_size=int, number=uint64_t)
    cdef Py_ssize_t put_decimal(self, bytes data, Py_ssize_t position, Py_ssize_t end, int precision, int scale) except -1

    @cython.locals(number=uint64_t)
    cdef uint64_t group(self, bytes data, Py_ssize_t position, int size, uint64_t mask, uint64_t flip) noexcept

    @cython.locals(fraction=int64_t, packed=int64_t, months=int64_t, day=int64_t, clock=int64_t)
    cdef void put_moment(self, bytes data, Py_ssize_t position, int size, int kind, int digits) except *

    @cython.locals(at=Py_ssize_t)
    cdef bint put_date(self, int64_t year, int64_t month, int64_t day, bint is_whole) except -1

    @cython.locals(at=Py_ssize_t)
    cdef void put_clock(self, int64_t hour, int64_t minute, int64_t second, int64_t fraction, int digits) except *

    @cython.locals(days=int64_t, rest=int64_t, cycle=int64_t, day_of_cycle=int64_t, year_of_cycle=int64_t,
                   day_of_year=int64_t, march_month=int64_t, day=int64_t, month=int64_t, year=int64_t)
    cdef void put_seconds(self, int64_t seconds, int64_t fraction, int digits) except *

    @cython.locals(at=Py_ssize_t, fraction=int64_t, packed=int64_t, middle=int64_t, fraction_bits=int, is_negative=bint,
                   hour=int64_t, minute=int64_t, second=int64_t)
    cdef void put_duration(self, bytes data, Py_ssize_t position, int size, int kind, int digits) except *
