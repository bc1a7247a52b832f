# Frames of the replication streams.


cdef extern from "format/ha_frame.h" nogil:
    enum:
        RMQ_HA_FRAME_SIZE_MAX, RMQ_HA_HEAD_SIZE_MAX, RMQ_HA_ENTRY_SIZE

    enum rmq_ha_stream:
        RMQ_HA_CLASSIC_SLAVE, RMQ_HA_CLASSIC_MASTER, RMQ_HA_SWITCH_SLAVE, RMQ_HA_SWITCH_MASTER

    enum rmq_ha_kind:
        RMQ_HA_REPORT, RMQ_HA_CLASSIC_DATA, RMQ_HA_HANDSHAKE, RMQ_HA_HANDSHAKE_REPLY, RMQ_HA_TRANSFER, RMQ_HA_ACK

    struct rmq_ha_frame:
        rmq_ha_kind kind
        bint is_checked
        int32_t epoch
        int64_t offset
        int64_t epoch_start
        int64_t confirm_offset
        int64_t broker_id
        bint sync_from_last_file
        bint is_learner
        bint offers_checks
        uint32_t handshake_crc
        uint32_t body_crc
        int32_t body_size
        const uint8_t *body

    struct rmq_ha_entry:
        int32_t epoch
        int64_t start_offset

    struct rmq_ha_parser:
        uint8_t *held
        size_t held_size
        bint is_held_over
        int64_t position
        rmq_error failure

    int rmq_ha_frame_check(const rmq_ha_frame *frame, int32_t frame_size_max, rmq_error *err)
    int rmq_ha_entries_check(const uint8_t *body, int32_t body_size, rmq_error *err)
    size_t rmq_ha_head_encode(const rmq_ha_frame *frame, uint8_t *out)
    rmq_ha_entry rmq_ha_entry_decode(const uint8_t *body, size_t index)
    void rmq_ha_entry_encode(uint8_t *out, rmq_ha_entry entry)
    void rmq_ha_parser_begin(rmq_ha_parser *parser, rmq_ha_stream stream, int32_t frame_size_max)
    void rmq_ha_parser_feed(rmq_ha_parser *parser, const uint8_t *data, size_t size)
    int rmq_ha_parser_next(rmq_ha_parser *parser, rmq_ha_frame *frame, rmq_error *err)
    void rmq_ha_parser_release(rmq_ha_parser *parser)
    void rmq_ha_parser_finish(rmq_ha_parser *parser)


HA_FRAME_SIZE_MAX = RMQ_HA_FRAME_SIZE_MAX

# In the order of their enums.
cdef tuple HA_STREAMS = ("classic slave", "classic master", "auto-switch slave", "auto-switch master")
cdef tuple HA_KINDS = ("report", "classic data", "handshake", "handshake reply", "transfer", "ack")


