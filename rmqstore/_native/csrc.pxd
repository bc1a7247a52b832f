# C declarations of the core, in the reading order of csrc/rmq.h.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "base/status.h" nogil:
    enum:
        RMQ_OK, RMQ_NOT_FOUND, RMQ_END, RMQ_INVALID, RMQ_IO, RMQ_NO_SPACE, RMQ_CORRUPT, RMQ_LOCKED
        RMQ_CLOSED, RMQ_READ_ONLY, RMQ_OUT_OF_RANGE, RMQ_MESSAGE_ILLEGAL, RMQ_PROPERTIES_TOO_LARGE
        RMQ_NOT_WRITABLE, RMQ_PAGE_CACHE_BUSY, RMQ_FLUSH_TIMEOUT, RMQ_TIMEOUT, RMQ_BUSY
        RMQ_UNSUPPORTED, RMQ_FORKED

    struct rmq_error:
        int32_t status
        int32_t os_errno
        int64_t at_offset
        char detail[400]

    const char *rmq_status_text(int status)
    int rmq_fail(rmq_error *err, int status, int64_t at_offset, const char *format, ...)


cdef extern from "base/crc32.h" nogil:
    uint32_t rmq_crc32(uint32_t crc, const void *data, size_t size)
    int32_t rmq_crc32_java(const void *data, size_t size)
    const char *rmq_crc32_chosen()


cdef extern from "base/clock.h" nogil:
    int64_t rmq_monotonic_ms()


cdef extern from "base/vfs.h" nogil:
    struct rmq_vfs:
        pass

    rmq_vfs *rmq_vfs_posix()


cdef extern from "base/small_file.h" nogil:
    int rmq_small_file_replace(rmq_vfs *vfs, const char *directory, const char *name, const void *data, size_t size,
                               rmq_error *err)


cdef extern from "format/properties.h" nogil:
    struct rmq_slice:
        const char *data
        size_t size

    bint rmq_properties_next(const char *text, size_t size, size_t *at, rmq_slice *name, rmq_slice *value)
    rmq_slice rmq_properties_find(const char *text, size_t size, const char *name)
    int RMQ_PROPERTIES_SIZE_MAX
    char RMQ_PROPERTY_SEPARATOR


cdef extern from "format/record.h" nogil:
    enum:
        RMQ_FLAG_INNER_BATCH, RMQ_RECORD_SIZE_MIN, RMQ_BLANK_SIZE
        RMQ_CHECK_FORM, RMQ_CHECK_BODY_CRC, RMQ_CHECK_READER, RMQ_CHECK_PLACE
        RMQ_MESSAGE_ID_SIZE_MAX
    int64_t RMQ_BORN_WHEN_STORED

    struct rmq_host:
        uint8_t address[16]
        int32_t port
        uint8_t size

    struct rmq_message:
        const char *topic
        size_t topic_size
        const uint8_t *body
        size_t body_size
        const char *properties
        size_t properties_size
        const char *more_properties
        size_t more_properties_size
        rmq_host born_host
        rmq_host store_host
        int64_t born_timestamp
        int64_t store_timestamp
        int64_t prepared_transaction_offset
        int32_t queue_id
        int32_t flag
        int32_t sys_flag
        int32_t reconsume_times

    struct rmq_record_limits:
        int32_t body_size_max
        int32_t record_size_max
        bint version_by_topic_size
        bint append_property_crc

    struct rmq_record:
        const uint8_t *data
        const uint8_t *body
        const char *topic
        const char *properties
        int64_t queue_offset
        int64_t physical_offset
        int64_t born_timestamp
        int64_t store_timestamp
        int64_t prepared_transaction_offset
        int32_t total_size
        int32_t body_size
        int32_t topic_size
        int32_t properties_size
        int32_t queue_id
        int32_t flag
        int32_t sys_flag
        int32_t body_crc
        int32_t reconsume_times
        int32_t version
        rmq_host born_host
        rmq_host store_host

    int rmq_record_decode(const uint8_t *data, size_t available, int64_t place, unsigned checks,
                          rmq_record *record, rmq_error *err)
    size_t rmq_record_body_at(int32_t sys_flag)
    bint rmq_record_is_unchanged(const uint8_t *copy, const uint8_t *data, size_t size)
    bint rmq_record_head_is_unchanged(const rmq_record *record)
    size_t rmq_message_id(const rmq_host *host, int64_t physical_offset, char *out)


