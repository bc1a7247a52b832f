"""Replicas over real sockets: recorded streams, and peers that break the rules."""
