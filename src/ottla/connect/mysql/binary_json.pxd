# The C types of binary_json.py. Read that first; nothing here adds behaviour.
cimport cython
from ottla.connect.mysql.row_image cimport double_at, little_endian, little_endian_signed

cdef int SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL
cdef int INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE, STRING, OPAQUE
cdef int MOST_DEPTH
cdef tuple LITERALS, SIZES

cpdef Py_ssize_t length_bytes(Py_ssize_t size)

@cython.final
cdef class BinaryJson:
    cdef list parts
    cdef Py_ssize_t left

    cpdef bytes to_json(self, bytes data)
    cpdef bytes text(self, bytes data)

    cdef void spend(self, Py_ssize_t count) except *
    cdef void check(self, bytes data, Py_ssize_t position, Py_ssize_t size) except *

    @cython.locals(size=Py_ssize_t, start=Py_ssize_t)
    cdef void put(self, bytes data, int kind, Py_ssize_t position, int depth) except *

    @cython.locals(parts=list, width=int, is_object=bint, count=Py_ssize_t, size=Py_ssize_t, keys_at=Py_ssize_t,
                   values_at=Py_ssize_t, index=Py_ssize_t, entry=Py_ssize_t, key_at=Py_ssize_t, key_bytes=Py_ssize_t,
                   value_kind=int)
    cdef void put_container(self, bytes data, int kind, Py_ssize_t start, int depth) except *

    @cython.locals(which=int)
    cdef void put_scalar(self, bytes data, int kind, Py_ssize_t position) except *
    cdef void put_text(self, bytes text) except *

    @cython.locals(size=Py_ssize_t, index=int, byte=Py_ssize_t)
    cdef Py_ssize_t length(self, bytes data, Py_ssize_t position) except -1
