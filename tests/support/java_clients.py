"""`python -m tests.support.java_clients`: the command of a Java consumer that fails, for the demo.

It prints the words of the command as a JSON array once the program is built; where it cannot be
built, the reason, with exit code 1. The command takes the nameserver and the number of messages.
"""

from __future__ import annotations

import json
import sys

from tests.support import java
from tests.support.builds import BuildError
from tests.support.releases import NEW

_PROGRAM = "peer.clients.Main"


def main() -> int:
    """Print the command or the reason; return the exit code."""
    lacking = java.missing()
    if lacking:
        print(lacking)
        return 1
    try:
        flags = java.quick_flags(NEW, java.CLIENTS)
        print(json.dumps(java.command(NEW, _PROGRAM, flags=flags, project=java.CLIENTS)))
    except BuildError as error:
        print(str(error).strip().splitlines()[0])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
