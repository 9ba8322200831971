# The C types of key_hash.py. Nothing here adds behaviour.
cimport cython
from libc.stdint cimport uint32_t

cdef uint32_t SEED, MULTIPLIER, UINT32, INT31

@cython.locals(size=Py_ssize_t, position=Py_ssize_t, hashed=uint32_t, word=uint32_t, shift=uint32_t)
cpdef uint32_t murmur2(bytes data)

cpdef list partitions_of_keys(object keys, uint32_t partition_count)
