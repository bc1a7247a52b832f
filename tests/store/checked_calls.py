"""Calls every public verb with wrong values, one parameter at a time, in a process of its own.

    python -m tests.store.checked_calls GROUP FOLDER

A line names each call before it begins, so that the last line names the call that ended the
process. Then the call is checked: a wrong value raises an exception of the package that names the
parameter, and a put that raised one that does not say "stored" has stored nothing. Lines that begin
with "fault: " say what else was seen.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import rmqstore
import rmqstore.aio
from rmqstore import PutError, Store, StoreError
from rmqstore.replication import ReplicatedStore
from tests.store.wrong_calls import GROUPS, Bench, Verb
from tests.store.wrong_values import OWN_ERRORS, VALUES

FEW_RECORDS = 3

# What has to be called by each group.
COVERED: Mapping[str, Any] = {
    "store": Store,
    "queue": rmqstore.Queue,
    "aio": rmqstore.aio.AsyncStore,
    "replication": ReplicatedStore,
}
NO_WRONG_VALUE = {"self", "options", "members", "arguments", "settings", "put"}


def missing(group: str, folder: Path) -> list[str]:
    """Return the public verbs, and their parameters, that the group does not call."""
    called: dict[str, set[str]] = {}
    bench = Bench(folder)
    for verb in GROUPS[group](bench):
        called.setdefault(verb.name, set()).update(verb.right)
    bench.store.close()

    found = []
    for name in dir(COVERED[group]):
        function = getattr(COVERED[group], name)
        if name.startswith("_") or not inspect.isroutine(function):
            continue

        if name not in called:
            found.append(name)
            continue

        wanted = set(inspect.signature(function).parameters) - NO_WRONG_VALUE
        found += [f"{name}({each}=)" for each in sorted(wanted - called[name])]

    return found


# ---- checking


def use(result: Any) -> None:
    """Does with a result what its caller would: iterates a little, and closes it."""
    if isinstance(result, Iterator) and not inspect.isgenerator(result):
        for _ in zip(range(FEW_RECORDS), result, strict=False):
            pass
    elif isinstance(result, contextlib.AbstractContextManager):
        with result as entered:
            if isinstance(entered, Iterator):
                next(entered, None)
    elif hasattr(result, "__arrow_c_stream__"):
        result.__arrow_c_stream__()
    close = getattr(result, "close", None)
    if close is not None and not inspect.iscoroutinefunction(close):
        close()


def fault_of(verb: Verb, parameter: str, value: Any, bench: Bench) -> str | None:
    accepts = verb.accepts_of(parameter)(value) if parameter else True
    store = bench.ready() if verb.is_put else None
    end = 0 if store is None or store.closed else store.end_offset
    arguments = {**verb.right, parameter: value} if parameter else dict(verb.right)

    try:
        use(verb.function(**arguments))
    except StoreError as error:
        text = str(error)
        if isinstance(error, SystemError):
            return f"raised {error!r}"
        if not accepts and parameter not in text and parameter not in verb.names_others:
            return f"the error does not name {parameter}: {text}"
        is_stored = isinstance(error, PutError) and error.stored is not False
        if store is not None and not is_stored and not store.closed and store.end_offset != end:
            return f"stored a message behind {type(error).__name__}: {text}"
        return None
    except RuntimeError as error:
        # The value's own, from code that the caller passed in.
        return None if str(error) in OWN_ERRORS else f"raised {error!r}"
    except Exception as error:
        if parameter == "progress" and callable(value):
            return None  # the function's own
        return f"raised {type(error).__name__}: {error}"

    return None if accepts else "the value was accepted"


def main(group: str, folder: str) -> None:
    warnings.simplefilter("error")
    os.chdir(folder)
    bench = Bench(Path(folder))
    count = 0
    for verb in GROUPS[group](bench):
        for parameter in ("", *verb.right):
            for name, make in VALUES.items() if parameter else {"right values": None}.items():
                print(f"{verb.name}({parameter}={name})", flush=True)
                fault = fault_of(verb, parameter, make() if make else None, bench)
                count += 1
                if fault is not None:
                    print(f"fault: {fault}", flush=True)
    bench.store.close()
    print(f"done: {count} calls", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
