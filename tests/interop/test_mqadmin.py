"""Each command of the released mqadmin prints over a broker of ours what it prints over one of
Java, as `mqadmin/table.toml` has it. `make test` runs a part of them, `make soak` all."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.interop.mqadmin.sides import java_cluster, our_cluster
from tests.interop.mqadmin.table import commands, left_out
from tests.support.effort import is_long
from tests.support.java_broker import admin_output, java_side
from tests.support.releases import NEW, OLD, with_release


@with_release(NEW)
def test_table_has_every_command(java_release: str, tmp_path: Path) -> None:
    with java_side(java_release, tmp_path) as java:
        printed = asyncio.run(java.admin())
    known = set(re.findall(r"^ {3}(\w+)\s", printed, re.MULTILINE))
    assert len(known) > 80
    run = {each.name for each in commands()}
    assert known - run - set(left_out()) == set()
    assert run & set(left_out()) == set()


@with_release(NEW)
def test_mqadmin_prints_the_same_over_our_broker_as_over_java_s(
    java_release: str, tmp_path: Path
) -> None:
    assert asyncio.run(_play(java_release, tmp_path)) == []


async def _play(release: str, root: Path) -> list[str]:
    """Return what differs from the table."""
    differences = []
    with java_side(release, root) as java:
        async with (
            our_cluster(root / "ours") as ours,
            java_cluster(java, root / "java") as theirs,
        ):
            # Each side has a JVM: commands leave connections and settings behind.
            tools = [await java.client() for _ in range(2)]
            for command in commands():
                if not (command.is_quick or is_long()) or (
                    release == OLD and command.defect_of_old
                ):
                    continue
                await asyncio.gather(ours.beat(), theirs.beat())
                mine, other = await asyncio.gather(
                    admin_output(tools[0], *ours.line(command.line)),
                    admin_output(tools[1], *theirs.line(command.line)),
                )
                difference = command.difference(mine, other)
                if difference:
                    differences.append(f"{command.line}\n{difference}")
    return differences
