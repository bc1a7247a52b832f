"""The power goes at any moment, and the disk keeps any part of what it was not told to sync."""

from __future__ import annotations

import itertools
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from tests.c import library
from tests.crash.power_loss import (
    STEPS,
    Expected,
    PowerLost,
    Verifier,
    Workload,
    crash,
    materialise,
)
from tests.support.disk_model import Kind
from tests.support.effort import is_long, rounds

SEED = int(os.environ.get("RMQ_SEED") or (random.randrange(1 << 32) if is_long() else 20_251))
LETTERS = "".join(letter for letter in STEPS if letter != "b")
FILLED = "mmdrq"
"""Records in two log files and two index files, most of them flushed."""
SYNC_FLUSH = {"dispatch.limit_to_flushed": True}
INDEX_OFF = {"index_enable": False}
"""The checkpoint then covers all that was flushed, not only what precedes the last index file."""
TWO_UNITS = {"queue_file_size": 40}
"""A queue has several files before the log has two, after which queues are flushed."""
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"dispatch.bound_index": True},
    {"flush.compatibility": 2},
    {"flush.compatibility": 1},
    {"log.warmer.syncs_ahead": True},
    {"log.warmer.large_append": 1},
    {**SYNC_FLUSH, "log.warmer.syncs_ahead": True},
    INDEX_OFF,
    {"queue_hot_uses": 1000},
    {"queue_hot_uses": 1, "queue_mappings_max": 1},
)
"""As opened for both releases, for 5.5, for 5.3, with synchronous flush, without an index,
with queues that are never mapped, and with one that is."""
LARGE = {"log_file_size": 65536, "queue_file_size": 8200, "index_entry_count": 250}
"""Files of several pages."""


@pytest.fixture(scope="module")
def core() -> tuple[Any, Any]:
    return library.load()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: nothing here needs a real disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


class Bench:
    """Runs workloads and lets the power go."""

    def __init__(self, core: Any, folder: Path, keep: Path, request: pytest.FixtureRequest) -> None:
        self.core, self.folder, self.keep = core, folder, keep
        self.verifiers: dict[str, Verifier] = {}
        self.test = request.node.nodeid
        self.chance = random.Random(f"{SEED} {request.node.name}")

    def run(
        self,
        steps: str,
        *,
        before: str = "",
        states: int,
        again: float = 0.05,
        without: Kind | None = None,
        **settings: Any,
    ) -> None:
        """Let the power go during *steps*, which follow the steps *before*."""
        # Workloads that begin alike have states in common.
        verifier = self.verifiers.setdefault(
            str(settings), Verifier(self.core, self.folder, self.chance, **settings)
        )

        workload = Workload(self.core, self.folder / "work", **settings)
        try:
            for letter in before:
                workload.step(letter)
            since = workload.recorder.mark() if before else 0
            for letter in steps:
                workload.step(letter)
        finally:
            workload.finish()

        if without is not None:
            workload.forget(without)

        try:
            crash(workload, verifier, since=since, states=states, again=again)
        except PowerLost as failure:
            kept = self.keep / "crash-state"
            materialise(verifier.state, kept)
            raise PowerLost(
                f"steps {before}+{steps}, {settings}: {failure}\n"
                f"the state of the disk is kept in {kept}; again with\n"
                f"RMQ_SEED={SEED} {'RMQ_LONG=1 ' if is_long() else ''}"
                f"python -m pytest '{self.test}'"
            ) from failure


