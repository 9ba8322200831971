# The C types of writer.py. Nothing here adds behaviour.
cimport cython
from libc.stdint cimport int64_t

from ottla.records.codec cimport PlainCheck

@cython.final
cdef class PartitionWriter:
    cdef object _owner
    cdef bytearray _gathered
    cdef list _numbered
    cdef set _gathered_producers
    cdef int64_t _gathered_ms, _next_offset
    cdef public int64_t most_gathered_bytes

    cdef object _partition(self)
    @cython.locals(count=int64_t, plain_check=PlainCheck)
    cpdef (int64_t, int64_t, int64_t) produce(self, object records, int version, int64_t now_ms, int acks=*,
                                              bint has_transactional_id=*) except *
    cpdef (int64_t, int64_t, int64_t) append_validated(self, object validated, int version, int64_t now_ms,
                                                       int acks) except *
    @cython.locals(is_transactional=bint, size_bytes=int64_t, base_offset=int64_t)
    cdef (int64_t, int64_t, int64_t) _append(self, object partition, object batch, object header, int64_t count,
                                             int64_t log_append_time, int version, int64_t now_ms, int acks) except *
    cdef object _known(self, object partition, object header, int version)
    cdef object _begin(self, object partition, int64_t now_ms)
    cpdef object write_gathered(self)
