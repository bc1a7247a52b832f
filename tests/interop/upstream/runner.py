"""Runs test classes in JVMs, one class after the other in each."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.interop.upstream import PROGRAMS, RELEASE
from tests.interop.upstream.servers import Servers
from tests.support import java

__all__ = ["Outcome", "run"]

CLASS_LIMIT_S = 400.0
_END_S = 20.0
_LINE_BYTES = 1 << 22
_MEMORY = ("-Xmx600m", "-XX:MaxDirectMemorySize=256m")
_STDERR_KEPT = 4000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one method ended, or a whole class without any method."""

    name: str
    """The class, relative to the package of RocketMQ's tests."""
    method: str
    """Empty for the class itself."""
    ended: str
    """passed, failed or ignored."""
    seconds: float = 0.0
    text: str = ""
    """The exception of a failure with its causes."""


async def run(
    tests: Iterable[str],
    servers: Servers,
    *,
    jvms: int = 1,
    told: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run classes, or methods as CLASS#METHOD, in *jvms* at a time; return every outcome.

    A class that takes longer than CLASS_LIMIT_S fails, and its JVM is killed.
    """
    waiting = deque(tests)
    outcomes: list[Outcome] = []

    def take(outcome: Outcome) -> None:
        outcomes.append(outcome)
        told(outcome)

    async with asyncio.TaskGroup() as group:
        for _ in range(jvms):
            group.create_task(_work(waiting, servers, take))
    return outcomes


async def _work(waiting: deque[str], servers: Servers, take: Callable[[Outcome], None]) -> None:
    while waiting:
        async with _jvm(servers) as jvm:
            is_sound = True
            while waiting and is_sound:
                is_sound = await jvm.run(waiting.popleft(), take)


@asynccontextmanager
async def _jvm(servers: Servers) -> AsyncIterator[_Jvm]:
    with (
        java.scratch([*java.quick_flags(RELEASE, PROGRAMS), *_MEMORY]) as flags,
        tempfile.TemporaryFile() as errors,
    ):
        named = ("-Djava.net.preferIPv4Stack=true", *servers.flags)
        command = java.command(RELEASE, "upstream.Runner", flags=[*flags, *named], project=PROGRAMS)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=_LINE_BYTES,
        )
        try:
            yield _Jvm(process, errors)
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Return once a JVM has ended; it ends itself at the end of its input, unless it hangs."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_END_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


class _Jvm:
    """A running JVM with the program that runs classes."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Any) -> None:
        self._process = process
        self._errors = errors

    async def run(self, test: str, take: Callable[[Outcome], None]) -> bool:
        """Run a class; return whether the JVM can run another one."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{test}\n".encode())
        try:
            async with asyncio.timeout(CLASS_LIMIT_S):
                while "done" not in (event := await self._event()):
                    take(
                        Outcome(
                            event["class"],
                            event["method"],
                            event["outcome"],
                            event["seconds"],
                            event["text"],
                        )
                    )
        except TimeoutError:
            take(_whole(test, f"took over {CLASS_LIMIT_S:.0f} s"))
            return False
        except EOFError:
            take(_whole(test, f"the JVM ended: {self._last_errors()}"))
            return False
        return True

    async def _event(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.startswith(b"@"):
                event: dict[str, Any] = json.loads(line[1:])
                return event
        raise EOFError

    def _last_errors(self) -> str:
        size = self._errors.seek(0, 2)
        self._errors.seek(max(0, size - _STDERR_KEPT))
        text: bytes = self._errors.read()
        return text.decode(errors="replace")


def _whole(test: str, text: str) -> Outcome:
    """Returns the failure of a class without that of a method."""
    return Outcome(test.partition("#")[0], "", "failed", text=text)