@pytest.fixture
def bench(core: Any, folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(core, folder, tmp_path, request)


# ---- every short workload ----


@pytest.mark.parametrize("first", LETTERS)
def test_a_new_store_survives_power_loss_at_every_moment(first: str, bench: Bench) -> None:
    """Only the last step is cut short: what comes before it was, in a shorter workload."""
    bench.run(first, states=rounds(24, 64), again=0.1)
    for length in range(1, rounds(1, 3) + 1):
        for steps in itertools.product(LETTERS, repeat=length):
            settings = bench.chance.choice(KINDS)
            *before, last = (first, *steps)
            bench.run(last, before="".join(before), states=rounds(5, 24), **settings)


@pytest.mark.parametrize("first", LETTERS)
def test_a_filled_store_survives_power_loss_at_every_moment(first: str, bench: Bench) -> None:
    bench.run(first, before=FILLED, states=rounds(8, 64))
    if not is_long():
        return
    for length in range(1, 3):
        for steps in itertools.product(LETTERS, repeat=length):
            settings = bench.chance.choice(KINDS)
            *before, last = (first, *steps)
            bench.run(last, before=FILLED + "".join(before), states=24, **settings)


# ---- long ones ----


@pytest.mark.parametrize("number", range(rounds(3, 200)))
def test_a_long_workload_survives_power_loss_at_every_moment(number: int, bench: Bench) -> None:
    chance = bench.chance
    steps = "".join(chance.choices("prlmdfqckteax", (4, 4, 2, 4, 3, 2, 2, 1, 1, 2, 2, 2, 2), k=9))
    bench.run(steps, states=rounds(4, 12), again=0.02, **chance.choice(KINDS))


@pytest.mark.parametrize("number", range(rounds(1, 30)))
def test_files_of_many_pages_survive_power_loss(number: int, bench: Bench) -> None:
    steps = "".join(bench.chance.choices("bbqfkct", k=rounds(3, 5)))
    settings = {**LARGE, **bench.chance.choice(KINDS)}
    bench.run("b" + steps, states=rounds(3, 8), again=0.02, **settings)


# ---- what was once lost ----


@pytest.mark.parametrize(
    ("steps", "settings"),
    [
        pytest.param("p", {}, id="a file whose size was not synced before the next file was made"),
        pytest.param("pf", {}, id="recovery that emptied the log before the queues"),
        pytest.param("lll", {}, id="a lost sector in the properties of a record that is not last"),
        pytest.param("mqrmr", {}, id="a hole in one log file before records in the next"),
        pytest.param("pac", {}, id="a closed store whose opening is cut short"),
        pytest.param(
            "mmrrqp", {"flush.compatibility": 2}, id="a recovery that had dropped index files"
        ),
        pytest.param("drre", {}, id="queues that alone know the offsets of expired messages"),
        pytest.param("drrqxec", {}, id="a deleted topic whose messages have expired"),
        pytest.param("mqxmtmk", {}, id="a cut below the deletion of a topic"),
        pytest.param(
            "y", {"before": 8 * "m" + "q"}, id="a topic that is made again before its queues go"
        ),
        pytest.param("mrrkq", INDEX_OFF, id="a queue whose names a killed process had not synced"),
        pytest.param("mrrq", INDEX_OFF, id="new queues of records in several log files"),
        pytest.param(
            "mkmq", TWO_UNITS, id="a queue that a killed process made, and its second file"
        ),
        pytest.param("mmq", TWO_UNITS, id="several files of a new queue"),
        pytest.param("xptpq", INDEX_OFF, id="a new queue that is cut to nothing and made again"),
        pytest.param(
            "mqxmkmq", INDEX_OFF, id="a queue that is made again after its topic was deleted"
        ),
    ],
)
def test_power_loss_costs_nothing_durable_with(
    steps: str, settings: dict[str, Any], bench: Bench
) -> None:
    bench.run(steps, states=rounds(12, 24), again=0.15, **settings)


def test_keys_of_the_last_record_are_entered_once_however_often_a_store_is_opened(
    tmp_path: Path,
) -> None:
    """Entered at each opening, they would crowd out those of other records."""
    for _ in range(60):
        with rmqstore.open(tmp_path, index_slot_count=8, index_entry_count=500) as store:
            if store.end_offset == 0:
                first = store.put("orders", b"first", keys=["k"])
                last = store.put("orders", b"last", keys=["k"])
            found = [each.physical_offset for each in store.find("orders", "k", max_count=2)]
            assert found == [first.physical_offset, last.physical_offset]


# ---- whether the test would notice ----


@pytest.mark.parametrize("ignored", [Kind.SYNC, Kind.SYNC_DIRECTORY])
def test_a_disk_that_ignores_syncs_is_noticed(ignored: Kind, bench: Bench) -> None:
    with pytest.raises(PowerLost):
        bench.run("drdq", states=32, without=ignored)


def test_a_message_that_was_not_flushed_may_be_missing(core: Any, folder: Path) -> None:
    workload = Workload(core, folder / "work")
    workload.step("d")
    workload.step("p")
    workload.finish()
    durable, late = workload.chain
    begin, end = workload.acts[-1].began, workload.acts[-1].ended
    assert workload.expected(begin).chain == (durable,)
    assert workload.expected(end) == Expected((durable, late), 1, frozenset({-1, 0}))
