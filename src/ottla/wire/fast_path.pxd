# The C types of fast_path.py, and the C twins of octets.py. Nothing here adds behaviour.
cimport cython
from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AsDouble
from cpython.long cimport PyLong_AsLongLong
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

# Where an object of a class with __slots__ keeps a value: as its descriptor knows it, in bytes from the object's start.
cdef extern from *:
    """
    #include <structmember.h>

    static Py_ssize_t ottla_slot_of(PyObject *type, PyObject *name) {
        PyObject *found = PyObject_GetAttr(type, name);
        Py_ssize_t offset = -1;
        if (found == NULL) return -1;
        if (Py_IS_TYPE(found, &PyMemberDescr_Type) && ((PyMemberDescrObject *) found)->d_member->type == T_OBJECT_EX
            && (PyObject *) ((PyMemberDescrObject *) found)->d_common.d_type == type)
            offset = ((PyMemberDescrObject *) found)->d_member->offset;
        else
            PyErr_Format(PyExc_TypeError, "%R has no slot %R", type, name);
        Py_DECREF(found);
        return offset;
    }

    static inline PyObject *ottla_named_tuple(PyObject *kind, PyObject *values) {
        Py_ssize_t size = PyTuple_GET_SIZE(values);
        PyObject *made = ((PyTypeObject *) kind)->tp_alloc((PyTypeObject *) kind, size);
        if (made == NULL) return NULL;
        for (Py_ssize_t index = 0; index < size; index++) {
            PyObject *value = PyTuple_GET_ITEM(values, index);
            Py_INCREF(value);
            PyTuple_SET_ITEM(made, index, value);
        }
        return made;
    }

    static inline PyObject *ottla_new(PyObject *type) {
        return ((PyTypeObject *) type)->tp_alloc((PyTypeObject *) type, 0);
    }

    static inline void ottla_put_slot(PyObject *made, Py_ssize_t slot, PyObject *value) {
        PyObject **place = (PyObject **) ((char *) made + slot);
        PyObject *before = *place;
        Py_INCREF(value);
        *place = value;
        Py_XDECREF(before);
    }

    static inline PyObject *ottla_get_slot(PyObject *owner, Py_ssize_t slot) {
        PyObject *value = *(PyObject **) ((char *) owner + slot);
        if (value == NULL) {
            PyErr_SetString(PyExc_AttributeError, "a field is not set");
            return NULL;
        }
        Py_INCREF(value);
        return value;
    }
    """
    object named_tuple "ottla_named_tuple"(object kind, object values)
    Py_ssize_t slot_of "ottla_slot_of"(object struct, object name) except -1
    object new "ottla_new"(object struct)
    void put_slot "ottla_put_slot"(object made, Py_ssize_t slot, object value)
    object get_slot "ottla_get_slot"(object owner, Py_ssize_t slot)

ctypedef const uint8_t* octets_t

cdef int HEAD_BYTES, ANSWER_HEAD_BYTES, UUID_BYTES
cdef int SIGNED, UNSIGNED, BOOL, FLOAT, UUID, TEXT, BLOB, RECORDS, ARRAY, STRUCT
cdef int64_t LONGEST_STRING_BYTES, FIRST_BYTES, MOST_KEPT_BYTES, MOST_INT32

cdef inline memoryview view_of(object data):
    return data if type(data) is memoryview else memoryview(data)

cdef inline octets_t octets(memoryview view) except? NULL:
    if not PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(view), b"C"):
        raise BufferError("the buffer is not contiguous")
    return <octets_t> PyMemoryView_GET_BUFFER(view).buf

cdef inline uint8_t* writable(bytearray out) noexcept:
    return <uint8_t*> PyByteArray_AS_STRING(out)

cdef inline bytes taken(bytearray out, Py_ssize_t size):
    return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(out), size)

cdef inline int64_t big_endian(octets_t data, Py_ssize_t position, int size) noexcept:
    cdef uint64_t raw = data[position] if data[position] < 0x80 else data[position] | ~<uint64_t> 0xFF
    cdef int index
    for index in range(1, size):
        raw = (raw << 8) | data[position + index]
    return <int64_t> raw

cdef inline int64_t read_size(memoryview view, Py_ssize_t position) noexcept:
    return big_endian(<octets_t> PyMemoryView_GET_BUFFER(view).buf, position, 4)

cdef inline double read_float(octets_t data, Py_ssize_t position) noexcept:
    cdef int64_t raw = big_endian(data, position, 8)
    cdef double value
    memcpy(&value, &raw, 8)
    return value

cdef inline str text_or_marks(octets_t data, Py_ssize_t start, Py_ssize_t stop):
    return PyUnicode_DecodeUTF8(<const char*> data + start, stop - start, b"replace")

# Clients repeat themselves: a text that is the same as the one before need not be made, nor hashed again.
cdef inline str read_text(str last, octets_t data, Py_ssize_t start, Py_ssize_t stop):
    cdef Py_ssize_t size = 0
    cdef const char* known
    if last is not None:
        known = PyUnicode_AsUTF8AndSize(last, &size)
        if size == stop - start and memcmp(known, data + start, size) == 0:
            return last
    return PyUnicode_DecodeUTF8(<const char*> data + start, stop - start, NULL)

