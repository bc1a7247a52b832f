"""The machines of replication at work: sockets, threads and the log of a store."""
