# Headers of remoting frames, and their extFields as the fields of a dataclass.


cdef extern from "format/remoting_header.h" nogil:
    enum rmq_remoting_type:
        RMQ_REMOTING_JSON, RMQ_REMOTING_BINARY

    struct rmq_remoting_text:
        rmq_slice bytes
        bint has_escapes

    struct rmq_remoting_field:
        rmq_remoting_text key
        rmq_remoting_text value

    struct rmq_remoting_header:
        int32_t code
        int32_t flag
        int32_t opaque
        int32_t version
        int32_t language
        rmq_slice language_name
        rmq_remoting_text remark
        bint has_fields
        size_t field_count
        rmq_remoting_field fields[64]

    bint rmq_remoting_header_read(const uint8_t *data, size_t size, rmq_remoting_type type,
                                  rmq_remoting_header *header)
    bint rmq_remoting_unescape(rmq_slice text, char *out, size_t *written)

cdef extern from "format/properties.h" nogil:
    bint rmq_parse_i64(rmq_slice text, int64_t *value)


cdef str remoting_str(const rmq_remoting_text *text):
    """The text as str, None when it is invalid JSON or UTF-8."""
    cdef char kept[1024]
    cdef char *out = kept
    cdef size_t written = 0
    if not text.has_escapes:
        return remoting_decoded(text.bytes.data, text.bytes.size)
    if text.bytes.size > sizeof(kept):
        out = <char *>PyMem_Malloc(text.bytes.size)
        if out is NULL:
            raise MemoryError
    try:
        if not rmq_remoting_unescape(text.bytes, out, &written):
            return None
        return remoting_decoded(out, written)
    finally:
        if out is not kept:
            PyMem_Free(out)


cdef str remoting_decoded(const char *data, size_t size):
    try:
        return PyUnicode_DecodeUTF8(data, <Py_ssize_t>size, NULL)
    except UnicodeDecodeError:
        return None


def read_remoting_header(bytes header not None, bint is_binary):
    """Return (code, flag, opaque, language, version, remark, fields, has_fields) of a plain *header*, else None.

    The language is a number or a name; a remark that is missing is None. Of a key that occurs twice the last value
    counts. None for a header that the reader in Python must parse: it accepts more forms, and raises the errors.
    """
    cdef rmq_remoting_header found
    cdef rmq_remoting_type type = RMQ_REMOTING_BINARY if is_binary else RMQ_REMOTING_JSON
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(header)
    if not rmq_remoting_header_read(data, <size_t>PyBytes_GET_SIZE(header), type, &found):
        return None

    cdef dict fields = {}
    cdef str key, value
    cdef size_t i
    for i in range(found.field_count):
        key = remoting_str(&found.fields[i].key)
        value = remoting_str(&found.fields[i].value)
        if key is None or value is None:
            return None
        fields[key] = value

    cdef object remark = None
    if found.remark.bytes.data is not NULL:
        remark = remoting_str(&found.remark)
        if remark is None:
            return None
    cdef object language = found.language
    if found.language_name.data is not NULL:
        language = remoting_decoded(found.language_name.data, found.language_name.size)
        if language is None:
            return None
    return found.code, found.flag, found.opaque, language, found.version, remark, fields, bool(found.has_fields)


cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object self, object name, object value) except -1


def make_remoting_header(cls not None, dict fields not None, tuple plan not None):
    """Return an instance of *cls* with the values that *fields* hold, None when one is missing or of another type.

    *plan* has for each field (attribute, name, kind, is required, default), kind being 0 text, 32 or 64 an integer of
    so many bits, 1 true or false. An empty text is a missing number. The instance is made without `__init__`.
    """
    cdef object made = cls.__new__(cls)
    cdef object attribute, name, default, text, value
    cdef int kind
    cdef bint is_required
    cdef int64_t number = 0
    cdef rmq_slice digits
    cdef Py_ssize_t size = 0
    for attribute, name, kind, is_required, default in plan:
        text = fields.get(name)
        if text is None or (kind != 0 and not text):
            if is_required:
                return None
            value = default
        elif type(text) is not str:
            return None
        elif kind == 0:
            value = text
        elif kind == 1:
            if text == "true":
                value = True
            elif text == "false":
                value = False
            else:
                return None
        else:
            try:
                digits.data = PyUnicode_AsUTF8AndSize(text, &size)
            except UnicodeEncodeError:
                return None
            digits.size = <size_t>size
            if not rmq_parse_i64(digits, &number):
                return None
            if kind == 32 and not INT32_MIN <= number <= INT32_MAX:
                return None
            value = number
        PyObject_GenericSetAttr(made, attribute, value)
    return made
