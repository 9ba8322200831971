# The C types of codec.py, and the C twins of memory.py. Read codec.py first; nothing here adds behaviour.
cimport cython
from cpython cimport array
from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

ctypedef const uint8_t* octets_t

cdef struct Fields:
    Py_ssize_t end
    int64_t timestamp_delta
    int64_t offset_delta
    Py_ssize_t key_at
    Py_ssize_t key_size
    Py_ssize_t value_at
    Py_ssize_t value_size
    Py_ssize_t headers_at
    Py_ssize_t header_count

cdef struct Cell:
    octets_t data
    Py_ssize_t at
    Py_ssize_t size

cdef Py_ssize_t BAD_SIZE, BAD_TIMESTAMP, BAD_OFFSET, BAD_KEY, BAD_VALUE, BAD_HEADERS, NOT_FILLED
cdef Py_ssize_t LEAST_RECORD_BYTES, MOST_RECORD_BYTES, MOST_SIZE_BYTES, MOST_COLUMN_BYTES
cdef bytes NO_HEADERS
cdef int ATTRIBUTES_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, COUNT_AT, CRC_AT, HEADER_SIZE, LAST_OFFSET_DELTA_AT
cdef int LENGTH_AT, MAGIC, MAGIC_AT, MAX_TIMESTAMP_AT, PREFIX_SIZE, PRODUCER_ID_AT, TRANSACTIONAL
cdef int64_t MOST_USUAL, MOST_TIME, LEAST_TIME


cdef inline (int64_t, Py_ssize_t) read_varint(octets_t data, Py_ssize_t position, Py_ssize_t end) noexcept:
    cdef uint64_t raw
    if position < end and data[position] < 0x80:
        raw = data[position]
        return <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1), position + 1
    if position + 1 < end and data[position + 1] < 0x80:  # two bytes, without a loop: most sizes are such
        raw = (data[position] & 0x7F) | (<uint64_t> data[position + 1] << 7)
        return <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1), position + 2
    return read_wide(data, position, end, 35, <uint64_t> 0xFFFFFFFFu)

cdef inline (int64_t, Py_ssize_t) read_varlong(octets_t data, Py_ssize_t position, Py_ssize_t end) noexcept:
    cdef uint64_t raw
    if position < end and data[position] < 0x80:
        raw = data[position]
        return <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1), position + 1
    return read_wide(data, position, end, 70, ~<uint64_t> 0)

cdef inline (int64_t, Py_ssize_t) read_wide(octets_t data, Py_ssize_t position, Py_ssize_t end, int most_bits,
                                            uint64_t mask) noexcept:
    cdef uint64_t raw = 0
    cdef uint64_t byte
    cdef int shift = 0
    while position < end and shift < most_bits:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= mask
            return <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1), position
        shift += 7
    return 0, -1

cdef inline Cell cell_of(bytes value) noexcept:
    if value is None:
        return Cell(NULL, 0, -1)
    return Cell(<octets_t> PyBytes_AS_STRING(value), 0, PyBytes_GET_SIZE(value))

# The list was looked through before. What somebody has taken away or put in since then is a null, not a crash.
cdef inline Cell cell_in(list items, Py_ssize_t index) noexcept:
    if index >= PyList_GET_SIZE(items) or not PyBytes_CheckExact(<object> PyList_GET_ITEM(items, index)):
        return Cell(NULL, 0, -1)
    return Cell(<octets_t> PyBytes_AS_STRING(<object> PyList_GET_ITEM(items, index)), 0,
                PyBytes_GET_SIZE(<object> PyList_GET_ITEM(items, index)))

cdef inline int64_t read_offset(octets_t offsets, Py_ssize_t index, bint is_wide) noexcept:
    return (<const int64_t*> offsets)[index] if is_wide else (<const int32_t*> offsets)[index]

cdef inline int64_t big_endian(octets_t data, Py_ssize_t position, int size) noexcept:
    cdef uint64_t raw = data[position] if data[position] < 0x80 else data[position] | ~<uint64_t> 0xFF
    cdef int index
    for index in range(1, size):
        raw = (raw << 8) | data[position + index]
    return <int64_t> raw

cdef inline void put_offset_and_epoch(memoryview view, Py_ssize_t position, int64_t offset, int64_t epoch) noexcept:
    cdef uint8_t* out = <uint8_t*> PyMemoryView_GET_BUFFER(view).buf + position
    cdef int index
    for index in range(8):
        out[7 - index] = <uint8_t> (<uint64_t> offset >> (8 * index))
    for index in range(4):
        out[15 - index] = <uint8_t> (<uint64_t> epoch >> (8 * index))

