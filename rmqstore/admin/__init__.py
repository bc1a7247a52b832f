"""Requests of an operator to running servers, Java's or ours; `rmqstore.cli` prints the answers."""
