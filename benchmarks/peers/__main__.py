"""One run of one workload by one peer, in a process of its own: prints its figures as JSON.

python -m benchmarks.peers rmqstore put-1k --dir DIR [--count N] [--store DIR]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks import peers
from benchmarks.workloads import BY_NAME


def main() -> int:
    """Run and print; exits with 1 and the reason when the peer cannot."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("peer", choices=peers.names())
    parser.add_argument("workload", choices=BY_NAME)
    parser.add_argument("--dir", type=Path, required=True, help="an empty directory to write in")
    parser.add_argument("--count", type=int, help="messages")
    parser.add_argument("--store", type=Path, help="a store prepared by the report")
    given = parser.parse_args()

    workload = BY_NAME[given.workload]
    peer = peers.peer(given.peer)

    lacking = peer.missing()
    if lacking or not peer.supports(workload):
        print(lacking or f"{given.peer} does not do {workload.name}", file=sys.stderr)
        return 1

    count = given.count or workload.messages
    given.dir.mkdir(parents=True, exist_ok=True)
    figures = peer.run(peers.Job(workload, given.dir, count, given.store))
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
