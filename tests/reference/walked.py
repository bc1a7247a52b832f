"""A golden case together with what the reference makes of its log."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.golden import GoldenCase
from tests.reference import log
from tests.reference.log import Entry, Queues
from tests.reference.record import Record


@dataclass(frozen=True, slots=True)
class Walked:
    """A golden case and the records that the reference finds in its log."""

    golden: GoldenCase
    records: list[Record]

    @property
    def root(self) -> Path:
        return self.golden.root

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.golden.spec["store"])

    @property
    def has_tag_keys(self) -> bool:
        return self.golden.release == "5.5.0"

    @property
    def batch_topics(self) -> set[str]:
        topics = self.golden.spec["topics"]
        return {topic["name"] for topic in topics if topic.get("queueType") == "BatchCQ"}

    @property
    def start_offset(self) -> int:
        return log.files(self.root / "commitlog")[0][0]

    def queues(self) -> Queues:
        """The queues that follow from the log, with extension addresses where the case has them."""
        queues = log.build_queues(self.records, batch_topics=self.batch_topics)
        return self.extension(queues)[0] if self.has_extension else queues

    @property
    def has_extension(self) -> bool:
        return bool(self.settings.get("enableConsumeQueueExt"))

    def extension(self, queues: Queues) -> tuple[Queues, dict[tuple[str, int], bytes]]:
        return log.extend_queues(
            queues,
            bitmap_of=bitmap_of_peer,
            file_size=self.settings["mappedFileSizeConsumeQueueExt"],
        )


def bitmap_of_peer(entry: Entry) -> bytes:
    """The bitmap in the golden cases: bytes of the physical offset, each xor its position."""
    return bytes((entry.physical_offset >> 8 * index & 0xFF) ^ index for index in range(8))
