# cython: language_level=3
"""A node of a Raft group: csrc/raft. This extension is left out where libraft is not installed."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from posix.unistd cimport getpid

import os

from rmqstore.errors import StoreClosedError, StoreMemoryError


cdef extern from "raft/raft_events.h" nogil:
    cdef enum:
        RMQ_RAFT_APPLY
        RMQ_RAFT_RESTORE
        RMQ_RAFT_SNAPSHOT
        RMQ_RAFT_DONE
        RMQ_RAFT_LEADERSHIP
        RMQ_RAFT_FAILED
        RMQ_RAFT_CLOSED
    struct rmq_raft_event:
        int kind
        int status
        uint64_t index
        uint64_t term
        uint64_t request
        size_t size
        uint8_t *data
    struct rmq_raft_events:
        int fd
    rmq_raft_event *rmq_raft_events_take(rmq_raft_events *events)


cdef extern from "raft/raft_node.h" nogil:
    enum:
        RMQ_RAFT_ERROR_SIZE
        RMQ_RAFT_OK
        RMQ_RAFT_NOT_LEADER
        RMQ_RAFT_UNKNOWN
    struct rmq_raft_peer:
        uint64_t id
        const char *address
    struct rmq_raft_options:
        const char *directory
        uint64_t id
        const char *bind_address
        const rmq_raft_peer *peers
        size_t peer_count
        unsigned election_ms
        unsigned heartbeat_ms
        unsigned snapshot_entries
        unsigned trailing_entries
    struct rmq_raft:
        pass
    int rmq_raft_found(const rmq_raft_options *options, char *error)
    int rmq_raft_open(rmq_raft **node, const rmq_raft_options *options, char *error)
    int rmq_raft_propose(rmq_raft *node, uint64_t request, const void *command, size_t size)
    int rmq_raft_barrier(rmq_raft *node, uint64_t request)
    int rmq_raft_give_snapshot(rmq_raft *node, const void *state, size_t size)
    rmq_raft_events *rmq_raft_events_of(rmq_raft *node)
    void rmq_raft_close(rmq_raft *node)
    void rmq_raft_free(rmq_raft *node)


cdef extern from "raft.h" nogil:
    enum:
        RAFT_CORRUPT
        RAFT_MALFORMED

APPLY = RMQ_RAFT_APPLY
RESTORE = RMQ_RAFT_RESTORE
SNAPSHOT = RMQ_RAFT_SNAPSHOT
DONE = RMQ_RAFT_DONE
LEADERSHIP = RMQ_RAFT_LEADERSHIP
FAILED = RMQ_RAFT_FAILED
CLOSED = RMQ_RAFT_CLOSED
OK = RMQ_RAFT_OK
NOT_LEADER = RMQ_RAFT_NOT_LEADER
UNKNOWN = RMQ_RAFT_UNKNOWN


class RaftError(Exception):
    """A node that could not be founded or started; *is_damage*: the files cannot be read."""

    def __init__(self, message, is_damage):
        super().__init__(message)
        self.is_damage = is_damage


cdef class _Options:
    cdef rmq_raft_options c
    cdef rmq_raft_peer *peers
    cdef object kept

    def __cinit__(self, directory, *, uint64_t node_id, bind_address, peers, unsigned election_ms,
                  unsigned heartbeat_ms, unsigned snapshot_entries, unsigned trailing_entries):
        if not peers or not 0 < heartbeat_ms < election_ms or not snapshot_entries:
            raise ValueError("the options of a node contradict each other")
        named = [(int(each), address.encode("ascii")) for each, address in peers]
        if any(not each or len(address) > 21 for each, address in named):
            raise ValueError("a peer has an id above 0 and an address IPv4:port")
        self.kept = (os.fsencode(directory), bind_address.encode("ascii"), named)
        self.peers = <rmq_raft_peer *>calloc(len(named), sizeof(rmq_raft_peer))
        if self.peers == NULL:
            raise MemoryError
        for number, (each, address) in enumerate(named):
            self.peers[number].id = each
            self.peers[number].address = PyBytes_AS_STRING(address)
        self.c.directory = PyBytes_AS_STRING(self.kept[0])
        self.c.bind_address = PyBytes_AS_STRING(self.kept[1])
        self.c.id = node_id
        self.c.peers = self.peers
        self.c.peer_count = len(named)
        self.c.election_ms = election_ms
        self.c.heartbeat_ms = heartbeat_ms
        self.c.snapshot_entries = snapshot_entries
        self.c.trailing_entries = trailing_entries

    def __dealloc__(self):
        free(self.peers)


cdef int _check(int status, const char *error) except -1:
    if status == 0:
        return 0
    raise RaftError(
        error.decode("utf-8", "replace"), status == RAFT_CORRUPT or status == RAFT_MALFORMED
    )


def found(directory, **options):
    """Write the first entry of a new group to an empty directory. Raises RaftError."""
    cdef _Options given = _Options(directory, **options)
    cdef char error[RMQ_RAFT_ERROR_SIZE]
    cdef int status
    with nogil:
        status = rmq_raft_found(&given.c, error)
    _check(status, error)


@cython.final
cdef class Node:
    """A node that takes part in its group from here to `close`."""

    cdef rmq_raft *node
    cdef int process_id

    def __cinit__(self, directory, **options):
        cdef _Options given = _Options(directory, **options)
        cdef char error[RMQ_RAFT_ERROR_SIZE]
        cdef int status
        self.process_id = getpid()
        with nogil:
            status = rmq_raft_open(&self.node, &given.c, error)
        _check(status, error)

    def __dealloc__(self):
        # A child that was forked has no thread to wait for.
        if self.node != NULL and self.process_id == getpid():
            with nogil:
                rmq_raft_free(self.node)

    cdef rmq_raft *use(self) except NULL:
        if self.node == NULL or self.process_id != getpid():
            raise StoreClosedError("the node was freed, or belongs to another process")
        return self.node

    def fileno(self):
        """Return a descriptor that is readable while there are events."""
        return rmq_raft_events_of(self.use()).fd

    def next_event(self):
        """Return (kind, status, index, term, request, data) of the next event, or None."""
        cdef rmq_raft_event *event = rmq_raft_events_take(rmq_raft_events_of(self.use()))
        if event == NULL:
            return None
        try:
            return (
                event.kind,
                event.status,
                event.index,
                event.term,
                event.request,
                PyBytes_FromStringAndSize(<const char *>&event.data[0], event.size),
            )
        finally:
            free(event)

    def propose(self, uint64_t request, bytes command not None):
        """Have *command* committed; an event DONE has the outcome."""
        if not request:
            raise ValueError("the number of a request is above 0")
        if rmq_raft_propose(
            self.use(), request, PyBytes_AS_STRING(command), PyBytes_GET_SIZE(command)
        ):
            raise StoreMemoryError("no memory for a command")

    def barrier(self, uint64_t request):
        """Make sure that this node leads; an event DONE has the outcome."""
        if not request:
            raise ValueError("the number of a request is above 0")
        if rmq_raft_barrier(self.use(), request):
            raise StoreMemoryError("no memory for a barrier")

    def give_snapshot(self, bytes state not None):
        """Answer an event SNAPSHOT."""
        if rmq_raft_give_snapshot(self.use(), PyBytes_AS_STRING(state), PyBytes_GET_SIZE(state)):
            raise StoreMemoryError("no memory for a snapshot")

    def close(self):
        """Begin to close; the event CLOSED reports the end."""
        rmq_raft_close(self.use())

    def free(self):
        """Wait for the end of the thread, and free the node."""
        cdef rmq_raft *node
        if self.node == NULL:
            return
        node = self.use()
        self.node = NULL
        with nogil:
            rmq_raft_free(node)
