"""Bodies with settings, as in a properties file: UPDATE_BROKER_CONFIG and its siblings."""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.config import parse_properties
from rmqstore.errors import RemotingFrameError

__all__ = ["settings_of"]


def settings_of(body: bytes) -> Mapping[str, str]:
    """Return the values of a body by key. Raises RemotingFrameError, or ValueError."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise RemotingFrameError(f"it is not UTF-8: {error}") from error
    return parse_properties(text)
