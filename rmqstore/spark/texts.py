"""Texts of readers in Python and in the JVM, with the names that each fills in.

The reader in the JVM gets them with its plan, so that a text exists once.
"""

from __future__ import annotations

__all__ = [
    "CUT",
    "DAMAGE",
    "GONE",
    "HIDDEN",
    "LEFT_OUT",
    "LOST",
    "MISSING",
    "NOT_NULL",
    "SHORT_UNITS",
    "UNWRITTEN",
]

CUT = "the file ends within the record that begins at physical offset {offset}"
UNWRITTEN = "nothing was written at physical offset {offset}, where a record should begin"
DAMAGE = (
    "{path}: {what} (byte {byte} of the file); the option onCorrupt takes skip to go on at the "
    "next whole record, or row to see each such place as a row"
)
MISSING = "{path} does not exist"
GONE = (
    "{path}: {error}; {size} bytes from physical offset {start} on were deleted after the read was "
    "planned; with the option failOnDataLoss false it goes on without them"
)
HIDDEN = (
    "{folder}: host {host} has no file of the commit log there, which was there when the read was "
    "planned, and retention never deletes all of a log; mount the store on every host that reads "
    "it, at the same path"
)
NOT_NULL = (
    "column {column} is NOT NULL, and a row that stands for damage has none: let it be null, or "
    "set onCorrupt to fail or skip"
)
SHORT_UNITS = (
    "{path} ends before unit {unit}, which it held when the read was planned; run the query again"
)
LEFT_OUT = "{count} places of {size} bytes hold no readable message, first: {error}"
LOST = "data loss: deleted since the read was planned: {places}"
