"""Entry point of the command line; names the extra to install when typer is missing."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]

_USAGE, _INTERRUPTED = 2, 130


def main() -> None:
    """Run the command that the process's arguments name, and exit with its code."""
    _open_standard_streams()
    try:
        from rmqstore.cli.app import app
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("rich", "typer"):
            raise
        print(
            f"rmqstore: the command line needs {error.name}; pip install 'rmqstore[cli]'",
            file=sys.stderr,
        )
        sys.exit(_USAGE)
    app()


def _open_standard_streams() -> None:
    """Replace standard streams that the caller closed by the null device.

    Otherwise the first file opened would get such a stream's descriptor.
    """
    modes = {"stdin": os.O_RDONLY, "stdout": os.O_WRONLY, "stderr": os.O_WRONLY}
    for descriptor, (name, mode) in enumerate(modes.items()):
        try:
            os.fstat(descriptor)
        except OSError:
            nowhere = os.open(os.devnull, mode)
            assert nowhere == descriptor, "the lowest free descriptor"
            setattr(sys, name, open(descriptor, "w" if mode == os.O_WRONLY else "r"))
