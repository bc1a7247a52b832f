"""Scripts of replication with expected text."""
