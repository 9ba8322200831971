# The C types of crc_change.py. Nothing here adds behaviour.
cimport cython
from libc.stdint cimport uint32_t, uint64_t

cdef uint32_t POLYNOMIAL, ONE

cpdef uint32_t changed_crc(uint32_t crc, uint32_t before, uint32_t after, uint64_t rest_bytes)

@cython.locals(power=uint32_t, square=uint32_t)
cdef uint32_t _power(uint64_t count)

@cython.locals(product=uint32_t, bit=uint32_t)
cdef uint32_t _product(uint32_t one, uint32_t other)