# The processor's own CRC-32C for small batches: a call of the package, which is faster for large ones, costs more.
cdef extern from *:
    """
    #if defined(__GNUC__) && defined(__x86_64__)
    __attribute__((target("sse4.2")))
    static int64_t ottla_crc32c(const uint8_t *data, Py_ssize_t size) {
        uint64_t crc = 0xFFFFFFFFu;
        uint64_t word;
        if (!__builtin_cpu_supports("sse4.2")) return -1;
        for (; size >= 8; size -= 8, data += 8) {
            memcpy(&word, data, 8);
            crc = __builtin_ia32_crc32di(crc, word);
        }
        for (; size > 0; size--, data++) crc = __builtin_ia32_crc32qi((uint32_t) crc, *data);
        return (int64_t) (~crc & 0xFFFFFFFFu);
    }
    #else
    static int64_t ottla_crc32c(const uint8_t *data, Py_ssize_t size) { return -1; }
    #endif
    """
    int64_t ottla_crc32c(const uint8_t* data, Py_ssize_t size) noexcept

# -1 where it is not there, or slower.
cdef inline int64_t processor_crc(memoryview view, Py_ssize_t start) noexcept:
    cdef Py_ssize_t size = PyMemoryView_GET_BUFFER(view).len - start
    return ottla_crc32c(<octets_t> PyMemoryView_GET_BUFFER(view).buf + start, size) if size <= 4096 else -1

cdef inline memoryview view_of(object data):
    return data if type(data) is memoryview else memoryview(data)

cdef inline octets_t octets(memoryview view) except? NULL:
    if not PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(view), b"C"):
        raise BufferError("the buffer is not contiguous")
    return <octets_t> PyMemoryView_GET_BUFFER(view).buf

cdef inline uint8_t* writable(bytearray out) noexcept:
    return <uint8_t*> PyByteArray_AS_STRING(out)

cdef inline int32_t* int32s(array.array numbers) noexcept:
    return <int32_t*> numbers.data.as_chars

cdef inline int64_t* int64s(array.array numbers) noexcept:
    return <int64_t*> numbers.data.as_chars

cdef inline int resize(bytearray out, Py_ssize_t size) except -1:
    return PyByteArray_Resize(out, size)

cdef inline int resize_numbers(array.array numbers, Py_ssize_t count) except -1:
    return array.resize(numbers, count)

cdef inline void copy(uint8_t* out, Py_ssize_t position, bytes source, Py_ssize_t size) noexcept:
    memcpy(out + position, PyBytes_AS_STRING(source), size)

cdef inline void copy_range(uint8_t* out, Py_ssize_t position, octets_t data, Py_ssize_t start, Py_ssize_t size) noexcept:
    memcpy(out + position, data + start, size)

cdef inline void fill_ones(uint8_t* out, Py_ssize_t start, Py_ssize_t end) noexcept:
    memset(out + start, 0xff, end - start)

cdef inline int64_t wrapping_add(int64_t left, int64_t right) noexcept:
    return <int64_t> (<uint64_t> left + <uint64_t> right)

cdef inline int64_t wrapping_subtract(int64_t left, int64_t right) noexcept:
    return <int64_t> (<uint64_t> left - <uint64_t> right)

cdef inline int64_t int64(object number) except? -1:
    return PyNumber_Index(number)


cdef class Record:
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers


@cython.locals(out=bytearray)
cpdef bytearray uncleared(Py_ssize_t size)


# Reading.
cdef Fields fault(Py_ssize_t kind) noexcept

@cython.locals(timestamp_delta=int64_t, offset_delta=int64_t, size=int64_t, key_at=Py_ssize_t, key_size=int64_t,
               value_at=Py_ssize_t, value_size=int64_t, header_count=int64_t, headers_at=Py_ssize_t)
cdef Fields parse_record(octets_t data, Py_ssize_t position, Py_ssize_t end) noexcept

@cython.locals(size=int64_t)
cdef Py_ssize_t skip_headers(octets_t data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t count) noexcept

@cython.locals(pairs=list, size=int64_t, name=bytes)
cdef tuple read_headers(octets_t data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t count)

cdef int check_count(Py_ssize_t count, Py_ssize_t size) except -1
cdef int check_end(Py_ssize_t position, Py_ssize_t size, Py_ssize_t count) except -1

@cython.locals(view=memoryview, data=octets_t, end=Py_ssize_t, position=Py_ssize_t, index=Py_ssize_t,
               fixed_timestamp=bint, timestamp=int64_t, offset=int64_t,
               fields=Fields, record=Record, records=list)
cpdef list decode_records(object area, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp,
                          object log_append_time=*, int64_t start_offset=*)

@cython.locals(view=memoryview, data=octets_t, end=Py_ssize_t, position=Py_ssize_t, index=Py_ssize_t,
               fields=Fields, least=int64_t, most=int64_t, null_key=Py_ssize_t, in_order=bint)
cpdef object scan_records(object area, Py_ssize_t count, Py_ssize_t first=*)

