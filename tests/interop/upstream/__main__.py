"""Runs RocketMQ's tests: `python -m tests.interop.upstream [CLASS | CLASS#METHOD]...`.

Without names it runs every class of the table. Exit status 1 tells that the table is not right.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.interop.upstream import PROGRAMS, RELEASE
from tests.interop.upstream.runner import Outcome, run
from tests.interop.upstream.servers import java_servers, our_servers
from tests.interop.upstream.table import Side, Table
from tests.support import java


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.upstream", description=__doc__)
    parser.add_argument("tests", nargs="*", metavar="CLASS", help="with or without its package")
    parser.add_argument("--java", action="store_true", help="over servers of Java")
    parser.add_argument("--quick", action="store_true", help="the classes of the default run")
    parser.add_argument("--jvms", type=int, default=2, help="classes at a time. Default: 2")
    arguments = parser.parse_args()

    lacking = java.missing()
    if lacking:
        print(lacking, file=sys.stderr)
        return 2
    table = Table()
    try:
        named = [table.named(each) for each in arguments.tests]
    except ValueError as error:
        parser.error(str(error))
    tests = named or (table.quick() if arguments.quick else list(table.classes))
    side = Side.JAVA if arguments.java else Side.OURS
    return asyncio.run(_play(table, tests, side, jvms=min(arguments.jvms, len(tests))))


async def _play(table: Table, tests: list[str], side: Side, *, jvms: int) -> int:
    def show(outcome: Outcome) -> None:
        mark = "DIFFERS" if table.difference(outcome, side) else "as known"
        where = f"{outcome.name}#{outcome.method}"
        print(f"{mark} {outcome.ended} {outcome.seconds:.1f} s {where} {outcome.text}", flush=True)

    java.build(RELEASE, PROGRAMS)
    servers = java_servers if side is Side.JAVA else our_servers
    with tempfile.TemporaryDirectory(prefix="upstream-") as root:
        async with servers(Path(root)) as running:
            outcomes = await run(tests, running, jvms=jvms, told=show)

    differences = table.differences(outcomes, tests, side)
    for line in differences:
        print(line, file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
