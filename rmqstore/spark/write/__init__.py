"""Writing: a DataFrame becomes a store, or more messages of one."""
