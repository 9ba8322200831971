# The C types of produce.py. Nothing here adds behaviour.
cimport cython
from libc.stdint cimport int64_t

from ottla.broker.dispatch cimport Context
from ottla.replica.acknowledgements cimport Acknowledgements
from ottla.replica.writer cimport PartitionWriter
from ottla.wire.fast_path cimport Constructor

cdef int FIRST_VERSION_WITH_TOPIC_IDS, LEAST_ACKS, MOST_ACKS
cdef Constructor _partition_response, _topic_response, _response

@cython.locals(context=Context, topics=list, answers=list, is_one=bint, produced=Produced)
cpdef object handle(object broker, object request, object context, object refusals=*)

@cython.locals(by_name=dict, by_id=dict, replicas=dict)
cpdef object find(object broker, object topic, object index, int version)

@cython.final
cdef class Produced:
    cdef readonly object broker
    cdef readonly Context context
    cdef readonly list topics, answers
    cdef readonly int64_t now_ms, timeout_ms
    cdef readonly int acks, version
    cdef readonly bint has_transactional_id
    cdef object _refusals
    cdef int64_t _left, _throttle_ms
    cdef bint _failed

    cpdef list begin(self, object topic)
    cpdef object appended(self)
    cpdef object committed(self, tuple append, object failure)
    cdef object _answer(self)
    @cython.locals(writer=PartitionWriter)
    cpdef object partition(self, object topic, object data)
    @cython.locals(base_offset=int64_t, end_offset=int64_t, log_append_time_ms=int64_t, waiting=Acknowledgements)
    cpdef object wait(self, object partition, object index, (int64_t, int64_t, int64_t) placed, int64_t size_bytes)
    cpdef object target(self, object topic, object index)
    cpdef object refused(self, object index, object code, object log_start_offset=*)
