"""Settings of brokers for tests: small files, free ports, loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqstore.config import BrokerConfig

__all__ = ["broker_config"]


def broker_config(root: Path, **changes: Any) -> BrokerConfig:
    """Return the settings of a broker with its store at *root*, with *changes* by field name."""
    settings: dict[str, Any] = {
        "root_path": str(root),
        "name": "broker-a",
        "bind_address": "127.0.0.1",
        "listen_port": 0,
        "ha_listen_port": 0,
        "commit_log_file_size_bytes": 1 << 20,
        "consume_queue_file_size_bytes": 20_000,
        "index_slot_count": 1000,
        "index_entry_count": 4000,
    }
    return BrokerConfig().replace(**settings | changes)
