# The C types of connection.py. Nothing here adds behaviour.
cimport cython
from libc.stdint cimport int64_t

from ottla.broker.network.slot cimport Slot
from ottla.wire.fast_path cimport read_size

cdef int64_t MOST_PARTS, JOINED_BYTES, LITTLE_BYTES, SENDFILE_BYTES, SMALL_BYTES, FIRST_KEPT_BYTES

cdef int _SIZE_BYTES

cdef class Connection:
    cdef readonly object socket, address, listener, principal
    cdef object _loop, _memory, _handle, _closed
    cdef readonly object _kept
    cdef readonly int64_t received_bytes
    cdef int64_t _kept_needed, _trusted_bytes, _most_slots, _most_bytes, _most_unsent_bytes, _holds
    cdef readonly int64_t _unsent_bytes
    cdef int64_t _unsent_file_bytes, _counted_bytes, _waits_for_memory
    cdef object _request_memory, _share, _unsent_memory, _lent, _handled, _slots, _unsent, _is_muted_until, _last_words
    cdef public object expect_answer
    cdef bint _expects_large, _is_stopped, _sends_soon
    cdef int _events
    cdef double _received_at, _sent_at
    cdef dict _calls_when_closed
    cdef readonly bint is_open, was_refused
    cdef readonly object acquaintance

    @cython.locals(count=int64_t)
    cdef object _receive(self)
    cdef object _take_kept(self, memoryview kept)
    cdef bint _end_handling(self, object settle) except -1
    @cython.locals(position=int64_t, end=int64_t, size=int64_t, start=int64_t, stop=int64_t, most_slots=int64_t,
                   until=double)
    cdef object _take_frames(self, memoryview data)
    @cython.locals(slot=Slot)
    cdef bint _is_next_answered(self) except -1
    cdef bint _makes_room(self) except -1
    @cython.locals(needed=int64_t, count=int64_t, size_bytes=int64_t)
    cdef object _keep(self, memoryview rest)
    cdef object _copy(self, memoryview rest, int64_t size_bytes)
    cdef bint _is_full(self) except -1
    cdef object _look_whether_stopped(self)
    cdef bint _has_frames_kept_back(self)
    cpdef object answered(self)
    @cython.locals(small=list, slot=Slot, parts=list)
    cdef object _collect_answers(self)
    cdef object _add_unsent(self, object part)
    cdef object _send(self)
    cdef object _count_memory(self, int64_t held_bytes)
    @cython.locals(sent=int64_t, left=int64_t, size_bytes=int64_t, buffers=list)
    cdef int64_t _send_buffers(self) except -1
    cdef int64_t _send_file(self) except -1
    cdef object _update_events(self)