@cython.locals(view=memoryview, data=octets_t, end=Py_ssize_t, position=Py_ssize_t, index=Py_ssize_t,
               size=int64_t, body=Py_ssize_t)
cpdef tuple whole_records(object area, Py_ssize_t most)

@cython.final
cdef class PlainCheck:
    cdef int64_t max_message_bytes, before_max_ms, after_max_ms
    cdef bint needs_keys

    @cython.locals(view=memoryview, data=octets_t, end=Py_ssize_t, last_time=int64_t, count=int64_t, attributes=int64_t,
                   crc=int64_t, has_producer=bint)
    cpdef int64_t count(self, object batch, int64_t now_ms, bint has_transactional_id) except? -1

@cython.locals(position=Py_ssize_t, _=int64_t, count=int64_t, base_timestamp=int64_t, max_timestamp=int64_t,
               fields=Fields, least=int64_t, most=int64_t, has_null_key=bint)
cdef int64_t count_plain(octets_t data, Py_ssize_t end, int64_t first_time, int64_t last_time, bint needs_keys) noexcept

@cython.locals(view=memoryview, data=octets_t, end=Py_ssize_t, position=Py_ssize_t, size=int64_t, next_offset=int64_t,
               newest=int64_t, has_producers=bint)
cpdef tuple stamp_batches(object batches, int64_t base_offset, int64_t leader_epoch)

@cython.locals(view=memoryview, data=octets_t, end=Py_ssize_t, at=Py_ssize_t, last_offset=int64_t, timestamp=int64_t,
               size=int64_t, entries=list)
cpdef tuple index_batches(object batches, int64_t position, int64_t unindexed_bytes, int64_t interval_bytes,
                          int64_t max_timestamp, int64_t max_timestamp_offset)

@cython.locals(view=memoryview, data=octets_t, end=Py_ssize_t, position=Py_ssize_t, index=Py_ssize_t,
               fields=Fields, entries=list)
cpdef list decode_keys(object area, Py_ssize_t count)

@cython.locals(view=memoryview, data=octets_t, end=Py_ssize_t, position=Py_ssize_t, index=Py_ssize_t,
               fields=Fields, out=bytearray, target="uint8_t*", shift=int64_t, size=Py_ssize_t, kept=Py_ssize_t,
               most=int64_t)
cpdef tuple retain_records(object area, Py_ssize_t count, bytes keep, int64_t base_timestamp=*,
                           int64_t new_base_timestamp=*)

@cython.locals(old_delta=int64_t, delta=int64_t, rest=Py_ssize_t, body=Py_ssize_t)
cdef Py_ssize_t move_timestamp(uint8_t* target, Py_ssize_t size, octets_t data, Py_ssize_t position, Py_ssize_t end,
                               int64_t shift) noexcept


# Writing.
@cython.locals(raw=uint64_t, size=Py_ssize_t)
cdef inline Py_ssize_t varint_size(int64_t value) noexcept

@cython.locals(raw=uint64_t)
cdef inline Py_ssize_t put_varint(uint8_t* out, Py_ssize_t position, int64_t value) noexcept

cdef bytes as_bytes(object value)

cdef inline Py_ssize_t put_sized(uint8_t* out, Py_ssize_t position, Cell cell) noexcept

@cython.locals(parts=list, part=bytes, out=bytearray, target="uint8_t*", size=Py_ssize_t, position=Py_ssize_t)
cdef bytes encode_headers(object headers)


@cython.locals(index=Py_ssize_t)
cpdef bint holds_bytes(list items) except -1

@cython.final
cdef class Rows:
    cdef tuple views
    cdef octets_t data
    cdef octets_t offsets
    cdef octets_t validity
    cdef bint has_nulls
    cdef bint is_wide
    cdef Py_ssize_t start
    cdef Py_ssize_t step
    cdef Py_ssize_t count

    @cython.locals(position=int64_t, next_position=int64_t, index=Py_ssize_t)
    cdef int check_offsets(self, Py_ssize_t data_bytes) except -1
    @cython.locals(row=Py_ssize_t, position=int64_t)
    cdef inline Cell cell(self, Py_ssize_t index) noexcept
    @cython.locals(rows=Rows)
    cdef Rows part(self, Py_ssize_t start, Py_ssize_t step, Py_ssize_t count)
    @cython.locals(cell=Cell)
    cdef object one(self, Py_ssize_t index)

@cython.final
cdef class Cells:
    cdef list items
    cdef Rows rows
    cdef Py_ssize_t count

    cdef inline Cell cell(self, Py_ssize_t index) noexcept

@cython.locals(value_cells=Cells, key_cells=Cells, count=Py_ssize_t, index=Py_ssize_t, total=int64_t,
               ends=array.array, target="int64_t*")
