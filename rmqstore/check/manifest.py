"""Records as JSON objects with RocketMQ's field names: what `rmqstore dump --json` prints.

One object tells all that the store knows about a record: envelope, properties, a digest of the
body, and every queue entry that points at it. Text is decoded as Java decodes it: bytes that are
not UTF-8 become U+FFFD.
"""

from __future__ import annotations

import hashlib
import heapq
import ipaddress
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from rmqstore._native.core import LogScan, Record
from rmqstore.message import decode_properties
from rmqstore.store import Store
from rmqstore.store.inspection import InspectionView

__all__ = ["dump", "manifest_line"]

# Java replaces an encoded surrogate, whole or cut short, by one U+FFFD; Python each byte of it.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")

_UNITS_AT_ONCE = 256

_Entry = tuple[int, dict[str, Any]]
"""Physical offset of the record, and the member of `consumeQueues`."""


def manifest_line(record: Record, *, queues: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return *record* as an object with the names of RocketMQ's fields, ready for JSON.

    *queues* are the entries that point at the record, as `dump` joins them in: `topic`, `queueId`,
    `offset`, `tagsCode`, with `batchNum` for an inner batch, with `extAddress` and `bitMap` (hex)
    for an extended queue. They become `consumeQueues`; the one of the record's own topic gives
    `tagsCode`, which is None without one. Lengths and digests are those of the stored body.
    """
    topic = _java_text(record.topic)
    text = _java_text(record.properties_text)
    properties = decode_properties(text)
    body = record.body
    entries = sorted(queues, key=itemgetter("topic", "queueId"))

    return {
        "phyOffset": record.physical_offset,
        "size": record.size,
        "version": record.version,
        "topic": topic,
        "queueId": record.queue,
        "queueOffset": record.stored_queue_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp,
        "bornHost": _host_text(record.born_host),
        "storeTimestamp": record.store_timestamp,
        "storeHost": _host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "msgId": record.message_id,
        "bodyCRC": record.body_crc,
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "propertiesRaw": text or None,
        "properties": dict(sorted(properties.items())),
        "tagsCode": next((each["tagsCode"] for each in entries if each["topic"] == topic), None),
        "consumeQueues": entries,
    }


def dump(store: Store, scan: LogScan | None = None) -> Iterator[dict[str, Any]]:
    """Yield the manifest line of every record of *scan*, a walk through the commit log of *store*;
    None: through all of it, which raises CorruptionError at damage.

    Queues are read along with the log, each once.
    """
    store.wait_dispatched()
    scan = scan or store.scan_log()
    view = InspectionView(store)

    entries = heapq.merge(
        *(_entries(view, topic, number) for topic, number in view.queue_names()),
        key=itemgetter(0),
    )

    entry = next(entries, None)
    for record in scan:
        own = []
        # Queues may still have entries of records that are gone.
        while entry is not None and entry[0] <= record.physical_offset:
            if entry[0] == record.physical_offset:
                own.append(entry[1])
            entry = next(entries, None)
        yield manifest_line(record, queues=own)


def _entries(view: InspectionView, topic: str, number: int) -> Iterator[_Entry]:
    offset = view.first_offset(topic, number)
    # A store may have very many queues, most of them short.
    count = 4
    while units := view.units(topic, number, offset, count=count):
        for unit in units:
            offset = unit.queue_offset + unit.message_count
            if unit.physical_offset < 0:
                continue
            entry = {
                "topic": topic,
                "queueId": number,
                "offset": unit.queue_offset,
                "tagsCode": unit.tags_code,
            }
            if unit.message_count > 1:
                entry["batchNum"] = unit.message_count
            if unit.extension_address is not None:
                entry |= {"extAddress": unit.extension_address, "bitMap": unit.bit_map.hex()}
            yield unit.physical_offset, entry
        count = min(count * 4, _UNITS_AT_ONCE)


def _java_text(text: str) -> str:
    if text.isascii():
        return text
    data = text.encode("utf-8", "surrogateescape")
    return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def _host_text(host: tuple[str, int]) -> str:
    """IPv6 as Java writes it: eight groups, none left out."""
    address, port = host
    packed = ipaddress.ip_address(address).packed
    if len(packed) == 4:
        return f"{address}:{port}"
    groups = ":".join(f"{group:x}" for group in struct.unpack(">8H", packed))
    return f"[{groups}]:{port}"
