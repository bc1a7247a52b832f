"""`epoch`: the epoch list of a store, checked against its files and log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmqstore.check.epochs import (
    EpochFile,
    Reign,
    check_epochs,
    effective,
    read_epoch_files,
    reigns,
)
from rmqstore.check.findings import Finding
from rmqstore.cli.errors import ExitCode, check_directory, command, opened
from rmqstore.cli.options import ConfigOption, JsonOption, StorePath
from rmqstore.cli.output import print_json, print_rows
from rmqstore.errors import NotFoundError
from rmqstore.store.directory import EPOCH_FILE

__all__ = ["epoch"]


@command
def epoch(path: StorePath, json: JsonOption = False, config: ConfigOption = None) -> ExitCode:
    """Show the epochs of a store, and check list, files and log against each other.

    An epoch is the time of one master; the file epochFileCheckpoint, which RocketMQ also has, holds
    the start offset of each epoch. Nothing is written. Exits with 1 when something is damaged, or
    when there are no epochs.
    """
    check_directory(path)
    # Read before the log, so that an epoch that a concurrent writer adds is never ahead of the log.
    files = read_epoch_files(path)
    with opened(path, config) as store:
        found = tuple(check_epochs(path, files, store))
        start, end = max(store.start_offset, 0), store.end_offset

    chosen = effective(files)
    if chosen is None:
        raise NotFoundError(
            f"{path} has no {EPOCH_FILE}; only stores that were part of a group with epochs have it"
        )

    reigned = list(reigns(chosen.entries, log_end=end))
    damage = sum(each.is_damage for each in found)

    if json:
        _print_as_json(path, chosen, reigned, found, log=(start, end))
    else:
        print_rows(
            ("epoch", "start", "end", "bytes"),
            [(*each, each.end - each.start) for each in reigned],
        )
        for each in found:
            print(each)
        verdict = f"{damage} findings of damage" if damage else "sound"
        print(
            f"{chosen.path}: {verdict}: {len(reigned)} epochs; the log goes from {start} to {end}"
        )

    return ExitCode.FAULT if damage else ExitCode.OK


def _print_as_json(
    root: Path,
    file: EpochFile,
    reigned: Sequence[Reign],
    found: Sequence[Finding],
    *,
    log: tuple[int, int],
) -> None:
    for number, start, end in reigned:
        print_json(
            {"type": "epoch", "epoch": number, "startOffset": start, "endOffset": end}
            | {"bytes": end - start}
        )

    for each in found:
        print_json({"type": "finding"} | each.as_json())

    damage = sum(each.is_damage for each in found)
    print_json(
        {
            "type": "summary",
            "path": str(root),
            "file": str(file.path),
            "sound": not damage,
            "epochs": len(reigned),
            "crc": file.crc,
            "startOffset": log[0],
            "endOffset": log[1],
            "damage": damage,
            "notes": len(found) - damage,
        }
    )
