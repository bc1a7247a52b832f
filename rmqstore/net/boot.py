"""The boot of this machine.

The page cache ends with a boot of the machine, not with a process. A replica that acknowledges from
memory may have lost the end of its log when its boot is another one than before.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

__all__ = ["boot_id"]

_KERNEL_PATH = "/proc/sys/kernel/random/boot_id"
_PATH_VARIABLE = "RMQ_BOOT_ID_PATH"
_LENGTH_MAX = 64
_UNKNOWN = f"process-{uuid.uuid4()}"
"""The boot where no file names it. It differs in each process, so that a restart of the process
counts as a boot of the machine."""


def boot_id() -> str:
    """Return the id of this machine's present boot, at most 64 characters.

    It is the content of the file that the environment variable RMQ_BOOT_ID_PATH names, by
    default that of Linux's kernel. Without such a file each process has a different id.
    """
    path = Path(os.environ.get(_PATH_VARIABLE) or _KERNEL_PATH)
    try:
        found = path.read_text(encoding="ascii", errors="replace").strip()[:_LENGTH_MAX]
    except OSError:
        return _UNKNOWN
    return found or _UNKNOWN
