"""Errors of this package that Spark hands on as text, among the traces of its own."""

from __future__ import annotations

import re

from rmqstore import errors
from rmqstore.errors import ArgumentError, CorruptionError, NotFoundError, StoreError

__all__ = ["own_error"]

# A message that lists several mistakes continues in lines that begin with two blanks.
_OWN_ERROR = re.compile(r"(?:^|: )rmqstore\.errors\.(\w+): (.+(?:\n  \S.*)*)$", re.MULTILINE)
_REMADE = (ArgumentError, CorruptionError, NotFoundError)


def own_error(error: Exception) -> StoreError | None:
    """Return the error of a task or of the source that *error* of Spark's wraps, None without one.

    Its class is that of the original where the text is all that the class needs, else StoreError.
    """
    found = _OWN_ERROR.findall(str(error))
    if not found:
        return None
    name, text = found[-1]
    kind = getattr(errors, name, StoreError)
    return kind(text) if kind in _REMADE else StoreError(text)
