def replace_small_file(directory, name, data):
    """Put *data* in the place of the file *name* in *directory*, whole or not at all; durable on return.

    Raises DiskError: the file then has its former content, or the new one where only the directory could not be
    synced.
    """
    cdef rmq_error err
    cdef bytes native_directory = os.fsencode(directory)
    cdef bytes native_name = os.fsencode(name)
    cdef bytes content = data
    cdef const char *in_directory = native_directory
    cdef const char *as_name = native_name
    cdef const char *bytes_ = PyBytes_AS_STRING(content)
    cdef size_t size = <size_t>PyBytes_GET_SIZE(content)
    cdef int status
    with nogil:
        status = rmq_small_file_replace(rmq_vfs_posix(), in_directory, as_name, bytes_, size, &err)
    check(status, &err)