cdef extern from "format/batch.h" nogil:
    struct rmq_batch_item:
        const uint8_t *body
        const char *properties
        int32_t body_size
        int32_t properties_size
        int32_t flag

    size_t rmq_batch_item_size(const rmq_batch_item *item)
    size_t rmq_batch_put(uint8_t *out, const rmq_batch_item *item)
    int rmq_batch_next(const uint8_t *body, size_t size, size_t *at, rmq_batch_item *item, rmq_error *err)


cdef extern from "file/mapped_file.h" nogil:
    struct rmq_mapped_file:
        char *path
        int64_t start
        int64_t size

    void rmq_mapped_file_pin(rmq_mapped_file *file)
    void rmq_mapped_file_unpin(rmq_mapped_file *file)
    uint8_t *rmq_mapped_file_base(rmq_mapped_file *file)


cdef extern from "file/file_queue.h" nogil:
    struct rmq_file_queue:
        size_t count

    int64_t rmq_file_queue_end(const rmq_file_queue *queue)
    int64_t rmq_file_queue_start(const rmq_file_queue *queue)
    int64_t rmq_file_queue_flushed(const rmq_file_queue *queue)


cdef extern from "timer/timer_index.h" nogil:
    struct rmq_timer_unit:
        int64_t position
        int64_t write_ms
        int64_t physical_offset
        int32_t magic
        int32_t size
        int32_t topic_hash
    struct rmq_timer_log:
        rmq_file_queue files
    struct rmq_timer_index:
        rmq_timer_log log
        int64_t last_offset
    struct rmq_timer_index_options:
        rmq_vfs *vfs
        const char *log_directory
        const char *wheel_path
        int64_t file_size
        int64_t precision_ms
        int64_t bound

    int rmq_timer_index_clear(const rmq_timer_index_options *options, rmq_error *err)
    int rmq_timer_index_open(rmq_timer_index *index, const rmq_timer_index_options *options, rmq_error *err)
    void rmq_timer_index_close(rmq_timer_index *index)
    int rmq_timer_index_add(rmq_timer_index *index, int64_t due_ms, rmq_timer_unit *unit, rmq_error *err)
    int rmq_timer_index_units(rmq_timer_index *index, int64_t due_ms, int64_t *at, rmq_timer_unit *units,
                              size_t capacity, size_t *count, rmq_error *err)
    int64_t rmq_timer_index_next(rmq_timer_index *index, int64_t from_ms, int64_t upto_ms)
    int32_t rmq_timer_index_slot_count(rmq_timer_index *index, int64_t due_ms)
    int64_t rmq_timer_index_count(rmq_timer_index *index, int64_t from_ms)
    int rmq_timer_index_flush(rmq_timer_index *index, rmq_error *err)
    int rmq_timer_index_delete_before(rmq_timer_index *index, int64_t physical_offset, rmq_error *err)


cdef extern from "index/consume_queue.h" nogil:
    struct rmq_unit:
        int64_t physical_offset
        int64_t tags_code
        int64_t queue_offset
        int32_t size
        int32_t batch_size

    struct rmq_consume_queue:
        pass

    bint rmq_unit_is_fill(const rmq_unit *unit)
    int rmq_consume_queue_read(rmq_consume_queue *queue, int64_t queue_offset, rmq_unit *units, size_t capacity,
                               size_t *count, rmq_error *err)


cdef extern from "index/consume_queue_ext.h" nogil:
    enum:
        RMQ_EXT_UNIT_SIZE_MAX

    struct rmq_ext_unit:
        const uint8_t *bitmap
        int64_t tags_code
        int32_t bitmap_size

    struct rmq_consume_queue_ext:
        pass

    bint rmq_ext_is_address(int64_t tags_code)
    int rmq_consume_queue_ext_read(rmq_consume_queue_ext *ext, int64_t address, uint8_t *buffer, rmq_ext_unit *unit,
                                   rmq_error *err)


cdef extern from "index/queue_table.h" nogil:
    struct rmq_queue:
        int64_t removed_until
        char *topic
        size_t topic_size
        int32_t queue_id
        bint is_batch
        int64_t next_offset
        bint has_ext
        rmq_consume_queue simple
        rmq_consume_queue_ext ext

    rmq_queue *rmq_queue_table_next(rmq_queue *queue)
    int64_t rmq_queue_physical_end(rmq_queue *queue)
    int64_t rmq_queue_min(rmq_queue *queue)
    int64_t rmq_queue_max(rmq_queue *queue)
    int rmq_queue_read(rmq_queue *queue, int64_t queue_offset, rmq_unit *units, size_t capacity, size_t *count,
                       rmq_error *err)


