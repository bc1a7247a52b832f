# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: nonecheck=True, allow_none_for_extension_args=False
"""The C core as Python sees it: arguments are validated, C is called, statuses become exceptions."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_Check, PyUnicode_DecodeUTF8
cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset, strlen

from rmqstore._native.csrc cimport *

import os
from weakref import WeakSet

import rmqstore.arguments as arguments
from rmqstore.errors import (
    ArgumentError,
    ArgumentTypeError,
    CorruptionError,
    FlushTimeout,
    MessageRejected,
    OffsetOutOfRange,
    StoreClosedError,
    StoreLockedError,
    ViewsOpenError,
    before_the_start,
    for_status,
    missing_file,
    not_admitted,
    not_replicated,
    put_not_flushed,
    put_refused,
    put_was_cut,
    replica_timeout,
)
from rmqstore.message import (
    Durability,
    GetStatus,
    Message,
    PutStatus,
    asked_durability,
    not_a_message,
    properties_too_large,
    property_rejected,
    sole_message,
    split_keys,
)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int nanosleep(const timespec *duration, timespec *left)


cdef object error_of(const rmq_error *err):
    """The exception for a failed call; the caller adds what it knows."""
    detail = (<const char *>err.detail).decode("utf-8", "replace")
    error = for_status(err.status, rmq_status_text(err.status).decode(), detail, err.os_errno, err.at_offset)
    if isinstance(error, StoreLockedError) and err.at_offset > 0:
        error.process_id = err.at_offset
    return error


cdef int check(int status, const rmq_error *err) except -1:
    if status == RMQ_OK:
        return 0
    raise error_of(err)


cdef str text_of(const char *data, Py_ssize_t size):
    """Stored text is whatever its producer sent; bytes that are no UTF-8 survive as surrogates."""
    return PyUnicode_DecodeUTF8(data, size, "surrogateescape")


include "arguments.pxi"
include "record.pxi"
include "store.pxi"
include "open.pxi"
include "wait.pxi"
include "ack_board.pxi"
include "ack_inbox.pxi"
include "log.pxi"
include "message.pxi"
include "durability.pxi"
include "put.pxi"
include "put_handle.pxi"
include "place.pxi"
include "read.pxi"
include "scan.pxi"
include "arrow.pxi"
include "segment.pxi"
include "ha_frame.pxi"
include "pump.pxi"
include "small_file.pxi"
include "timer_index.pxi"
include "remoting.pxi"
