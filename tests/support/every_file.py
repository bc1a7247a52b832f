"""Settings of a store with several small files of every kind, and what its directory holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = {
    "commit_log_file_size_bytes": 4096,
    "consume_queue_file_size_bytes": 100,
    "consume_queue_ext_file_size_bytes": 200,
    "batch_consume_queue_file_size_bytes": 138,
    "index_slot_count": 7,
    "index_entry_count": 40,
    "enable_consume_queue_ext": True,
    "enable_multi_dispatch": True,
    "append_property_crc": True,
    "force_verify_property_crc": True,
}
BATCHES = "batches"


def tree(directory: Path) -> dict[str, bytes]:
    """Return the bytes of every file but `lock`, which is taken before anything is read."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "lock"
    }
