"""Streaming queries: how far they have come in commit logs that grow, and where a batch ends."""
