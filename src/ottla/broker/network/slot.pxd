# The C types of slot.py. Nothing here adds behaviour.
cdef class Slot:
    cdef public object connection
    cdef public list parts

    cpdef object answer(self, list parts)
