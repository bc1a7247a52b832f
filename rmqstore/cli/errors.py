"""Exit codes, and the conversion of exceptions to one line on stderr."""

from __future__ import annotations

import functools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any, ParamSpec

import typer

from rmqstore import store as store_module
from rmqstore.config import Configuration
from rmqstore.errors import (
    ArgumentError,
    ConfigError,
    CorruptionError,
    MissingExtraError,
    NotFoundError,
    OffsetOutOfRange,
    StoreError,
)
from rmqstore.store import Store

__all__ = [
    "EXIT_CODES",
    "CannotOpenError",
    "ExitCode",
    "check_directory",
    "command",
    "fail",
    "opened",
    "settings_of",
    "print_error",
    "text_of",
]

_Arguments = ParamSpec("_Arguments")


class ExitCode(IntEnum):
    """Exit codes of the process."""

    OK = 0
    FAULT = 1
    USAGE = 2
    CANNOT_OPEN = 3
    FAILED = 4
    INTERRUPTED = 130
    BROKEN_PIPE = 141


EXIT_CODES = (
    "Exit codes: 0 all is well; 1 nothing was found, or damage was; 2 wrong usage; 3 the store "
    "cannot be opened; 4 the work failed on the way; 130 interrupted; 141 the reader of the output "
    "went away."
)


class CannotOpenError(StoreError):
    """The store of a command cannot be opened."""


def print_error(text: str) -> None:
    """Print one line on stderr."""
    print(f"rmqstore: {' '.join(text.split())}", file=sys.stderr)


def fail(text: str, code: ExitCode) -> typer.Exit:
    """Print one line on stderr; return an exception to raise, which ends the command with
    *code*."""
    print_error(text)
    return typer.Exit(code)


def command(function: Callable[_Arguments, ExitCode]) -> Callable[_Arguments, None]:
    """Return a command that calls *function*, prints an exception as one line, and exits with the
    matching code."""

    @functools.wraps(function)
    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        try:
            code = function(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            _forget_stdout()
            raise typer.Exit(ExitCode.BROKEN_PIPE) from None
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except (StoreError, OSError) as error:
            path = kwargs.get("path")
            text = text_of(error, path if isinstance(path, Path) else None)
            raise fail(text, _code_of(error)) from None
        if code is not ExitCode.OK:
            raise typer.Exit(code)

    return run


@contextmanager
def opened(
    path: Path,
    config: Path | Configuration | None = None,
    *,
    read_only: bool = True,
    **settings: Any,
) -> Iterator[Store]:
    """Open a store for the block; a failure to open ends the command with CANNOT_OPEN."""
    try:
        store = store_module.open(path, config, read_only=read_only, **settings)
    except ConfigError:
        raise
    except (StoreError, OSError) as error:
        raise fail(text_of(error, path), ExitCode.CANNOT_OPEN) from None
    with store:
        yield store


def check_directory(path: Path) -> None:
    """Raise CannotOpenError for a path that is not a directory, or cannot be read."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise CannotOpenError(
            f"{path} does not exist; give the directory that holds commitlog/"
        ) from None
    except OSError as error:
        raise CannotOpenError(f"{path}: {error.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise CannotOpenError(
            f"{path} is not a directory; give the directory that holds commitlog/"
        )


def settings_of(config: Path | None) -> Configuration | None:
    """Return the settings of a broker's file, None without a file."""
    return None if config is None else Configuration.from_properties(config)


def text_of(error: Exception, path: Path | None = None) -> str:
    """Return the message of *error* as one line, with the cure for the store at *path*."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    name = getattr(error, "filename", None)
    # Calls on descriptors have the number in its place.
    if name and not isinstance(name, int):
        text = f"{name}: {text}"
    if isinstance(error, CorruptionError) and error.suggested_command:
        command = error.suggested_command.replace("PATH", str(path) if path else "PATH")
        if command not in text:
            text = f"{text}; look closer with: {command}"
    return text


def _code_of(error: Exception) -> ExitCode:
    if isinstance(error, CannotOpenError):
        return ExitCode.CANNOT_OPEN
    if isinstance(error, NotFoundError | OffsetOutOfRange | CorruptionError):
        return ExitCode.FAULT
    if isinstance(error, ArgumentError | ConfigError | MissingExtraError):
        return ExitCode.USAGE
    return ExitCode.FAILED


def _forget_stdout() -> None:
    """Prevents the interpreter from flushing into a closed pipe at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
