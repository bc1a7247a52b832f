"""File systems that neither reserve nor free blocks, but by what is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rmqstore
from tests.support.agreement import check_agreement
from tests.support.preloaded import preloaded

MIB = 1 << 20
LOG_FILE = 512 * MIB
COUNT = 40
AHEAD = 8 * MIB
"""Pages that are kept ready."""
WORK = f"""
import sys
import rmqstore
from rmqstore import Durability
from tests.support.agreement import check_agreement

with rmqstore.open(sys.argv[1], commit_log_file_size_bytes={LOG_FILE}) as store:
    for number in range({COUNT}):
        store.put("orders", b"%09d" % number + bytes({MIB} - 9), durability=Durability.DISK)
    cut = store.put("orders", b"cut").physical_offset
    store.truncate_to(cut)
    assert store.end_offset == cut
    check_agreement(store)
"""


def test_zeros_are_written_where_they_are_needed_alone(tmp_path: Path) -> None:
    """Blocks that would be allocated ahead are as many as the log has already, and a cut takes the
    rest of the file."""
    path = tmp_path / "store"
    source = Path(__file__).with_name("no_fallocate.c")
    environment = preloaded(source, tmp_path)
    subprocess.run([sys.executable, "-c", WORK, str(path)], env=environment, check=True)

    (log,) = (path / "commitlog").glob("0*")
    assert log.stat().st_size == LOG_FILE
    assert log.stat().st_blocks * 512 <= COUNT * (MIB + 1000) + 2 * AHEAD

    with rmqstore.open(path) as store:
        messages = check_agreement(store)
        assert [each.body[:9] for each in messages] == [b"%09d" % number for number in range(COUNT)]
        assert store.put("orders", b"and on").queue_offset == COUNT
