"""Pipelines without Spark: planned, pickled, and sorted as a shuffle does."""

from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

from rmqstore.check.findings import Finding
from rmqstore.check.units import StoredQueue
from rmqstore.spark.pipelines import work
from rmqstore.spark.pipelines.audit import EVERYTHING, Audit, check, report_of
from rmqstore.spark.pipelines.calls import (
    KEY_COLUMNS,
    UNIT_COLUMNS,
    UNITS,
    Keys,
    keys_of,
    unit_batches,
)
from rmqstore.spark.pipelines.compare import epoch_boundary, pairs_of, regions_of
from rmqstore.spark.pipelines.differences import (
    Difference,
    differences_in,
    differing_windows,
    merged,
)
from rmqstore.spark.pipelines.entries import IndexFile, check_index, file_of
from rmqstore.spark.pipelines.rebuild import index_of, records_of
from rmqstore.spark.pipelines.statistics import LEAST, MOST, ROWS, SUMS, sums_of
from rmqstore.spark.pipelines.units import Queues, check_queues, unseen
from rmqstore.spark.read.layout import Layout
from rmqstore.spark.read.partitions import Plan


def planned(root: Path | str, **options: work.OptionValue) -> tuple[Layout, Plan]:
    """Return what one store holds and its partitions, pickled on the way as for a task."""
    (layout,), plan = work.planned(str(root), options)
    return pickle.loads(pickle.dumps((layout, plan)))  # type: ignore[no-any-return]


def audited(root: Path | str, **options: work.OptionValue) -> Audit:
    """Return the audit of a store."""
    layout, plan = planned(root, **{**EVERYTHING, **options})
    rows = [row for each in plan.partitions for row in check(plan.options, each)]
    return report_of((layout,), rows)


def summed(
    root: Path | str, **options: work.OptionValue
) -> tuple[dict[Any, dict[str, Any]], list[Any]]:
    """Return the sums of a store by topic and queue, merged as Spark merges them, and the rows that
    tell of damage."""
    _, plan = planned(root, **options)
    names = list(ROWS.columns)
    merged: dict[Any, dict[str, Any]] = {}
    damage = []
    for partition in plan.partitions:
        for row in sums_of(plan.options, partition):
            sums = dict(zip(names, row, strict=True))
            key = sums["topic"], sums["queueId"]
            if key[0] is None:
                damage.append(row)
            elif key not in merged:
                merged[key] = sums
            else:
                merged[key] = _merge(merged[key], sums)
    return merged, damage


def _merge(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {
        **a,
        **{name: a[name] + b[name] for name in SUMS},
        **{name: min(a[name], b[name]) for name in LEAST},
        **{name: max(a[name], b[name]) for name in MOST},
        "sizes": [x + y for x, y in zip(a["sizes"], b["sizes"], strict=True)],
    }


def checked_queues(root: Path | str, **options: work.OptionValue) -> tuple[list[Finding], int]:
    """Return what is wrong with a store's queues, and how many units fit."""
    layout, plan = planned(root, **{**EVERYTHING, **options})
    units = [
        tuple(row.values())
        for partition in plan.partitions
        for batch in records_of(plan.options, partition, UNIT_COLUMNS)
        for made in unit_batches(batch)
        for row in made.to_pylist()
    ]

    units.sort(key=lambda unit: unit[:4] + unit[5:6])
    batches = [UNITS.batch(units[at : at + 100]) for at in range(0, len(units), 100)]

    queues = Queues.of(layout)
    found = list(queues.findings)
    matched: dict[StoredQueue, int] = {}

    for each in check_queues(queues, batches):
        if isinstance(each, Finding):
            found.append(each)
        else:
            matched[each[0]] = each[1]

    found += unseen(queues, matched)
    return found, sum(matched.values())


def checked_index(root: Path | str, **options: work.OptionValue) -> tuple[list[Finding], int]:
    """Return what is wrong with a store's index, and how many entries fit."""
    layout, plan = planned(root, **{**EVERYTHING, **options})

    known, _ = index_of(layout)
    index = [each for each in known if isinstance(each, IndexFile)]
    found = [each for each in known if isinstance(each, Finding)]

    by_file: defaultdict[int, list[Keys]] = defaultdict(list)
    for partition in plan.partitions:
        for batch in records_of(plan.options, partition, KEY_COLUMNS):
            for keys in keys_of(batch):
                for number in file_of(index, keys.physical_offset):
                    by_file[number].append(keys)

    matched = 0
    for number, file in enumerate(index):
        records = sorted(by_file[number], key=lambda keys: keys.physical_offset)
        for each in check_index(file, records, log_start=layout.start, log_end=layout.end):
            if isinstance(each, int):
                matched += each
            else:
                found.append(each)

    return found, matched


def differences(a: Path | str, b: Path | str) -> list[Difference]:
    """Return the differences of two stores, told by both passes of a comparison."""
    sides = [Layout.of(str(root)) for root in (a, b)]
    start, end = max(each.start for each in sides), min(each.readable_end for each in sides)
    border = epoch_boundary(*sides)
    windows = [window for pair in pairs_of(sides, start, end) for window in differing_windows(pair)]
    regions = regions_of(sides, windows, border)
    return list(merged(found for region in regions for found in differences_in(region)))
