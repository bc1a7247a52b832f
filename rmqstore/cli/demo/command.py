"""`demo`: the main functions on real input, with proofs.

It opens a store that the real Java store wrote, imports a public data set, and queries messages by
queue, tag, key and time. It kills a writer during its work, recovers the store and counts. Then
three replicas lose their master without losing a message, and Spark queries the store, follows a
writer, and compares replicas. Last, a group of three brokers with three controllers and a
nameserver, each in a separate process, continues without a loss when its master is killed under
load, and a consumer of RocketMQ that fails gets its messages again until they are dead letters,
where Java and Maven are found.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from rmqstore.cli.demo import cluster_steps, replica_steps, spark_steps
from rmqstore.cli.demo.steps import Steps
from rmqstore.cli.demo.store_steps import DATA_SET, TOPIC, StoreSteps
from rmqstore.cli.errors import ExitCode, command, fail
from rmqstore.cli.output import print_rows

__all__ = ["demo"]

_GOLDEN = Path("tests", "golden", "5.3.3", "keys-index.tar.xz")


def _golden_archive() -> Path:
    archive = Path(__file__).resolve().parents[3] / _GOLDEN
    if not archive.exists():
        text = f"the demo needs {_GOLDEN}, which {archive} is not; run it in a clone: make demo"
        raise fail(text, ExitCode.FAILED)
    return archive


def _flights_archive() -> Path:
    # Found without an import: the package requires another package that is not needed here.
    spec = importlib.util.find_spec(DATA_SET)
    if spec is None or not spec.submodule_search_locations:
        raise fail(f"the demo needs the data of {DATA_SET}; run: make demo", ExitCode.FAILED)
    return Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="rmqstore-demo-") as name:
        yield Path(name)


@command
def demo(
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Work in this empty folder and leave it there."),
    ] = None,
) -> ExitCode:
    """Show the main functions on real input, with proofs; exit with 1 when a proof fails.

    Needs a clone of the project and the extra `test`: make demo.
    """
    golden, flights = _golden_archive(), _flights_archive()
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise typer.BadParameter(
            f"{keep} is not empty; give an empty folder, or one that does not exist"
        )

    began = time.monotonic()
    with _folder(keep) as folder:
        steps = Steps()
        on_store = StoreSteps(folder, steps.done)
        on_store.open_golden(golden)
        on_store.import_flights(flights)
        on_store.ask()
        on_store.kill_a_writer()
        replica_steps.show(folder, steps.done)
        flown = on_store.flights.by_month_and_origin
        spark_steps.show(folder, on_store.path, TOPIC, flown, steps.done)
        cluster_steps.show(folder, steps.done)

    seconds = time.monotonic() - began
    print()
    print_rows(
        ("step", "messages", "seconds", "a second", "proof"),
        [
            (
                step.what,
                step.count,
                f"{step.seconds:.2f}",
                round(step.count / max(step.seconds, 1e-9)),
                step.proof if step.is_proven else f"FAILED: {step.proof}",
            )
            for step in steps.all
        ],
    )

    verdict = "all proofs hold" if steps.is_proven else "A PROOF FAILED"
    print(f"{verdict}; {seconds:.1f} s in all")
    return ExitCode.OK if steps.is_proven else ExitCode.FAULT
