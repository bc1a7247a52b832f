"""Slow, readable codecs of every file of the store: the second opinion beside the C core.

Each module begins with the table of its format. Nothing here is imported by the package, and
nothing here imports it, so that a mistake in one of the two cannot hide in the other.
"""
