"""The nameserver: brokers register, clients look up the queues of a topic."""
