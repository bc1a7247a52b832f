"""A record as a line of the golden manifests: one JSON object with RocketMQ's field names.

`tagsCode` is the one in the record's own queue, null when it is in none; `consumeQueues` has
every entry that points at the record, by topic and queue id. `propertiesRaw` is null without a
property text. A manifest also tells what no store knows: `plainLength` and `plainSha256` of the
uncompressed body, and `damaged`.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

from tests.reference import java_text, properties
from tests.reference.log import Entry
from tests.reference.record import Record

NOT_IN_STORE = frozenset({"plainLength", "plainSha256", "damaged"})

Line = dict[str, Any]


def line(record: Record, entries: Iterable[Entry] = ()) -> Line:
    """Return the line of *record*; *entries* are those of all queues that point at it."""
    pairs = record.properties
    entries = sorted(entries, key=lambda entry: (entry.topic, entry.queue_id))
    own = [entry.tags_code for entry in entries if entry.topic == record.topic]
    text = record.property_bytes

    return {
        "phyOffset": record.physical_offset,
        "size": record.size,
        "version": record.version,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp,
        "bornHost": str(record.born_host),
        "storeTimestamp": record.store_timestamp,
        "storeHost": str(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "msgId": record.message_id,
        "bodyCRC": record.body_crc,
        "bodyLength": len(record.body),
        "bodySha256": hashlib.sha256(record.body).hexdigest(),
        "tags": pairs.get(properties.TAGS),
        "keys": pairs.get(properties.KEYS),
        "propertiesRaw": java_text.decode(text) if text else None,
        "properties": dict(sorted(pairs.items())),
        "tagsCode": own[-1] if own else None,
        "consumeQueues": [entry_object(entry) for entry in entries],
    }


def entry_object(entry: Entry) -> Line:
    """Return the member of `consumeQueues` for *entry*."""
    made: Line = {
        "topic": entry.topic,
        "queueId": entry.queue_id,
        "offset": entry.queue_offset,
        "tagsCode": entry.tags_code,
    }
    if entry.count > 1:
        made["batchNum"] = entry.count
    if entry.ext_address is not None:
        made["extAddress"] = entry.ext_address
        made["bitMap"] = entry.bitmap.hex()
    return made


def comparable(golden: Line) -> Line:
    """Return *golden* without the fields that cannot be told from a store."""
    return {name: value for name, value in golden.items() if name not in NOT_IN_STORE}
