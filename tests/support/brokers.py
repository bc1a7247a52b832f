"""Settings of brokers for tests: small files, free ports, loopback."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmqstore.config import BrokerConfig

__all__ = ["SMALL_FILES", "broker_config"]

SMALL_FILES: Mapping[str, int] = {
    "commit_log_file_size_bytes": 1 << 20,
    "consume_queue_file_size_bytes": 20_000,
    "index_slot_count": 1000,
    "index_entry_count": 4000,
}


def broker_config(root: Path, **changes: Any) -> BrokerConfig:
    """Return the settings of a broker with its store at *root*, with *changes* by field name."""
    settings: dict[str, Any] = {
        **SMALL_FILES,
        "root_path": str(root),
        "name": "broker-a",
        "bind_address": "127.0.0.1",
        "listen_port": 0,
        "ha_listen_port": 0,
    }
    return BrokerConfig().replace(**settings | changes)
