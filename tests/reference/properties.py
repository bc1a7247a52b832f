"""The property text of a record, and what the store reads out of it.

    name 0x01 value 0x02  name 0x01 value 0x02 ...

The writer ends each pair with 0x02; a reader does without the last one. A piece whose name or
value is empty, or that has no 0x01, is no property. The first 0x01 splits: a value may hold
further ones. The last of equal names wins. The order is that of the sender, so a text cannot be
made again from its map.

Source: MessageDecoder and MessageConst of RocketMQ 5.3.3.
"""

from collections.abc import Mapping, Sequence

from tests.reference import java_text

NAME_END = "\x01"
PAIR_END = "\x02"

KEYS = "KEYS"
TAGS = "TAGS"
UNIQUE_KEY = "UNIQ_KEY"
DELAY_LEVEL = "DELAY"
INNER_COUNT = "INNER_NUM"
INNER_BASE = "INNER_BASE"
LIGHT_QUEUES = "INNER_MULTI_DISPATCH"
LIGHT_QUEUE_OFFSETS = "INNER_MULTI_QUEUE_OFFSET"
CRC = "__CRC32#"

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

_MINUTES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
DELAYS_MS = (1_000, 5_000, 10_000, 30_000, *(60_000 * minutes for minutes in _MINUTES))
"""Durations of the levels 1 to 18, RocketMQ's default."""


def encode(pairs: Mapping[str, str | None]) -> bytes:
    """Return the text of *pairs* in their order; a pair whose value is None is left out."""
    return "".join(
        name + NAME_END + value + PAIR_END for name, value in pairs.items() if value is not None
    ).encode()


def decode(text: bytes) -> dict[str, str]:
    """Return the properties in *text*."""
    pairs: dict[str, str] = {}
    for piece in java_text.decode(text).split(PAIR_END):
        name, split, value = piece.partition(NAME_END)
        if name and split and value:
            pairs[name] = value
    return pairs


def remove(text: bytes, name: str) -> bytes:
    """Return *text* without the pairs called *name*; all other bytes stay as they are."""
    begin = (name + NAME_END).encode()
    pieces = text.split(PAIR_END.encode())
    return PAIR_END.encode().join(piece for piece in pieces if not piece.startswith(begin))


def hash_map_order(pairs: Mapping[str, str], *, buckets: int) -> dict[str, str]:
    """Return *pairs* in the order in which a java.util.HashMap of so many buckets gives them.

    The store itself writes the text of inner batches and of messages for light queues again, from
    the map they came with and the pairs it adds: 16 buckets for a message built by setters (32
    from the 13th pair on), 128 for one decoded from a property text. Pairs of one bucket keep
    their order."""

    def bucket(name: str) -> int:
        value = java_text.string_hash(name) & 0xFFFFFFFF
        return (value ^ value >> 16) & (buckets - 1)

    return dict(sorted(pairs.items(), key=lambda pair: bucket(pair[0])))


def index_keys(pairs: Mapping[str, str]) -> list[str]:
    """Return the tokens of KEYS, split at single spaces."""
    return [key for key in pairs.get(KEYS, "").split(" ") if key]


def tags_code(
    pairs: Mapping[str, str],
    *,
    topic: str,
    store_timestamp: int,
    delays_ms: Sequence[int] = DELAYS_MS,
) -> int:
    """Return what a consume queue unit stores beside offset and size.

    The hash of the whole TAGS text, 0 without one; for a record of the schedule topic with a delay
    level the time at which it is due.
    """
    level = int(pairs.get(DELAY_LEVEL, "0")) if topic == SCHEDULE_TOPIC else 0
    if level > 0:
        return store_timestamp + delays_ms[min(level, len(delays_ms)) - 1]
    return java_text.string_hash(pairs.get(TAGS, ""))
