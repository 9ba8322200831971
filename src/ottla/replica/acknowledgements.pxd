# The C types of acknowledgements.py. Nothing here adds behaviour.
cimport cython
from libc.stdint cimport int64_t

@cython.final
cdef class Acknowledgements:
    cdef object _owner
    cdef readonly object for_write, for_commit
    cdef list _failed

    cpdef object wait(self, object end_offset, int acks, object waiter, object token, object due=*)
    cpdef object tell(self, object written, object committed)
