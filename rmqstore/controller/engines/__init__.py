"""Engines that replicate the log of a controller: one interface, one module for each engine."""
