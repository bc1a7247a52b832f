"""Directories of real brokers that ended with messages under way; README.md has their words."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

from rmqstore.broker.node import Broker
from rmqstore.config import BrokerConfig
from tests.golden import DIRECTORY

ENDINGS = ("clean", "killed")
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TIMER = "rmq_sys_wheel_timer"


class TakenOver:
    """The directory of a broker of *release* that ended in a way, and what must follow."""

    def __init__(self, root: Path, release: str, case: str) -> None:
        with tarfile.open(DIRECTORY / "brokers" / release / f"{case}.tar.xz") as archive:
            archive.extractall(root, filter="data")
        directory = root / case
        manifest = json.loads((directory / "manifest.json").read_text())
        self.directory = directory
        self.messages: list[dict[str, Any]] = manifest["messages"]
        self.facts: dict[str, Any] = manifest.get("facts", {})
        self.ended_ms: int = manifest["ended_ms"]
        self.retries: list[dict[str, Any]] = manifest.get("retries", [])
        file = directory / "broker.conf"
        text = file.read_text().replace("@DIR@", str(directory))
        file.write_text(text.replace("namesrvAddr=", "# namesrvAddr="))
        changes = {"listen_port": 0, "ha_listen_port": 0}
        self.config = BrokerConfig.from_properties(file).replace(**changes)

    def expected(self, *events: str) -> list[dict[str, Any]]:
        """Return what the broker of Java did after the restart, of some kinds of events."""
        lines = (self.directory / "expected.jsonl").read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["event"] in events]


def copies(broker: Broker) -> Counter[tuple[str, str, int]]:
    """Return how many messages topics have, by unique key, topic and queue."""
    records = broker.store.store.scan_log()
    return Counter(
        (each.unique_key or "", each.topic, each.queue)
        for each in records
        if each.topic not in (SCHEDULE, TIMER)
    )
