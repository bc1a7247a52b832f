# Arguments in C form. The fast paths are here; rmqstore/arguments.py accepts or refuses everything else.

from cpython.exc cimport PyErr_Clear
from cpython.long cimport PyLong_CheckExact

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    # Without an exception value: the callers below clear the error and report one of their own.
    const char *utf8_or_null "PyUnicode_AsUTF8AndSize" (object text, Py_ssize_t *size) noexcept


cdef inline int64_t integer_of(str name, object value, int64_t low, int64_t high) except? -1:
    """A whole number in [low, high], else ArgumentError."""
    cdef int overflow = 0
    cdef int64_t number
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow and low <= number <= high:
            return number
    return arguments.integer(name, value, low=low, high=high)


cdef inline int64_t message_integer(str name, object value, int64_t low, int64_t high) except? -1:
    """As integer_of, for a field of a message: a number out of range raises MessageRejected."""
    cdef int overflow = 0
    cdef int64_t number
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow and low <= number <= high:
            return number
    return arguments.integer(name, value, low=low, high=high, error=MessageRejected)


cdef inline int32_t queue_of(object value) except -1:
    return <int32_t>integer_of("queue", value, 0, INT32_MAX)


cdef inline bint boolean_of(str name, object value) except? -1:
    if value is True:
        return True
    if value is False:
        return False
    return arguments.boolean(name, value)


cdef inline bint has_utf8(object value, rmq_slice *out) noexcept:
    """Whether *value* is a plain str that UTF-8 encodes; *out* then points at its bytes, which live as long as it does."""
    cdef Py_ssize_t size = 0
    if type(value) is not str:
        return False
    out.data = utf8_or_null(value, &size)
    out.size = <size_t>size
    if out.data == NULL:
        PyErr_Clear()
    return out.data != NULL


cdef inline object message_text(str name, object value, rmq_slice *out):
    """Points *out* at the UTF-8 of a text of a message, which lives as long as the object returned."""
    return value if has_utf8(value, out) else unusual_text(name, value, out, True)


cdef inline object sought_text(str name, object value, rmq_slice *out):
    """As message_text, for a text to look for. One that was read from a store may hold surrogates in place of bytes that
    are no UTF-8 (text_of); it stands for these bytes."""
    return value if has_utf8(value, out) else unusual_text(name, value, out, False)


cdef object unusual_text(str name, object value, rmq_slice *out, bint is_message):
    cdef bytes kept
    cdef str text = arguments.text(name, value)
    try:
        kept = text.encode("utf-8", "strict" if is_message else "surrogateescape")
    except UnicodeEncodeError:
        raise arguments.utf8_error(name, text, error=MessageRejected if is_message else ArgumentError) from None
    out.data, out.size = PyBytes_AS_STRING(kept), <size_t>PyBytes_GET_SIZE(kept)
    return kept


cdef int get_buffer(str name, object value, Py_buffer *view) except -1:
    try:
        PyObject_GetBuffer(value, view, PyBUF_SIMPLE)
    except (BufferError, TypeError, ValueError) as error:
        raise arguments.buffer_error(name, value, error) from None
    return 0


cdef int64_t milliseconds_of(str name, object value) except? -1:
    """A number of seconds as milliseconds."""
    return <int64_t>(<double>arguments.seconds(name, value) * 1000)
