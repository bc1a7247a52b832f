"""RocketMQ's own integration tests over three brokers of ours, and over three of Java's.

Each does what `upstream/table.toml` has: it passes, or fails for a known reason. `make test` runs a
part of the classes over ours, `make soak` all over both.
"""

from __future__ import annotations

import asyncio
import re
import zipfile
from pathlib import Path

import pytest

from tests.interop.upstream import PROGRAMS, RELEASE
from tests.interop.upstream.runner import Outcome, run
from tests.interop.upstream.servers import java_servers, our_servers
from tests.interop.upstream.table import Side, State, Table
from tests.support import java
from tests.support.effort import is_long, rounds

TABLE = Table()
SIDES = tuple(Side) if is_long() else (Side.OURS,)


async def play(tests: list[str], side: Side, root: Path) -> list[str]:
    """Return what differs from the table.

    Servers of Java on a loaded machine get a second try, one class at a time: they are not what is
    tested here.
    """
    servers = our_servers if side is Side.OURS else java_servers
    async with servers(root) as running:
        outcomes = await run(tests, running, jvms=rounds(1, 3))
        again = sorted({each.name for each in outcomes if TABLE.difference(each, side)})
        if again and side is Side.JAVA:
            outcomes = [each for each in outcomes if each.name not in again]
            outcomes += await run(again, running)
    return TABLE.differences(outcomes, tests, side)


@pytest.mark.java
@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.value)
def test_each_class_does_what_the_table_has(side: Side, tmp_path: Path) -> None:
    java.need(RELEASE, PROGRAMS)
    if side is Side.JAVA:
        java.need(RELEASE)
    tests = list(TABLE.classes) if is_long() else TABLE.quick()
    assert asyncio.run(play(tests, side, tmp_path)) == []


@pytest.mark.java
def test_table_has_every_published_class() -> None:
    java.need(RELEASE, PROGRAMS)
    jar = java.build(RELEASE, PROGRAMS) / "lib" / f"rocketmq-test-{RELEASE}-tests.jar"
    with zipfile.ZipFile(jar) as opened:
        names = opened.namelist()
    found = (re.fullmatch(r"org/apache/rocketmq/test/(.*IT)\.class", name) for name in names)
    published = {each[1].replace("/", ".") for each in found if each}
    assert published == TABLE.classes.keys() | TABLE.elsewhere.keys()


def test_table_says_why_a_test_does_not_pass() -> None:
    unexplained = []
    for name, row in TABLE.rows():
        ours, in_java = row.states[Side.OURS], row.states[Side.JAVA]
        if ours in (State.REFUSED, State.FAILS) and not row.says:
            unexplained.append(f"{name}: says")
        if ours in (State.FAILS, State.VARIES, State.IN_THE_JVM) and not row.why:
            unexplained.append(f"{name}: why")
        if in_java in (State.FAILS, State.VARIES) and not row.why_java:
            unexplained.append(f"{name}: why_java")
    assert unexplained == []


def outcome(test: str, ended: str, text: str = "") -> Outcome:
    name, _, method = TABLE.named(test).partition("#")
    return Outcome(name, method, ended, 0.1, text)


@pytest.mark.parametrize(
    ("known", "other"),
    [
        (
            outcome("OrderMsgIT#testOrderMsg", "passed"),
            outcome("OrderMsgIT#testOrderMsg", "failed"),
        ),
        (
            outcome(
                "StaticTopicIT#testRemappingAndClear",
                "failed",
                "UPDATE_AND_CREATE_STATIC_TOPIC (513): not served",
            ),
            outcome("StaticTopicIT#testRemappingAndClear", "failed", "timeout"),
        ),
        (
            outcome("OffsetNotFoundIT#any", "failed", "IN THE JVM: a hook"),
            outcome("OffsetNotFoundIT#any", "passed"),
        ),
        (outcome("PopSubCheckIT#any", "ignored"), outcome("PopSubCheckIT#any", "passed")),
    ],
)
def test_change_of_an_outcome_is_told(known: Outcome, other: Outcome) -> None:
    tests = [f"{known.name}#{known.method}"]
    assert TABLE.differences([known], tests, Side.OURS) == []
    (told,) = TABLE.differences([other], tests, Side.OURS)
    assert other.name in told


def test_class_or_method_that_did_not_run_is_told() -> None:
    name = TABLE.named("BatchSendIT")
    first, *_ = methods = list(TABLE.methods[name])
    assert TABLE.differences([], [name], Side.OURS) == [
        *(f"{name}#{method} did not run" for method in methods),
        f"{name} ran no method",
    ]
    assert TABLE.differences([], [f"{name}#{first}"], Side.OURS)


def test_class_is_named_with_or_without_its_package() -> None:
    assert TABLE.named("OrderMsgIT") == "client.producer.order.OrderMsgIT"
    assert TABLE.named("order.OrderMsgIT#testOrderMsg").endswith("order.OrderMsgIT#testOrderMsg")
    with pytest.raises(ValueError, match="not the name of one class"):
        TABLE.named("Nothing")
