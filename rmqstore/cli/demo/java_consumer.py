"""A consumer of RocketMQ in the cluster of `demo`: Java's own client, whose listener fails at each
message, so that all come again until they are dead letters."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from rmqstore.errors import StoreTimeout

__all__ = ["MESSAGES", "JavaConsumer", "java_command", "java_consumer"]

MESSAGES = 20
_TRIES_LEAST = 3
"""Of a message whose consumer allows two retries."""
_ROOT = Path(__file__).resolve().parents[3]
_BUILD = "tests.support.java_clients"
_WAIT_S = 180.0


class JavaConsumer:
    """A producer and a consumer in one process, which prints a line "@NAME=NUMBER" for each thing
    that it saw."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._seen: dict[str, int] = {}

    async def failed_at_all(self) -> None:
        """Return once the listener has failed at each message. Raises StoreTimeout."""
        await self._until("tried")

    async def proof(self) -> tuple[str, bool]:
        """Return what became of the messages, and whether all are dead letters."""
        await self._until("fewest tries")
        dead, tries = self._seen["dead"], self._seen["fewest tries"]
        text = (
            f"{dead} of {MESSAGES} messages at which Java's listener failed are dead letters, each "
            f"after {tries} tries or more, though masters were killed meanwhile"
        )
        return text, dead == MESSAGES and tries >= _TRIES_LEAST

    async def _until(self, name: str) -> None:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_WAIT_S):
                while name not in self._seen:
                    line = (await self._process.stdout.readline()).decode()
                    if not line:
                        raise StoreTimeout(f"Java's consumer ended; it saw {self._seen}")
                    key, _, value = line.strip().removeprefix("@").partition("=")
                    if line.startswith("@"):
                        self._seen[key] = int(value)
        except TimeoutError:
            raise StoreTimeout(f"waited {_WAIT_S:.0f} s for Java's consumer") from None


async def java_command() -> list[str] | str:
    """Build the program; return its command, or why there is none."""
    builder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", _BUILD), cwd=_ROOT, stdout=asyncio.subprocess.PIPE
    )
    printed = (await builder.communicate())[0].decode().strip()
    return printed if builder.returncode else list(json.loads(printed))


@contextlib.asynccontextmanager
async def java_consumer(
    command: list[str], folder: Path, nameserver: str
) -> AsyncIterator[JavaConsumer]:
    """Run the consumer; its files are in *folder*."""
    home = folder / "java"
    home.mkdir()
    program, *words = command
    with (home / "errors.log").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(program, f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", *words),
            *(nameserver, str(MESSAGES)),
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield JavaConsumer(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