cdef extern from "file/warmer.h" nogil:
    struct rmq_warmer_options:
        bint whole_file
        bint syncs_ahead
        int64_t large_append


cdef extern from "log/commit_log.h" nogil:
    struct rmq_receipt:
        int64_t physical_offset
        int64_t queue_offset
        int64_t store_timestamp
        int32_t size

    struct rmq_commit_log_options:
        rmq_record_limits limits
        bint multi_dispatch
        rmq_warmer_options warmer
        int64_t page_cache_busy_ms


cdef extern from "log/dispatch.h" nogil:
    enum:
        RMQ_DELAY_LEVELS_MAX

    struct rmq_dispatch_options:
        bint multi_dispatch
        bint limit_to_flushed
        bint bound_index
        int64_t delays_ms[64]
        size_t delay_count


cdef extern from "file/checkpoint.h" nogil:
    struct rmq_checkpoint:
        int64_t physic_timestamp
        int64_t logics_timestamp
        int64_t index_timestamp
        int64_t master_flushed_offset
        int64_t confirm_offset
        int64_t logics_physical_offset


cdef extern from "log/confirm.h" nogil:
    enum rmq_confirm_mode:
        RMQ_CONFIRM_BOUND
    struct rmq_confirm:
        rmq_confirm_mode mode
        int64_t offset
    rmq_confirm rmq_confirm_unset()
    rmq_confirm rmq_confirm_at(int64_t offset)


cdef extern from "log/flusher.h" nogil:
    enum rmq_compatibility:
        RMQ_COMPATIBLE_BOTH, RMQ_COMPATIBLE_5_3, RMQ_COMPATIBLE_5_5

    struct rmq_flusher_options:
        int64_t log_interval_ms
        int64_t log_thorough_ms
        int32_t log_least_pages
        int64_t queue_interval_ms
        int64_t queue_thorough_ms
        int32_t queue_least_pages
        rmq_compatibility compatibility


cdef extern from "log/scan.h" nogil:
    enum rmq_scan_verdict:
        RMQ_SCAN_LIMIT, RMQ_SCAN_END, RMQ_SCAN_BAD

    struct rmq_scan:
        rmq_file_queue *files
        int64_t offset
        rmq_scan_verdict verdict
        rmq_error error
        int32_t bad_size
        rmq_mapped_file *file

    int rmq_scan_next(rmq_scan *scan, rmq_record *record, rmq_error *err)
    int rmq_scan_resync(rmq_scan *scan, rmq_error *err)
    void rmq_scan_finish(rmq_scan *scan)


cdef extern from "log/log_end.h" nogil:
    enum rmq_log_end:
        RMQ_LOG_END_CUT, RMQ_LOG_END_DAMAGED, RMQ_LOG_END_UNKNOWN

    struct rmq_log_end_facts:
        int64_t last_timestamp
        int64_t next_timestamp
        bint is_inside
        bint has_bytes
        bint is_vouched
        bint is_known
        bint is_passed
        bint is_overwritten

    rmq_log_end rmq_log_end_classify(const rmq_log_end_facts *facts)
    bint rmq_log_end_is_vouched(int64_t last_timestamp, int64_t physic_timestamp, bint was_closed)


cdef extern from "log/cut_copy.h" nogil:
    enum:
        RMQ_CUT_PATH_SIZE


cdef extern from "log/recover.h" nogil:
    struct rmq_recovery:
        int64_t start_offset
        int64_t end_offset
        int64_t records
        int64_t cut_bytes
        int64_t milliseconds
        bint was_closed
        bint was_cut
        bint is_vouched
        int64_t doubtful_offset
        bint was_incomplete
        char cut_path[RMQ_CUT_PATH_SIZE]


cdef extern from "file/wakeup.h" nogil:
    struct rmq_wakeups:
        pass

    struct rmq_wakeup:
        int fd

    int rmq_wakeup_open(rmq_wakeup *wakeup, rmq_wakeups *wakeups, rmq_error *err)
    void rmq_wakeup_close(rmq_wakeup *wakeup)
    void rmq_wakeup_abandon(rmq_wakeup *wakeup)
    bint rmq_wakeup_arm(rmq_wakeup *wakeup, int64_t seen)
    void rmq_wakeup_clear(rmq_wakeup *wakeup)


