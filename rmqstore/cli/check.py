"""`verify` and `repair`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from rmqstore.check import Report
from rmqstore.check import repair as repairs
from rmqstore.check import verify as verify_store
from rmqstore.check.repair import Plan
from rmqstore.cli.errors import (
    CannotOpenError,
    ExitCode,
    check_directory,
    command,
    print_error,
    settings_of,
    text_of,
)
from rmqstore.cli.options import ConfigOption, JsonOption, LogFileSizeOption, StorePath
from rmqstore.cli.output import print_json, progress
from rmqstore.config import StoreConfig
from rmqstore.errors import NotFoundError, StoreError, StoreLockedError, UnsupportedStoreError

__all__ = ["repair", "verify"]


@command
def verify(
    path: StorePath,
    full: Annotated[
        bool, typer.Option("--full", help="Look up every key in the index, instead of a sample.")
    ] = False,
    json: JsonOption = False,
    log_file_size: LogFileSizeOption = None,
    config: ConfigOption = None,
) -> ExitCode:
    """Check log, queues, index and checkpoint against each other; exit with 1 when damaged.

    Nothing is written. Every record is read and its CRC checked, also after damage. Damage is a
    difference from the written bytes; the effect of a repair is shown with it. Notes name states
    that are normal for a store in use or a store that was not closed.
    """
    settings = settings_of(config)
    try:
        check_directory(path)
        with progress("verifying") as report:
            found = verify_store(
                path,
                config=None if settings is None else settings.store,
                full=full,
                log_file_size=log_file_size,
                progress=report,
            )
    except NotFoundError as error:
        raise CannotOpenError(str(error)) from None
    _print_findings(found, json)
    return ExitCode.OK if found.is_sound else ExitCode.FAULT


def _print_findings(report: Report, json: bool) -> None:
    if json:
        for finding in report.findings:
            print_json({"type": "finding"} | finding.as_json())
        print_json({"type": "summary"} | report.as_json())
        return
    for finding in report.findings:
        print(finding)
    verdict = "sound" if report.is_sound else f"{len(report.damage)} findings of damage"
    print(
        f"{report.path}: {verdict}: {report.records} records from {report.files.start} to "
        f"{report.end}, {report.units} entries of {report.queues} queues, {report.keys} keys, "
        f"{report.milliseconds} ms"
    )


@command
def repair(
    path: StorePath,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Repair without asking.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Build queues and index again, even if they are sound."),
    ] = False,
    json: JsonOption = False,
    log_file_size: LogFileSizeOption = None,
    config: ConfigOption = None,
) -> ExitCode:
    """Repair a damaged store. Shows the plan first.

    Bytes that are not a record are removed, a torn tail is cut off, and queues and index are built
    again from the log. Removed and overwritten bytes are kept in a folder below PATH/cut/. Without
    --yes the command asks on a terminal; elsewhere it changes nothing and exits with 1.
    """
    with _documented(path, json):
        settings = settings_of(config)
        plan = _plan(
            path, None if settings is None else settings.store, yes, rebuild, log_file_size
        )
        _print_plan(plan, json)
        if plan.is_empty:
            return ExitCode.OK if plan.report.is_sound else ExitCode.FAULT
        if plan.obstacles or (not yes and not _is_wanted(path)):
            return ExitCode.FAULT
        with progress("verifying again") as report:
            outcome = repairs.apply(plan, progress=report)
        _print_outcome(outcome, json)
    return ExitCode.OK if outcome.report.is_sound else ExitCode.FAULT


@contextmanager
def _documented(path: Path, json: bool) -> Iterator[None]:
    """Prints an error that ends the block as a line of JSON too, so that programs always get
    one."""
    try:
        yield
    except (StoreError, OSError) as error:
        if json:
            print_json({"type": "error", "text": text_of(error, path)})
        raise


def _plan(
    path: Path, config: StoreConfig | None, yes: bool, rebuild: bool, log_file_size: int | None
) -> Plan:
    try:
        check_directory(path)
        if yes:
            with repairs.exclusive(path):
                pass
        with progress("verifying") as report:
            return repairs.plan(
                path, config=config, rebuild=rebuild, log_file_size=log_file_size, progress=report
            )
    except (NotFoundError, StoreLockedError, UnsupportedStoreError) as error:
        raise CannotOpenError(str(error)) from None


def _is_wanted(path: Path) -> bool:
    if not sys.stdin.isatty():
        print_error(f"nothing was changed; to repair: rmqstore repair --yes {path}")
        return False
    return typer.confirm("Do this?")


def _print_plan(plan: Plan, json: bool) -> None:
    if json:
        _print_findings(plan.report, json)
        for action in plan.actions:
            print_json(
                {"type": "action", "verb": action.verb, "path": str(action.path)}
                | {"text": action.text}
            )
        for kind, texts in {
            "loss": plan.losses,
            "note": plan.notes,
            "obstacle": plan.obstacles,
        }.items():
            for text in texts:
                print_json({"type": kind, "text": text})
        return

    _print_findings(plan.report, json)
    for title, texts in {
        "would be done:": tuple(action.text for action in plan.actions),
        "cannot be restored:": plan.losses,
        "notes:": plan.notes,
        "obstacles:": plan.obstacles,
    }.items():
        if texts:
            print(title)
            for text in texts:
                print(f"  {text}")

    if plan.is_empty:
        print("there is nothing to repair")


def _print_outcome(outcome: repairs.Outcome, json: bool) -> None:
    if json:
        print_json(
            {
                "type": "outcome",
                "cut": str(outcome.cut) if outcome.cut else None,
                "recoveredRecords": outcome.recovery.records,
            }
        )
        print_json({"type": "summary"} | outcome.report.as_json())
        return
    if outcome.cut:
        print(f"kept in {outcome.cut}: all bytes that were cut, overwritten or removed")
    print("after the repair:")
    _print_findings(outcome.report, json)
