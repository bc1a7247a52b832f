"""The key-value configuration of a nameserver on a full disk, and under kills."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqstore.errors import DiskError
from rmqstore.nameserver.kv import KvConfig
from rmqstore.nameserver.kv_file import KvFile
from tests.crash.disk import fill_up, small_tmpfs
from tests.support.effort import rounds

DISK_BYTES = 1 << 20


def config_of(number: int) -> KvConfig:
    """Return the configuration that the writer has after change *number*."""
    return KvConfig({"space": {f"key-{each}": str(number) for each in range(200)}})


WRITER = """
import sys
from pathlib import Path
from rmqstore.nameserver.kv_file import KvFile
from tests.crash.test_nameserver_files import config_of
file = KvFile(Path(sys.argv[1]))
for number in range(1, 1_000_000):
    file.save(config_of(number))
    print(number, flush=True)
"""


def test_a_full_disk_keeps_the_former_configuration(tmp_path: Path) -> None:
    with small_tmpfs(tmp_path / "disk", DISK_BYTES) as disk:
        file = KvFile(disk / "kvConfig.json")
        file.save(config_of(1))
        fill_up(disk / "ballast")
        with pytest.raises(DiskError, match="space"):
            file.save(config_of(2))
        assert file.load() == config_of(1)
        (disk / "ballast").unlink()
        file.save(config_of(2))
        assert file.load() == config_of(2)
        assert sorted(os.listdir(disk)) == ["kvConfig.json"]


def test_a_killed_writer_leaves_the_last_answered_configuration_or_the_next(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    for _ in range(rounds(5, 100)):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        ) as writer:
            assert writer.stdout is not None
            for _ in range(3):
                writer.stdout.readline()
            writer.kill()
            answered = [int(line) for line in writer.stdout.read().splitlines() if line]
        last = max([3, *answered])
        assert KvFile(path).load() in (config_of(last), config_of(last + 1))
        path.unlink()
