"""Small file systems that tests fill, take away and give back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import spin_until

_EXT4_SHUTDOWN = 0x8004587D
_SHUTDOWN_WITHOUT_LOG = 2


def run(*command: str | Path) -> str:
    """Run a command; return what it printed, skip the test where it cannot be done."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def unmount(path: Path) -> None:
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)


@contextlib.contextmanager
def small_tmpfs(path: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a tmpfs at *path* while the block lasts; skip the test where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    path.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", path)
    try:
        yield path
    finally:
        unmount(path)


def fill_up(path: Path) -> None:
    """Make a file of all the room there is, or make it longer by all the room there is."""
    with path.open("ab", buffering=0) as file:
        end = -1
        # Room that the file system had set aside for the file comes back when that is written.
        while end < file.tell():
            end = file.tell()
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass
            os.fsync(file.fileno())


class LoopDisk:
    """An ext4 file system in a file, which can fail under its users and be mounted again."""

    def __init__(self, folder: Path, size_bytes: int, *, block_bytes: int = 4096) -> None:
        if os.geteuid() != 0:
            pytest.skip("mounting a file system needs root")
        self.path = folder / "disk"
        self.image = folder / "image"
        self.path.mkdir()
        with self.image.open("wb") as file:
            file.truncate(size_bytes)
        if not shutil.which("mkfs.ext4"):
            pytest.skip("mkfs.ext4 is not installed")
        run("mkfs.ext4", "-q", "-F", "-b", str(block_bytes), self.image)
        self.mount()

    def mount(self) -> None:
        # The kernel writes names on its own seldom enough, so that only syncs count.
        run("mount", "-o", "loop,errors=remount-ro,commit=300", self.image, self.path)

    def turn_read_only(self) -> None:
        """Make the kernel find an error, upon which it lets nothing be written any more."""
        device = run("findmnt", "-n", "-o", "SOURCE", self.path).strip()
        trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
        if not trigger.exists():
            pytest.skip(f"this kernel has no {trigger}")
        trigger.write_text("1")

    def vanish(self) -> None:
        """Let every further access to the device fail, as if it had been pulled out, or the power
        had gone; what was not synced is not there after `repair`."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, struct.pack("I", _SHUTDOWN_WITHOUT_LOG))
        except OSError as error:
            pytest.skip(f"this kernel does not shut ext4 down: {error}")
        finally:
            os.close(descriptor)

    def repair(self) -> None:
        """Mount it again, after a check. No process uses it."""
        spin_until(self._is_unmounted, f"{self.path} is unmounted")
        done = subprocess.run(["e2fsck", "-fy", str(self.image)], capture_output=True, check=False)
        assert done.returncode < 4, done.stdout
        self.mount()

    def _is_unmounted(self) -> bool:
        # A process that was killed may hold it for a moment longer.
        done = subprocess.run(["umount", str(self.path)], capture_output=True, check=False)
        return done.returncode == 0
