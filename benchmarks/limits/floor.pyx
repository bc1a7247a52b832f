# cython: language_level=3, boundscheck=False, wraparound=False
"""The least that a compiled function does for Python: what each crossing costs alone."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

cdef enum:
    ARENA = 2097152

cdef char[ARENA] arena
cdef Py_ssize_t used = 0


def put(topic, bytes body not None, *, tags=None, keys=None, int queue=0):
    """Take what a put takes and copy the body; nothing is answered."""
    global used
    cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
    if used > ARENA - size:
        used = 0
    memcpy(arena + used, PyBytes_AS_STRING(body), size)
    used += size


def put_many(list bodies not None):
    """Copy each body of a list."""
    cdef bytes body
    for body in bodies:
        put(None, body)


cdef class Result:
    cdef readonly long long physical_offset
    cdef readonly long long queue_offset
    cdef readonly long long store_timestamp
    cdef readonly int size
    cdef readonly int queue
    cdef readonly object topic


def result(topic):
    """Return an object as small as a receipt."""
    cdef Result made = Result.__new__(Result)
    made.physical_offset = 1 << 40
    made.queue_offset = 12345678901
    made.store_timestamp = 1700000000000
    made.size = 1131
    made.queue = 3
    made.topic = topic
    return made


def results(topic, Py_ssize_t count):
    """Return a list of results, as a call for many messages does."""
    return [result(topic) for _ in range(count)]


def body(Py_ssize_t size):
    """Return bytes made of C memory."""
    return PyBytes_FromStringAndSize(arena, size)


cdef class Results:
    """An iterator that yields one result a step."""
    cdef Py_ssize_t left

    def __init__(self, Py_ssize_t count):
        self.left = count

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        return result("topic")