cdef inline bytes read_bytes(octets_t data, Py_ssize_t start, Py_ssize_t stop):
    return PyBytes_FromStringAndSize(<const char*> data + start, stop - start)

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

cdef inline int64_t number_of(object value) except? -1:
    return PyLong_AsLongLong(value)  # no float

cdef inline Py_ssize_t text_size(str value) except -1:
    cdef Py_ssize_t size = 0
    PyUnicode_AsUTF8AndSize(value, &size)
    return size

cdef inline Py_ssize_t put_big_endian(uint8_t* out, Py_ssize_t position, int64_t value, int size) noexcept:
    cdef uint64_t raw = <uint64_t> value
    cdef int index
    for index in range(size):
        out[position + size - 1 - index] = <uint8_t> (raw >> (8 * index))
    return position + size

cdef inline int put_float(uint8_t* out, Py_ssize_t position, object value) except -1:
    cdef double number = PyFloat_AsDouble(value)
    cdef int64_t raw
    memcpy(&raw, &number, 8)
    put_big_endian(out, position, raw, 8)
    return 0

cdef inline Py_ssize_t put_text(uint8_t* out, Py_ssize_t position, str value, Py_ssize_t size) except -1:
    cdef const char* encoded = PyUnicode_AsUTF8AndSize(value, NULL)
    memcpy(out + position, encoded, size)
    return position + size

cdef inline Py_ssize_t put_bytes(uint8_t* out, Py_ssize_t position, bytes data) noexcept:
    memcpy(out + position, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return position + PyBytes_GET_SIZE(data)

cdef dict KNOWN_APIS

@cython.locals(view=memoryview, data=octets_t, end=Py_ssize_t, version=int64_t, length=int64_t, position=Py_ssize_t,
               known=tuple, flexible=int64_t)
cpdef object read_usual_header(object frame)

@cython.final
cdef class Step:
    cdef int kind, size, tag
    cdef bint is_nullable
    cdef Py_ssize_t slot
    cdef Step element
    cdef Plan plan
    cdef object default
    cdef str last

@cython.final
cdef class Plan:
    cdef object struct
    cdef list positional, tagged, absent, refused

cdef object default_of(Step step)

@cython.locals(step=Step)
cpdef bint has_nullable_tag(Plan plan) except -1
@cython.locals(step=Step)
cpdef bint has_records(Plan plan) except -1

@cython.final
cdef class Constructor:
    cdef object struct
    cdef list steps
    cdef Py_ssize_t least

    @cython.locals(given=Py_ssize_t, count=Py_ssize_t, number=Py_ssize_t, step=Step)
    cpdef object make(self, tuple values)




@cython.final
cdef class MessageReader:
    cdef object message, generate, otherwise
    cdef int version
    cdef Plan plan
    cdef bint is_flexible
    cdef Py_ssize_t most_elements

@cython.final
cdef class Cursor:
    cdef memoryview view
    cdef octets_t data
    cdef Py_ssize_t position, end, left
    cdef bint is_flexible, is_limited, is_over

    @cython.locals(step=Step)
    cdef object struct(self, Plan plan)
    @cython.locals(kind=int, start=Py_ssize_t, stop=Py_ssize_t, length=int64_t)
    cdef object value(self, Step step)
    @cython.locals(length=int64_t, position=Py_ssize_t)
    cdef int64_t length(self, int size) noexcept
    @cython.locals(element=Step, made=list)
    cdef object array(self, Step step, int64_t count)
    cdef bint spend(self, int64_t count) noexcept
    cdef object nested(self, Step step)
    @cython.locals(step=Step, count=int64_t, position=Py_ssize_t, tag=int64_t, size=int64_t)
    cdef bint tags(self, Plan plan, object made) except -1

@cython.final
cdef class MessageWriter:
    cdef object message, generate, otherwise
    cdef int version
    cdef Plan plan
    cdef bint is_flexible, has_tagged_head
    cdef Output output

    cpdef list frame(self, int64_t correlation_id, object response)
    cdef Output taken_output(self)

@cython.final
cdef class Output:
    cdef bint is_flexible
    cdef bytearray data
    cdef Py_ssize_t size, position, parts_bytes
    cdef list parts

    cdef list finished(self)
    cdef list framed(self)
    cdef int begin(self) except -1
    cdef int room(self, Py_ssize_t count) except -1
    cdef bint message(self, Plan plan, object message) except -1
    @cython.locals(step=Step)
    cdef bint struct(self, Plan plan, object owner) except -1
    @cython.locals(kind=int, length_bytes=int, size=Py_ssize_t)
    cdef bint value(self, Step step, object value) except -1
    @cython.locals(kind=int, size=int, number=int64_t)
    cdef bint number(self, Step step, object value) except -1
    cdef int length(self, int64_t length, int size) except -1
    cdef int uvarint(self, int64_t value) except -1
    @cython.locals(size=Py_ssize_t)
    cdef bint text(self, object value) except -1
    @cython.locals(element=Step)
    cdef bint array(self, Step step, object value) except -1
    cdef bint nested(self, Step step, object value) except -1
    @cython.locals(step=Step, count=Py_ssize_t, start=Py_ssize_t)
    cdef bint tags(self, Plan plan, object owner) except -1

cpdef list encode_usual(object correlation_id, object response, object version)

cdef bint is_default(object value, object default) except -1
cdef bint is_tag_written(Step step, object value) except -1
