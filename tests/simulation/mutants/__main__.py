"""Makes each deliberate fault of `mutants.toml`, and shows that it is found.

    python -m tests.simulation.mutants               every fault; up to three minutes each
    python -m tests.simulation.mutants lease epoch   those whose text or path contains a word
    python -m tests.simulation.mutants --tests       those that a test finds, not the seeds

A fault is one changed line in replication, in its C core, in the controller, in the nameserver, or
in what stands in the simulator for a rule that production states in its documentation. It is made
in a copy of the tree, and the first 2,000 seeds run there until one fails, or those of its `sweep`.
A fault that the seeds do not find names the test that does: the simulator's groups do not do what
it needs, or do it too seldom. A fault that changes nothing that can be seen has the reason in place
of its line.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from tests.house.mutate import BuildError, Copy, Mutation, mutations

__all__ = ["LIST", "main"]

LIST = Path(__file__).with_name("mutants.toml")
_SEEDS = 2000
_SECONDS_MAX = 1200


def main(arguments: list[str] | None = None) -> int:
    """Try out the faults that *arguments* choose; return 1 where one is not found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.mutants",
        description="Lets the simulator find deliberate faults, one at a time.",
    )
    parser.add_argument("word", nargs="*", help="faults whose text or path contains a word")
    parser.add_argument("--tests", action="store_true", help="only those that name a test")
    parser.add_argument("--seeds", type=int, default=_SEEDS, help=f"seeds. Default: {_SEEDS}")
    given = parser.parse_args(arguments)

    chosen = [
        each
        for each in mutations(LIST)
        if not each.none
        and (each.tests or not given.tests)
        and (not given.word or any(word in f"{each.row} {each.path}" for word in given.word))
    ]

    if not chosen:
        parser.error("no fault contains any of these words")

    survived = 0
    with tempfile.TemporaryDirectory() as name:
        copy = Copy(Path(name))
        for mutant in chosen:
            found = _find(copy, mutant, seeds=given.seeds)
            survived += found is None
            print(f"{'NOT FOUND' if found is None else 'found'}: {mutant.row}", flush=True)
            print(f"    {found or f'{mutant.path}: {mutant.new.strip()}'}", flush=True)

    print(f"{len(chosen)} faults, {survived} not found")
    return 1 if survived else 0


def _find(copy: Copy, mutant: Mutation, *, seeds: int) -> str | None:
    """Return which seed finds *mutant*, and how, or which test does; None for none."""
    if mutant.tests:
        outcome = copy.try_out(mutant, mutant.tests)
        if outcome.text:
            print(outcome.text)
        return " ".join(mutant.tests) if outcome.is_found else None

    chosen = mutant.sweep.split() or ["--first", "1"]
    sweep = ["--count", str(seeds), "--failures", "1", "--jobs", "1"]
    command = [sys.executable, "-m", "rmqstore.sim", *chosen, *sweep]

    try:
        with copy.mutated(mutant):
            code, printed = copy.run(command, _SECONDS_MAX)
    except BuildError as error:
        print(f"cannot be built:\n{error}")
        return None

    if code == 0:
        return None
    failed = re.search(r"^\d+: .*", printed, re.MULTILINE)
    return failed[0] if failed else printed.strip().splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