cdef class HaParser:
    """The frames of one direction of one connection, out of its bytes in pieces of any size.

    *stream* says who speaks: "classic slave", "classic master", "auto-switch slave", "auto-switch master". *makers*
    holds a callable for each kind of frame: "report" (offset), "ack" (offset, epoch), "classic data" (offset, body),
    "handshake" (sync_from_last_file, is_learner, broker_id, offers_checks), "handshake reply" (end_offset, epoch,
    entries, handshake_crc) with entries made by "entry" (epoch, start_offset), "transfer" (offset, epoch, epoch_start,
    confirm_offset, body, is_checked). The epoch of an ack and the handshake_crc are None in frames without checks.
    """

    cdef rmq_ha_parser parser
    cdef list makers
    cdef object make_entry
    cdef bint is_broken

    def __init__(self, str stream, makers, *, int frame_size_max=RMQ_HA_FRAME_SIZE_MAX):
        if stream not in HA_STREAMS:
            raise ArgumentError(f"no such stream: {stream!r}; there are {', '.join(HA_STREAMS)}")
        if not RMQ_HA_HEAD_SIZE_MAX <= frame_size_max <= RMQ_HA_FRAME_SIZE_MAX:
            raise ArgumentError(f"frame_size_max is {RMQ_HA_HEAD_SIZE_MAX} to {RMQ_HA_FRAME_SIZE_MAX} bytes: "
                                f"{frame_size_max}")
        self.makers = [makers.get(kind) for kind in HA_KINDS]
        self.make_entry = makers.get("entry")
        rmq_ha_parser_finish(&self.parser)
        rmq_ha_parser_begin(&self.parser, <rmq_ha_stream>(<int>HA_STREAMS.index(stream)), frame_size_max)

    def __dealloc__(self):
        rmq_ha_parser_finish(&self.parser)

    def feed(self, data):
        """Take the bytes that come next and return the frames they complete; see `fault` then.

        Bodies that lie whole in *data* are views of it when it is bytes, which cannot change; all others are copies.
        """
        cdef Py_buffer view
        cdef rmq_ha_frame frame
        cdef rmq_error err
        cdef list result = []
        cdef object whole = memoryview(data) if PyBytes_CheckExact(data) else None
        cdef int status

        if self.is_broken:
            raise ArgumentError("frames were lost when an earlier call failed; begin with another parser and "
                                "connection")

        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        # Until all are handed out: a caller that went on after an exception would miss some.
        self.is_broken = True
        try:
            rmq_ha_parser_feed(&self.parser, <const uint8_t *>view.buf, <size_t>view.len)
            while True:
                status = rmq_ha_parser_next(&self.parser, &frame, &err)
                if status != RMQ_OK:
                    break
                result.append(self.make(&frame, whole, <const uint8_t *>view.buf))
        finally:
            PyBuffer_Release(&view)

        if status not in (RMQ_END, RMQ_CORRUPT, RMQ_OUT_OF_RANGE):
            check(status, &err)
        self.is_broken = False
        return result

    def release(self):
        """Return the bytes held of the frame that is not whole yet, and forget them: the next reader begins there."""
        cdef bytes held = b""
        if not self.parser.is_held_over:
            held = PyBytes_FromStringAndSize(<const char *>self.parser.held, <Py_ssize_t>self.parser.held_size)
        rmq_ha_parser_release(&self.parser)
        return held

    cdef object make(self, const rmq_ha_frame *frame, whole, const uint8_t *data):
        cdef object maker = self.makers[<int>frame.kind]
        if frame.kind == RMQ_HA_TRANSFER:
            return maker(frame.offset, frame.epoch, frame.epoch_start, frame.confirm_offset,
                         self.body(frame, whole, data), frame.is_checked)
        if frame.kind == RMQ_HA_CLASSIC_DATA:
            return maker(frame.offset, self.body(frame, whole, data))
        if frame.kind == RMQ_HA_HANDSHAKE:
            return maker(frame.sync_from_last_file, frame.is_learner, frame.broker_id, frame.offers_checks)
        if frame.kind == RMQ_HA_HANDSHAKE_REPLY:
            return maker(frame.offset, frame.epoch, self.entries(frame),
                         frame.handshake_crc if frame.is_checked else None)
        if frame.kind == RMQ_HA_ACK:
            return maker(frame.offset, frame.epoch if frame.is_checked else None)
        return maker(frame.offset)

    cdef object body(self, const rmq_ha_frame *frame, whole, const uint8_t *data):
        cdef Py_ssize_t begin
        if frame.body_size == 0:
            return b""
        if whole is None or self.parser.is_held_over:
            return PyBytes_FromStringAndSize(<const char *>frame.body, frame.body_size)
        begin = frame.body - data
        return whole[begin:begin + frame.body_size]

    cdef tuple entries(self, const rmq_ha_frame *frame):
        cdef list result = []
        cdef rmq_ha_entry entry
        cdef size_t i
        for i in range(<size_t>frame.body_size // RMQ_HA_ENTRY_SIZE):
            entry = rmq_ha_entry_decode(frame.body, i)
            result.append(self.make_entry(entry.epoch, entry.start_offset))
        return tuple(result)

    @property
    def fault(self):
        """What made the bytes at `position` no frame, once that was seen: nothing fed later is looked at. Else None."""
        if self.parser.failure.status not in (RMQ_CORRUPT, RMQ_OUT_OF_RANGE):
            return None
        return (<const char *>self.parser.failure.detail).decode("utf-8", "replace")

    @property
    def position(self):
        """Bytes of the stream before the first frame that is not whole yet."""
        return self.parser.position

    @property
    def held_size(self):
        """Bytes kept of that frame."""
        return 0 if self.parser.is_held_over else self.parser.held_size


def encode_ha_head(str kind, *, int64_t offset=0, int32_t epoch=0, int64_t epoch_start=0, int64_t confirm_offset=0,
                   int64_t broker_id=0, bint sync_from_last_file=False, bint is_learner=False, int64_t body_size=0,
                   bint offers_checks=False, handshake_crc=None, body_crc=None, bint is_checked=False):
    """Return a frame of this kind, without its body. ArgumentError for what its reader would refuse.

    One that carries checks needs the *body_crc* of its body, which None takes for that of an empty one, and a reply the
    *handshake_crc*.
    """
    cdef uint8_t out[RMQ_HA_HEAD_SIZE_MAX]
    cdef rmq_ha_frame frame
    cdef rmq_error err

    if kind not in HA_KINDS:
        raise ArgumentError(f"no such kind of frame: {kind!r}; there are {', '.join(HA_KINDS)}")
    if not 0 <= body_size <= RMQ_HA_FRAME_SIZE_MAX:
        raise ArgumentError(f"a body of {body_size} bytes; at most {RMQ_HA_FRAME_SIZE_MAX} fit a frame")

    memset(&frame, 0, sizeof(frame))
    frame.kind = <rmq_ha_kind>(<int>HA_KINDS.index(kind))
    frame.offset, frame.epoch, frame.epoch_start, frame.confirm_offset = offset, epoch, epoch_start, confirm_offset
    frame.broker_id, frame.sync_from_last_file, frame.is_learner = broker_id, sync_from_last_file, is_learner
    frame.body_size, frame.is_checked, frame.offers_checks = <int32_t>body_size, is_checked, offers_checks
    frame.handshake_crc = 0 if handshake_crc is None else handshake_crc
    frame.body_crc = 0 if body_crc is None else body_crc

    if rmq_ha_frame_check(&frame, RMQ_HA_FRAME_SIZE_MAX, &err) != RMQ_OK:
        raise ArgumentError((<const char *>err.detail).decode())
    return PyBytes_FromStringAndSize(<const char *>out, <Py_ssize_t>rmq_ha_head_encode(&frame, out))


def encode_ha_entries(entries):
    """Return the body of a handshake reply: pairs of epoch and start offset, both ascending, else ArgumentError."""
    cdef list pairs = list(entries)
    cdef rmq_ha_entry entry
    cdef rmq_error err
    cdef bytes body
    cdef uint8_t *at

    if len(pairs) > RMQ_HA_FRAME_SIZE_MAX // RMQ_HA_ENTRY_SIZE:
        raise ArgumentError(f"{len(pairs)} epochs; at most {RMQ_HA_FRAME_SIZE_MAX // RMQ_HA_ENTRY_SIZE} fit a frame")

    body = PyBytes_FromStringAndSize(NULL, len(pairs) * RMQ_HA_ENTRY_SIZE)
    at = <uint8_t *>PyBytes_AS_STRING(body)
    for epoch, start_offset in pairs:
        entry.epoch, entry.start_offset = epoch, start_offset
        rmq_ha_entry_encode(at, entry)
        at += RMQ_HA_ENTRY_SIZE

    if rmq_ha_entries_check(<const uint8_t *>PyBytes_AS_STRING(body), <int32_t>len(body), &err) != RMQ_OK:
        raise ArgumentError((<const char *>err.detail).decode())
    return body