cdef extern from "store/store.h" nogil:
    struct rmq_store_options:
        const char *root
        const char *const *log_directories
        size_t log_directory_count
        const char *const *read_only_log_directories
        size_t read_only_log_directory_count
        bint read_only
        bint allow_gaps
        bint keep_confirm_offset
        bint index_enable
        bint index_tags
        bint need_property_crc
        bint check_crc_on_recover
        int64_t log_file_size
        int64_t queue_file_size
        int64_t batch_queue_file_size
        int64_t ext_file_size
        bint enable_ext
        int32_t index_slot_count
        int32_t index_entry_count
        rmq_commit_log_options log
        rmq_dispatch_options dispatch
        rmq_flusher_options flush

    struct rmq_store:
        pass

    int rmq_store_open(const rmq_store_options *options, rmq_store **store, rmq_error *err)
    int rmq_store_close(rmq_store *store, rmq_error *err)
    void rmq_store_abandon(rmq_store *store)
    void rmq_store_disown(rmq_store *store)
    int rmq_store_check(const rmq_store *store, rmq_error *err)
    int rmq_store_put(rmq_store *store, const rmq_message *messages, size_t count, bint together,
                      rmq_receipt *receipts, size_t *stored, rmq_error *err)
    int rmq_store_append_raw(rmq_store *store, int64_t at, const uint8_t *data, size_t size, rmq_error *err)
    unsigned RMQ_REFUSE_ROLE, RMQ_REFUSE_DISK
    void rmq_store_refuse(rmq_store *store, unsigned reason, bint is_refused)
    int64_t rmq_store_raw_goal(const rmq_store *store)
    int64_t RMQ_RAW_WAIT_MS
    int rmq_store_wait_dispatched(rmq_store *store, int64_t offset, int64_t timeout_ms, rmq_error *err)
    bint rmq_store_ends_in_part(rmq_store *store, int64_t offset)
    int rmq_store_may_change(rmq_store *store, rmq_error *err)
    int rmq_store_check_health(rmq_store *store, rmq_error *err)
    int rmq_store_flush(rmq_store *store, rmq_error *err)
    int rmq_store_truncate(rmq_store *store, int64_t offset, rmq_error *err)
    int rmq_store_copy_cut(rmq_store *store, int64_t from_offset, int64_t to_offset, char *path, rmq_error *err)
    int rmq_store_restart(rmq_store *store, int64_t offset, rmq_error *err)
    int rmq_store_settle(rmq_store *store, int64_t whole_end, rmq_error *err)
    bint rmq_store_is_border(rmq_store *store, int64_t offset)
    int64_t rmq_store_last_record(rmq_store *store)
    int rmq_store_copy(rmq_store *store, int64_t offset, uint8_t *out, size_t size, rmq_error *err)
    int rmq_store_remove_queues(rmq_store *store, const char *topic, size_t topic_size, int64_t log_offset,
                                rmq_error *err)

    struct rmq_queue_start:
        const char *topic
        size_t topic_size
        int32_t queue_id
        int64_t next_offset

    int rmq_store_begin_queues(rmq_store *store, const rmq_queue_start *starts, size_t count, rmq_error *err)
    int rmq_store_expire(rmq_store *store, size_t file_count, rmq_error *err)
    bint rmq_store_keeps_bytes(rmq_store *store)
    bint rmq_store_copy_is_whole(rmq_store *store, const uint8_t *copy, const uint8_t *data, size_t size)
    int rmq_store_refresh(rmq_store *store, rmq_error *err)
    int rmq_store_set_confirm_offset(rmq_store *store, rmq_confirm confirm, rmq_error *err)


