"""Read the store directory of an Apache RocketMQ broker, running or stopped.

python 06_read_a_brokers_directory.py [PATH] -- without PATH, a small one that RocketMQ 5.3.3 wrote.
"""

import sys
import tarfile
import tempfile
from pathlib import Path

import rmqstore

SAMPLE = Path(__file__).parents[1] / "tests/golden/5.3.3/plain.tar.xz"

with tempfile.TemporaryDirectory() as folder:
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
    else:
        with tarfile.open(SAMPLE) as archive:
            archive.extractall(folder, filter="data")
        path = Path(folder, "plain", "store")

    # Read-only takes no lock and writes nothing. File sizes are found out from the files.
    with rmqstore.open(path, read_only=True) as store:
        print(store.directory)
        print(f"log from {store.start_offset} to {store.end_offset}")
        for queue in store.queues():
            print(f"{queue.topic}/{queue.number}: offsets {queue.start} to {queue.end}")

        # Every record in stored order, its CRC checked. Damage raises CorruptionError;
        # on_corrupt="skip" goes on after it.
        records, size = store.scan_log().count()
        print(f"{records} records, {size} bytes")

        # Beside a running broker: look again. Consumers and topics come from config/*.json.
        store.refresh()
        print(sorted(store.topics.topics), store.consumer_offsets.offsets)

        try:
            store.put("orders", b"no")
        except rmqstore.NotWritable as error:
            print(error)
