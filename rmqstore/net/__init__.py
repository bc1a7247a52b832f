"""Addresses, sockets and event loops: the base of every network service here."""
