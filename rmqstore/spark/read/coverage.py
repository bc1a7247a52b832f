"""Whether the consume queues of a store point at every record of its log.

A condition on a topic means all records of the topic, also prepared and rolled back messages, which
no queue has. The queues of the topic can be read instead of the log only where no record is outside
of all queues: the records that the units point at fill the files of the log from record to record.
Reading all units takes some hundredths of what reading the log takes.
"""

from __future__ import annotations

from rmqstore._native import core
from rmqstore.spark.read.layout import Layout
from rmqstore.spark.read.records import BLANK, Log, LogFile
from rmqstore.spark.read.units import QueueFiles, Units
from rmqstore.topic_names import LIGHT_PREFIX

__all__ = ["covers"]

_READ_UNITS = 1 << 16


def covers(layout: Layout, end: int) -> bool:
    """Return whether the queues point at every record from the log's start to the boundary *end*.

    Queues that show records of other topics count for nothing. Raises NotFoundError when a file
    that the layout has is gone.
    """
    files = [file for file in layout.files if file.start < end]
    if not files or layout.doubtful or not _are_alike(files):
        return False

    sums = core.UnitSums(
        start=files[0].start, stop=end, file_size=files[0].size, file_count=len(files)
    )
    own = [queue for queue in layout.queues or () if not queue.topic.startswith(LIGHT_PREFIX)]
    if not all(_is_added(queue, sums) for queue in own):
        return False

    with Log(layout.files) as log:
        return all(
            size == records_end - file.start
            and (records_end == end or log.raw(records_end, 8)[4:] == BLANK)
            for file, (size, records_end) in zip(files, sums.files(), strict=True)
        )


def _are_alike(files: list[LogFile]) -> bool:
    """Return whether files are of one size and side by side."""
    first = files[0]
    return all(
        file.size == first.size and file.start == first.start + number * first.size
        for number, file in enumerate(files)
    )


def _is_added(queue: QueueFiles, sums: core.UnitSums) -> bool:
    """Add the units of a queue; return whether they ascend."""
    number, last = queue.start_unit, -1
    with Units.of(queue) as units:
        while number < queue.end_unit:
            data = units.read(number, min(_READ_UNITS, queue.end_unit - number))
            count = len(data) // queue.unit_size
            found = sums.add(data, unit_size=queue.unit_size, last=last) if count else None
            if found is None:
                return False
            number, last = number + count, found
    return True
