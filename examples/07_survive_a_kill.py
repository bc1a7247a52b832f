"""Kill a writer without warning, open its store again, and find every acknowledged message."""

import os
import signal
import subprocess
import sys
import tempfile

import rmqstore

WRITER = """
import sys, rmqstore
store = rmqstore.open(sys.argv[1])
while True:
    print(store.put("orders", b"paid").queue_offset, flush=True)
"""

with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/orders.store"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        acknowledged = -1
        while acknowledged < 1000:
            acknowledged = int(writer.stdout.readline())

        # While the writer lives, its directory is its own.
        try:
            rmqstore.open(path)
        except rmqstore.StoreLockedError as error:
            print(error)
            print(f"process {error.process_id} is the writer: {error.process_id == writer.pid}")

        os.kill(writer.pid, signal.SIGKILL)
        # What was acknowledged until the kill came through; the last line may be cut short.
        for line in writer.stdout:
            if line.endswith("\n"):
                acknowledged = int(line)

    with rmqstore.open(path) as store:
        print(store.recovery)
        assert not store.recovery.was_closed
        assert store.queue("orders").end > acknowledged
        print(f"acknowledged up to {acknowledged}, stored up to {store.queue('orders').end - 1}")
