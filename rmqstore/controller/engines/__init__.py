"""Engines that replicate the log of a controller: one interface, one engine for each module."""
