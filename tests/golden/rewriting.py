"""The inputs of a golden store, told from its records, and their replay through rmqstore.

A record says everything that its put was given but one thing: which messages came in one batch.
Those of a batch share topic, queue and both timestamps; nothing else in the golden stores does.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import rmqstore
from tests.golden import GoldenCase
from tests.reference import log, properties
from tests.reference.record import CRC_PROPERTY_SIZE, Host, Record
from tests.support.native_store import StoredForm, put_stored_forms, set_clock

BATCH_PROPERTY = re.compile(rb"batch\x01of \d+\x02\Z")
FAR_TIME_MS = (1 << 63) - 1


def config_of(
    settings: Mapping[str, Any], root: Path, *, compatibility: str
) -> rmqstore.StoreConfig:
    """Return the configuration of a case's `store` settings; log paths are below *root*."""
    lines = [f"compatibility={compatibility}"]
    for name, value in settings.items():
        if name == "storePathCommitLog":
            value = ",".join(str(root / path) for path in str(value).split(","))
        lines.append(f"{name}={str(value).lower() if isinstance(value, bool) else value}")
    return rmqstore.StoreConfig.from_properties("\n".join(lines))


def compatibility_of(case: GoldenCase) -> str:
    """Return the release whose bytes the case holds, as the setting `compatibility` names it."""
    return case.release[:3]


def batch_topics(case: GoldenCase) -> set[str]:
    """Return the topics whose queues hold inner batches."""
    return {each["name"] for each in case.spec["topics"] if each.get("queueType") == "BatchCQ"}


def records_of(root: Path) -> list[Record]:
    """Return the records that the reference codec finds in the log of a store."""
    return [found for _, found in log.walk(root / "commitlog")]


def open_fresh(case: GoldenCase, root: Path) -> rmqstore.Store:
    """Open a store at *root* with the settings of *case* and its release's bytes."""
    config = config_of(case.spec["store"], root, compatibility=compatibility_of(case))
    store = rmqstore.open(root, config)
    for topic in case.spec["topics"]:
        if topic.get("queueType") == "BatchCQ":
            store.create_topic(
                topic["name"],
                read_queue_count=topic["queues"],
                write_queue_count=topic["queues"],
                attributes={"queue.type": "BatchCQ"},
            )
    return store


def replay(case: GoldenCase, records: Iterable[Record], store: rmqstore.Store) -> None:
    """Put *records* again, under the clock they were put under."""
    for batch in _calls(records):
        set_clock(store, batch[0].store_timestamp)
        forms = [_form(case, found, in_batch=len(batch) > 1) for found in batch]
        put_stored_forms(store, forms, together=len(batch) > 1)
        # Index files are named by the clock that runs while they are made, and with SYNC_FLUSH
        # nothing is dispatched before it is flushed.
        store.wait_flushed()
        store.wait_dispatched()


def _calls(records: Iterable[Record]) -> Iterator[list[Record]]:
    def call(found: Record) -> tuple[object, ...]:
        place = (found.topic, found.queue_id, found.transaction)
        return (*place, found.born_timestamp, found.store_timestamp)

    for _, group in itertools.groupby(records, call):
        yield list(group)


def _form(case: GoldenCase, found: Record, *, in_batch: bool) -> StoredForm:
    text = found.property_bytes
    if case.spec["store"].get("enabledAppendPropCRC"):
        text = text[:-CRC_PROPERTY_SIZE]
    if found.topic in batch_topics(case):
        text = properties.remove(text, properties.INNER_BASE)

    own = b""
    appended = BATCH_PROPERTY.search(text) if in_batch else None
    if appended:
        # The batch's own properties, with the separator between left to the store.
        text, own = text[: appended.start()].removesuffix(b"\x02"), appended[0]

    return StoredForm(
        found.topic,
        found.queue_id,
        found.body,
        text,
        own,
        found.flag,
        found.sys_flag,
        found.born_timestamp,
        found.store_timestamp,
        _address(found.born_host),
        _address(found.store_host),
        found.reconsume_times,
        found.prepared_transaction_offset,
    )


def _address(host: Host) -> tuple[str, int]:
    text, _, port = str(host).rpartition(":")
    return text.strip("[]"), int(port)


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below *folder*, by its path there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
