"""Where a store begins and ends, how it is set up and what state it is in, as JSON members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqstore.checkpoint import CHECKPOINT, CHECKPOINT_BYTES, Checkpoint
from rmqstore.errors import StoreError
from rmqstore.store import Store
from rmqstore.store.inspection import InspectionView

__all__ = ["facts_of"]


def facts_of(store: Store) -> dict[str, Any]:
    """Return what `rmqstore info --json` prints of *store*."""
    directory = store.directory
    queues = store.queues()
    view = InspectionView(store)
    files = view.log_files()
    start = max(store.start_offset, 0)

    return {
        "path": store.path,
        "release": directory.release,
        "wasClosed": directory.was_closed,
        "startOffset": start,
        "endOffset": store.end_offset,
        "firstStoreTimestamp": _first_time(store, start),
        "logFiles": len(files),
        "logFileSize": store.config.commit_log_file_size_bytes,
        "topics": len({queue.topic for queue in queues}),
        "queues": len(queues),
        "queueEntries": sum(len(queue) for queue in queues),
        "queueFileSize": store.config.consume_queue_file_size_bytes,
        "indexSlots": directory.index_slot_count,
        "indexEntries": directory.index_entry_count,
        "indexFilesSkipped": view.index_files_skipped(),
        "checkpoint": _checkpoint(store),
        "leftAlone": list(directory.left_alone),
    }


def _checkpoint(store: Store) -> dict[str, Any] | None:
    try:
        with Path(store.path, CHECKPOINT).open("rb") as file:
            found = Checkpoint.parse(file.read(CHECKPOINT_BYTES))
    except FileNotFoundError:
        return None
    return found.as_json() if found else None


def _first_time(store: Store, start: int) -> int | None:
    try:
        first = next(iter(store.scan_log(start)), None)
    except StoreError:
        return None
    return first.store_timestamp if first else None
