# What a store is opened with.


cdef rmq_host parse_host(str name, address) except *:
    cdef rmq_host host
    cdef bytes packed
    import ipaddress

    text, port = arguments.host(name, address)
    try:
        packed = ipaddress.ip_address(text).packed
    except ValueError:
        raise ArgumentError(f"{name} is {arguments.shown(address)}; give an IPv4 or IPv6 address") from None
    memset(&host, 0, sizeof(host))
    host.size = <uint8_t>len(packed)
    memcpy(host.address, PyBytes_AS_STRING(packed), host.size)
    host.port = port
    return host


cdef int fill_options(rmq_store_options *options, dict settings) except -1:
    cdef Py_ssize_t i
    cdef tuple delays = settings["delay_levels_ms"]

    options.read_only = settings["read_only"]
    options.allow_gaps = settings["allow_gaps"]
    options.keep_confirm_offset = settings["keep_confirm_offset"]
    options.index_enable = settings["index_enable"]
    options.index_tags = settings["index_tags"]
    options.need_property_crc = settings["need_property_crc"]
    options.check_crc_on_recover = settings["check_crc_on_recover"]

    options.log_file_size = settings["log_file_size"]
    options.queue_file_size = settings["queue_file_size"]
    options.batch_queue_file_size = settings["batch_queue_file_size"]
    options.ext_file_size = settings["ext_file_size"]
    options.enable_ext = settings["enable_ext"]
    options.index_slot_count = settings["index_slot_count"]
    options.index_entry_count = settings["index_entry_count"]

    options.log.limits.body_size_max = settings["body_size_max"]
    options.log.limits.record_size_max = settings["record_size_max"]
    options.log.limits.version_by_topic_size = settings["version_by_topic_size"]
    options.log.limits.append_property_crc = settings["append_property_crc"]

    options.log.multi_dispatch = settings["multi_dispatch"]
    options.log.warmer.whole_file = settings["warm_whole_file"]
    options.log.warmer.syncs_ahead = settings["sync_ahead"]
    options.log.warmer.large_append = 0  # the core's own bound
    options.log.page_cache_busy_ms = settings["page_cache_busy_ms"]

    options.dispatch.multi_dispatch = settings["multi_dispatch"]
    options.dispatch.limit_to_flushed = settings["limit_to_flushed"]
    options.dispatch.bound_index = settings["compatibility"] == "both"

    if len(delays) > RMQ_DELAY_LEVELS_MAX:
        raise ArgumentError(f"{len(delays)} delay levels; the limit is {RMQ_DELAY_LEVELS_MAX}")
    for i in range(len(delays)):
        options.dispatch.delays_ms[i] = delays[i]
    options.dispatch.delay_count = <size_t>len(delays)

    options.flush.log_interval_ms = settings["flush_interval_ms"]
    options.flush.log_thorough_ms = settings["flush_thorough_ms"]
    options.flush.log_least_pages = settings["flush_least_pages"]
    options.flush.queue_interval_ms = settings["flush_queue_interval_ms"]
    options.flush.queue_thorough_ms = settings["flush_queue_thorough_ms"]
    options.flush.queue_least_pages = settings["flush_queue_least_pages"]

    options.flush.compatibility = {"both": RMQ_COMPATIBLE_BOTH, "5.3": RMQ_COMPATIBLE_5_3,
                                   "5.5": RMQ_COMPATIBLE_5_5}[settings["compatibility"]]

    return 0