cdef extern from "store/store_view.h" nogil:
    const rmq_recovery *rmq_store_recovery(const rmq_store *store)
    size_t rmq_store_index_files_skipped(const rmq_store *store)

    int64_t rmq_store_start(const rmq_store *store)
    int64_t rmq_store_end(const rmq_store *store)
    int64_t rmq_store_flushed(const rmq_store *store)
    int64_t rmq_store_raw_end(const rmq_store *store)
    int64_t rmq_store_cuts(const rmq_store *store)
    int rmq_store_pin(rmq_store *store, int64_t offset, rmq_mapped_file **file, rmq_error *err)
    int rmq_store_pin_at(rmq_store *store, size_t index, rmq_mapped_file **file, rmq_error *err)
    void rmq_store_scan(rmq_store *store, rmq_scan *scan, int64_t from_, int64_t limit, unsigned checks)
    int rmq_store_advance_border(rmq_store *store, int64_t *border, int64_t end, rmq_error *err)
    int rmq_store_show_whole_files(rmq_store *store, rmq_error *err)
    int rmq_store_classify_end(rmq_store *store, rmq_log_end *found, rmq_error *err)
    enum rmq_store_event:
        RMQ_GREW, RMQ_FLUSHED, RMQ_DISPATCHED, RMQ_CONFIRMED
    rmq_wakeups *rmq_store_wakeups(rmq_store *store, rmq_store_event event)

    rmq_queue *rmq_store_find_queue(rmq_store *store, const char *topic, size_t topic_size, int32_t queue_id)
    rmq_queue *rmq_store_first_queue(rmq_store *store)
    int rmq_store_declare_batch_queue(rmq_store *store, const char *topic, size_t topic_size, int32_t queue_id,
                                      rmq_queue **queue, rmq_error *err)

    int64_t rmq_store_dispatched(const rmq_store *store)
    int64_t rmq_store_dispatch_limit(rmq_store *store)
    int rmq_store_await_dispatch(rmq_store *store, int64_t offset, int64_t timeout_ms, rmq_error *err)
    rmq_confirm rmq_store_confirm_bound(const rmq_store *store)

    int rmq_store_wait_flushed(rmq_store *store, int64_t offset, int64_t timeout_ms, rmq_error *err)
    int64_t rmq_store_sync_ms(rmq_store *store)
    struct rmq_flush_watch:
        int fd
    int rmq_store_ask_flush(rmq_store *store, rmq_flush_watch *watch, int64_t offset, rmq_error *err)
    void rmq_store_forget_flush(rmq_store *store, rmq_flush_watch *watch)
    const rmq_checkpoint *rmq_store_checkpoint(const rmq_store *store)

    int rmq_store_replace_file(rmq_store *store, const char *name, const void *data, size_t size, rmq_error *err)
    int rmq_store_remove_file(rmq_store *store, const char *name, rmq_error *err)


cdef extern from "base/gate.h" nogil:
    struct rmq_gate:
        pass

    rmq_gate *rmq_gate_create()
    void rmq_gate_close(rmq_gate *gate)
    void rmq_gate_release(rmq_gate *gate)


cdef extern from "store/read.h" nogil:
    enum:
        RMQ_GET_NO_MATCHED_MESSAGE

    struct rmq_found:
        rmq_mapped_file *file
        rmq_record record
        int64_t queue_offset
        int32_t batch_size

    struct rmq_get_request:
        const char *topic
        size_t topic_size
        int64_t offset
        int64_t max_bytes
        const rmq_slice *tags
        size_t tag_count
        size_t max_count
        size_t max_units
        int32_t queue_id
        bint check_crc

    struct rmq_get_result:
        int status
        int64_t next_offset
        int64_t min_offset
        int64_t max_offset
        size_t count

    int rmq_store_get(rmq_store *store, const rmq_get_request *request, rmq_found *found, rmq_get_result *result,
                      rmq_error *err)
    void rmq_found_release(rmq_found *found, size_t count)
    int rmq_store_at(rmq_store *store, int64_t physical_offset, bint check_crc, rmq_found *found, rmq_error *err)
    int rmq_store_offset_by_time(rmq_store *store, const char *topic, size_t topic_size, int32_t queue_id,
                                 int64_t timestamp, bint upper, int64_t *offset, rmq_error *err)
    int rmq_store_query(rmq_store *store, rmq_slice topic, rmq_slice key, bint tag, int64_t begin_ms, int64_t end_ms,
                        size_t max_count, rmq_found *found, size_t *count, rmq_error *err)


cdef extern from "replica/ack_log.h" nogil:
    struct rmq_ack_log:
        pass

    struct rmq_ack_model:
        int64_t end_offset
        int64_t flushed_offset
        int64_t now_ms

    rmq_ack_log rmq_ack_log_of_store(rmq_store *store)
    rmq_ack_log rmq_ack_log_of_model(rmq_ack_model *model)
    void rmq_ack_model_init(rmq_ack_model *model, int64_t end_offset, int64_t flushed_offset, int64_t confirm_offset)
    void rmq_ack_model_destroy(rmq_ack_model *model)
    void rmq_ack_model_append(rmq_ack_model *model, int64_t end_offset)
    void rmq_ack_model_flush(rmq_ack_model *model, int64_t flushed_offset)


