# The C types of fast_path.py, and the C twins of octets.py. Nothing here adds behaviour.
cimport cython
from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

ctypedef const uint8_t* octets_t

cdef int HEAD_BYTES, FLEXIBLE_VERSION, WITH_LOG_START, WITH_RECORD_ERRORS, WITH_TOPIC_IDS
cdef int64_t MOST_ELEMENTS, LONGEST_STRING_BYTES, MOST_IN_ONE_BYTE, TOPIC_ID_BYTES, ANSWER_BYTES

cdef inline octets_t octets(memoryview view) except? NULL:
    if not PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(view), b"C"):
        raise BufferError("the buffer is not contiguous")
    return <octets_t> PyMemoryView_GET_BUFFER(view).buf

cdef inline uint8_t* writable(bytearray out) noexcept:
    return <uint8_t*> PyByteArray_AS_STRING(out)

cdef inline int64_t big_endian(octets_t data, Py_ssize_t position, int size) noexcept:
    cdef uint64_t raw = data[position] if data[position] < 0x80 else data[position] | ~<uint64_t> 0xFF
    cdef int index
    for index in range(1, size):
        raw = (raw << 8) | data[position + index]
    return <int64_t> raw

cdef inline str text(octets_t data, Py_ssize_t start, Py_ssize_t stop):
    return PyUnicode_DecodeUTF8(<const char*> data + start, stop - start, NULL)

cdef inline str text_or_marks(octets_t data, Py_ssize_t start, Py_ssize_t stop):
    return PyUnicode_DecodeUTF8(<const char*> data + start, stop - start, b"replace")

cdef inline (int64_t, Py_ssize_t) read_uvarint(octets_t data, Py_ssize_t position, Py_ssize_t end) noexcept:
    cdef uint64_t value = 0
    cdef uint64_t byte
    cdef int shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= <uint64_t> 1 << 31:
                return 0, -1
            return <int64_t> value, position
        shift += 7
        if shift > 28:
            break
    return 0, -1

cdef inline Py_ssize_t put_big_endian(uint8_t* out, Py_ssize_t position, int64_t value, int size) noexcept:
    cdef uint64_t raw = <uint64_t> value
    cdef int index
    for index in range(size):
        out[position + size - 1 - index] = <uint8_t> (raw >> (8 * index))
    return position + size

cdef inline Py_ssize_t put_bytes(uint8_t* out, Py_ssize_t position, bytes data) noexcept:
    memcpy(out + position, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return position + PyBytes_GET_SIZE(data)

@cython.locals(view=memoryview, data=octets_t, end=Py_ssize_t, key=int64_t, version=int64_t, correlation_id=int64_t,
               length=int64_t, position=Py_ssize_t)
cpdef object read_usual_header(object frame)

cdef (int64_t, Py_ssize_t) read_length(octets_t data, Py_ssize_t position, Py_ssize_t end, bint is_flexible,
                                       int size) noexcept

@cython.final
cdef class ProduceReader:
    cdef int version
    cdef object otherwise

    @cython.locals(is_flexible=bint, length=int64_t, count=int64_t, partition_count=int64_t, left=int64_t, topics=list,
                   partitions=list, acks=int64_t, timeout_ms=int64_t, index=int64_t)
    cdef tuple read(self, memoryview view, octets_t data, Py_ssize_t position, Py_ssize_t end)

@cython.final
cdef class ProduceWriter:
    cdef int version
    cdef object otherwise

    @cython.locals(version=int, is_flexible=bint, responses=list, topic_count=Py_ssize_t, count_bytes=int,
                   tag_bytes=int, answer_bytes=Py_ssize_t, size=Py_ssize_t, names=list, partitions=list,
                   partition_count=Py_ssize_t, name=bytes, name_bytes=Py_ssize_t, made=bytearray, out="uint8_t*",
                   position=Py_ssize_t, nth=Py_ssize_t)
    cdef bytearray write(self, object response)
