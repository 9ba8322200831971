# The C types of dispatch.py. Nothing here adds behaviour.
cimport cython
from libc.stdint cimport int64_t

from ottla.broker.network.slot cimport Slot
from ottla.wire.fast_path cimport encode_usual

@cython.final
cdef class Served:
    cdef readonly object api, name, handler, permissions, read
    cdef readonly int version, use

cdef class Context(Slot):
    cdef public object header, in_steps
    cdef public int64_t size_bytes

    cpdef object authorize(self, object broker, object permissions, object request)
    cpdef object spent(self, object broker, object seconds)
    cpdef object reply(self, object response)

cdef class MeasuredContext(Context):
    cdef object _response, _throttle_ms

cdef class Dispatch:
    cdef readonly object _broker
    cdef object _metrics, _quotas, _rounds
    cdef dict _served
    cdef Served _last

    @cython.locals(size_bytes=int64_t, is_large=bint, is_measured=bint, context=Context, version=int, served=Served)
    cpdef object handle(self, object connection, object frame)