cdef extern from "replica/ack_board.h" nogil:
    enum:
        RMQ_ACK_SLOTS_MAX, RMQ_ACK_REASON_SIZE
        RMQ_PUT_OK, RMQ_PUT_FLUSH_SLAVE_TIMEOUT, RMQ_PUT_SERVICE_NOT_AVAILABLE, RMQ_PUT_OS_PAGE_CACHE_BUSY
        RMQ_PUT_IN_SYNC_REPLICAS_NOT_ENOUGH

    struct rmq_ack_rule:
        const int32_t *counted
        size_t counted_count
        const int32_t *waited
        size_t waited_count
        bint has_set
        bint is_missing
        bint is_gated
        int32_t confirm_copies
        int32_t epoch
        int64_t epoch_start
        int32_t status
        const char *reason
        int32_t copies
        bint needs_all
        bint is_flushed
        int32_t present
        int32_t available
        int64_t lease_end_ms
        int64_t waiting_max
        int64_t timeout_ms

    struct rmq_ack_need:
        uint64_t term
        int32_t copies
        bint needs_all

    struct rmq_ack_inbox:
        int fd

    struct rmq_ack_waiter:
        rmq_ack_need need
        int64_t end_offset
        rmq_ack_waiter *after
        rmq_ack_inbox *inbox
        int32_t status
        int32_t copies
        void *owner

    struct rmq_ack_board:
        pass

    rmq_ack_board *rmq_ack_board_create(rmq_ack_log log)
    void rmq_ack_board_destroy(rmq_ack_board *board)
    int rmq_ack_board_open_slot(rmq_ack_board *board, int32_t *slot, rmq_error *err)
    void rmq_ack_board_close_slot(rmq_ack_board *board, int32_t slot)
    void rmq_ack_board_ack(rmq_ack_board *board, int32_t slot, int32_t epoch, int64_t offset)
    size_t rmq_ack_board_acks(rmq_ack_board *board, int32_t *slots, int32_t *epochs, int64_t *offsets)
    int32_t rmq_ack_board_copies_of(rmq_ack_board *board, int64_t end_offset)
    int64_t rmq_ack_board_freeze(rmq_ack_board *board)
    int rmq_ack_board_thaw(rmq_ack_board *board, const rmq_ack_rule *rule, rmq_error *err)
    void rmq_ack_board_abandon(rmq_ack_board *board)
    void rmq_ack_board_detach(rmq_ack_board *board)
    int64_t rmq_ack_board_confirm_offset(rmq_ack_board *board)
    int64_t rmq_ack_board_waiting(rmq_ack_board *board)
    bint rmq_ack_board_is_flushed(rmq_ack_board *board)
    int64_t rmq_ack_board_timeout_ms(rmq_ack_board *board)
    int rmq_ack_board_admit(rmq_ack_board *board, bint is_replicated, int32_t copies, rmq_ack_need *need)
    void rmq_ack_board_reason(rmq_ack_board *board, int status, const rmq_ack_need *need, char *reason)
    int rmq_ack_board_acknowledge(rmq_ack_board *board, const rmq_ack_need *need)
    int64_t rmq_ack_board_begin_wait(rmq_ack_board *board, rmq_ack_waiter *waiter)
    bint rmq_ack_waiter_await(rmq_ack_waiter *waiter, int64_t timeout_ms)
    void rmq_ack_board_end_wait(rmq_ack_board *board, rmq_ack_waiter *waiter)
    bint rmq_ack_board_begin(rmq_ack_board *board, rmq_ack_waiter *waiter)
    void rmq_ack_board_send_now(rmq_ack_board *board)
    bint rmq_ack_board_withdraw(rmq_ack_board *board, rmq_ack_waiter *waiter)
    void rmq_ack_inbox_init(rmq_ack_inbox *inbox)
    int rmq_ack_inbox_open(rmq_ack_inbox *inbox, rmq_error *err)
    void rmq_ack_inbox_close(rmq_ack_inbox *inbox)
    rmq_ack_waiter *rmq_ack_inbox_take(rmq_ack_inbox *inbox)