cpdef array.array weigh(object values, object keys, list more, int64_t overhead_bytes)

@cython.locals(numbers=list, first=Py_ssize_t, step=Py_ssize_t, weights="int64_t*", record_count=Py_ssize_t,
               parts=list, part_bytes=int64_t, part_start=Py_ssize_t, count=Py_ssize_t, position=Py_ssize_t,
               index=Py_ssize_t, size=int64_t)
cpdef list cut(array.array ends, object indexes, int64_t limit_bytes)

@cython.final
cdef class AreaWriter:
    cdef bytearray out
    cdef Py_ssize_t position
    cdef Py_ssize_t capacity

    @cython.locals(headers_size=Py_ssize_t, body=Py_ssize_t, position=Py_ssize_t, target="uint8_t*")
    cdef int put(self, int64_t timestamp_delta, int64_t offset_delta, Cell key, Cell value, bytes headers) except -1
    @cython.locals(capacity=Py_ssize_t)
    cdef int grow(self, Py_ssize_t size) except -1
    cdef bytearray finish(self)


cdef Py_ssize_t expected_bytes(Cells values) noexcept

@cython.locals(cells=Cells, area=AreaWriter, null=Cell, index=Py_ssize_t)
cpdef bytearray encode_values(object values, Py_ssize_t reserve_bytes=*, bytearray memory=*)

@cython.locals(value_cells=Cells, key_cells=Cells, timestamp_items=list, header_items=list, delta_items=list,
               area=AreaWriter, index=Py_ssize_t, count=Py_ssize_t, timestamp_delta=int64_t, offset_delta=int64_t,
               record_headers=bytes)
cpdef bytearray encode_columns(object values, object keys=*, object timestamps=*, object headers=*,
                               object offset_deltas=*, int64_t base_timestamp=*, Py_ssize_t reserve_bytes=*,
                               bytearray memory=*)

@cython.locals(items=list, area=AreaWriter, index=Py_ssize_t, timestamp_delta=int64_t, record_headers=bytes)
cpdef bytearray encode_records(object records, int64_t base_timestamp, Py_ssize_t reserve_bytes=*)


# Columns.
@cython.final
cdef class BinaryColumn:
    cdef Py_ssize_t limit_bytes
    cdef Py_ssize_t rows
    cdef Py_ssize_t size
    cdef Py_ssize_t null_count
    cdef Py_ssize_t row_capacity
    cdef Py_ssize_t byte_capacity
    cdef bytearray validity
    cdef array.array offsets
    cdef bytearray data

    cdef uint8_t* validity_at
    cdef int32_t* offsets_at
    cdef uint8_t* data_at

    cdef void find_memory(self) noexcept
    cdef int check_room(self, Py_ssize_t size) except -1
    @cython.locals(used=Py_ssize_t, capacity=Py_ssize_t)
    cdef int reserve(self, Py_ssize_t rows) except -1
    @cython.locals(capacity=Py_ssize_t)
    cdef int grow(self, Py_ssize_t size, Py_ssize_t expected) except -1
    @cython.locals(row=Py_ssize_t, used=Py_ssize_t)
    cdef inline int append(self, octets_t data, Py_ssize_t start, Py_ssize_t size, Py_ssize_t expected) except -1
    cdef int cut(self, Py_ssize_t rows) except -1
    cdef object finish(self)


@cython.final
cdef class Columns:
    cdef readonly bint with_headers
    cdef Py_ssize_t limit_bytes
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t capacity
    cdef array.array offsets
    cdef array.array timestamps
    cdef BinaryColumn keys
    cdef BinaryColumn values
    cdef array.array header_offsets
    cdef BinaryColumn header_names
    cdef BinaryColumn header_values

    cdef int _begin(self) except -1
    @cython.locals(view=memoryview, end=Py_ssize_t, first_row=Py_ssize_t)
    cpdef append_batch(self, object area, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp,
                       object log_append_time=*, int64_t start_offset=*)
    @cython.locals(capacity=Py_ssize_t)
    cdef int _reserve(self, Py_ssize_t count, Py_ssize_t size) except -1
    @cython.locals(fixed_timestamp=bint, timestamp=int64_t, offsets="int64_t*", timestamps="int64_t*",
                   keys=BinaryColumn, values=BinaryColumn, row=Py_ssize_t, position=Py_ssize_t, index=Py_ssize_t, offset=int64_t,
               fields=Fields)
    cdef int _fill(self, octets_t data, Py_ssize_t end, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp,
                   object log_append_time, int64_t start_offset) except -1
    @cython.locals(size=int64_t, name=bytes)
    cdef int _append_headers(self, Py_ssize_t row, octets_t data, Py_ssize_t position, Py_ssize_t end,
                             Py_ssize_t count) except -1
    cdef int _cut(self, Py_ssize_t rows) except -1
    cpdef finish(self)
