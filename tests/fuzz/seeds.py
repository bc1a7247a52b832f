"""Makes the first inputs of every target: `python -m tests.fuzz.seeds`.

Records, units and files come from the golden stores, so that the targets begin with what RocketMQ
writes; whole directories are small stores of the core itself, and golden ones cut short. Names of
index files tell the time they were made at, so a second run differs in them.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tests.c import library
from tests.c.store_calls import Calls
from tests.fuzz.build import CORPUS
from tests.golden import GoldenCases, remoting, wire
from tests.reference import batch, ha_frame, log, properties
from tests.reference.record import Record, encode

RELEASE = "5.5.0"
RECORD_SIZE_MAX = 700
PLAIN_STORE = struct.pack(">HH", 0, 0)
"""Flags and sizes of target_store.c: the sizes that Calls opens stores with."""
LARGEST_FRAME = ha_frame.FRAME_SIZE_MAX - 44
"""The limit of target_ha_frame.c, which counts from the least one."""

Seeds = Iterator[tuple[str, bytes]]


class Golden:
    """Golden stores, unpacked when they are asked for."""

    def __init__(self, directory: Path) -> None:
        self._cases = GoldenCases(directory / "masters")
        self._directory = directory

    def root(self, name: str) -> Path:
        return self._cases.copy(RELEASE, name, into=self._directory).root

    def records(self, name: str) -> Iterator[tuple[int, Record]]:
        return log.walk(self.root(name) / "commitlog")

    def small_records(self, name: str, count: int) -> list[bytes]:
        small = (found for _, found in self.records(name) if found.size < RECORD_SIZE_MAX)
        return [encode(found) for found in islice(small, count)]


def _record(golden: Golden) -> Seeds:
    for name in ("plain", "topic-length", "ipv6", "prop-crc", "transactions", "delay"):
        for number, data in enumerate(golden.small_records(name, 3)):
            yield f"{name}-{number}", b"\x0f" + data[28:36] + data
            yield f"{name}-{number}-mended", b"\x63" + data[28:36] + data[:400]
    yield "blank", b"\x00" + bytes(8) + struct.pack(">iI", 100, 0xCBD43194) + bytes(92)


def _encode(golden: Golden) -> Seeds:
    def text(size: int, part: bytes) -> bytes:
        return struct.pack(">HB", size, len(part)) + part

    limits = struct.pack(">ii", 1 << 20, 1 << 21)
    numbers = struct.pack(">qqiiii", 1_700_000_000_000, 0, 3, 1, 8, 2)
    hosts = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f" * 2
    place = struct.pack(">qqq", 7, 4096, 1_700_000_000_001)
    texts = text(5, b"topic") + text(9, b"body") + text(7, b"KEYS\x01k\x02") + text(4, b"a\x01b")
    for flags in range(4):
        yield f"flags-{flags}", bytes([flags]) + limits + numbers + hosts + place + texts
    wide = text(300, b"topic") + text(9, b"body") + text(32767, b"a\x01b\x02") + text(0, b"")
    v6 = bytes(range(16)) + b"\x00\x00\x2a\x9f"
    yield "wide", b"\x0d" + limits + numbers + v6 * 2 + place + wide


def _properties(golden: Golden) -> Seeds:
    for name in ("plain", "keys-index", "delay", "batch", "prop-crc"):
        (found,) = islice((found for _, found in golden.records(name)), 1)
        yield name, found.property_bytes
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,b", "INNER_MULTI_QUEUE_OFFSET": "3,-4"}
    yield "light", properties.encode({**light, "INNER_NUM": "12", "INNER_BASE": "9"})
    yield "odd", b"a\x01b\x02\x02\x01x\x02y\x01\x02DELAY\x01-3\x02DELAY\x01\x017\x02TAGS\x01t"
    yield "number", b"-9223372036854775808"


def _remoting(golden: Golden) -> Seeds:
    wanted = {"SEND_MESSAGE_V2": 310, "PULL_MESSAGE": 11, "GET_BROKER_EPOCH_CACHE": 1007}
    for session, is_binary in (("controller", False), ("plain-binary", True)):
        for exchange in remoting.exchanges(session):
            if wanted.get(exchange.name) != exchange.code or exchange.number != 0:
                continue
            for side, frame in (("request", exchange.request), ("response", exchange.response)):
                if frame is not None:
                    header = frame[8 : 8 + int.from_bytes(frame[5:8], "big")]
                    yield f"{session}-{exchange.code}-{side}", bytes([is_binary]) + header
    yield "escapes", b'\0{"remark":"\\ud83d\\ude00\\ud800\\n\\u0001","extFields":{"\\"":"\\\\"}}'
    yield "odd", b'\0 { "language" : 3 , "code":-1,"extFields" :{ } , "version":0 } '


def _utf8(golden: Golden) -> Seeds:
    yield "text", "paid € 10 — naïve 試験 \U0001f600".encode()
    yield "surrogate", b"a\xed\xa0\x80b\xed\xbf\xbf"
    yield "overlong", b"\xc0\x80\xe0\x80\x80\xf0\x80\x80\x80\xf4\x90\x80\x80"
    yield "cut", b"eight..!\xe2\x82\xf0\x9f\x98\xef\xbf\xbd\xff"


def _batch(golden: Golden) -> Seeds:
    messages = [
        batch.Message(flag=flag, body=b"b" * flag, property_bytes=b"a\x01b\x02" * (flag % 3))
        for flag in range(6)
    ]
    yield "six", batch.encode(messages)
    yield "one", batch.encode(messages[:1])
    inner = (found.body for _, found in golden.records("batch") if found.sys_flag & 0x80)
    for number, body in enumerate(islice((body for body in inner if len(body) < 900), 2)):
        yield f"inner-{number}", body


def _columns(golden: Golden) -> Seeds:
    for name in ("plain", "topic-length", "ipv6", "prop-crc"):
        records = b"".join(golden.small_records(name, 6))
        yield f"{name}-all", struct.pack(">IHIBB", 0x7FFFFF, 4, 4000, 0, 0) + records
    yield "wide", struct.pack(">IHIBB", 0x202000, 100, 500, 1, 5) + records


def _segment(golden: Golden) -> Seeds:
    def plan(piece: int, flags: int, positions: tuple[int, ...] = ()) -> bytes:
        head = struct.pack(">HBHIBH", piece, flags, 60_000, 0xFFFFFF, 3, 2000)
        count = struct.pack(">B", len(positions)) if positions else b""
        return head + count + b"".join(struct.pack(">H", at) for at in positions)

    for name in ("plain", "topic-length", "ipv6", "prop-crc", "transactions"):
        data = b"".join(golden.small_records(name, 5))
        yield f"{name}-rows", plan(1, 0x47) + data + bytes(50)
        yield f"{name}-topics", plan(300, 0xCF) + data[:-20]
        yield f"{name}-sums", plan(150, 0x57) + data[:400] + b"?" + data[400:]
    inner = [encode(found) for _, found in golden.records("batch") if found.sys_flag & 0x80]
    small = b"".join([data for data in inner if len(data) < 1200][:2])
    blank = struct.pack(">iI", 40, 0xCBD43194) + bytes(32)
    yield "inner", plan(1, 0x46) + small + blank
    yield "inner-topics", plan(1, 0xCE) + small + bytes(300) + small
    places = (0, len(data), len(data) + 1, 5000)
    yield "positions", plan(64, 0x66, places) + data + small


def _ha_frame(golden: Golden) -> Seeds:
    recorded = ("default-cut", "switch-basic", "switch-epochs", "switch-learner")
    for stream in (stream for name in recorded for stream in wire.streams(name)):
        speaker = ha_frame.STREAMS.index(stream.speaker)
        for pieces in ((), (1, 13, 30, 500)):
            head = struct.pack(">BIB", speaker, LARGEST_FRAME, len(pieces)) + struct.pack(
                f">{len(pieces)}H", *pieces
            )
            yield f"{stream}-{len(pieces)}", head + stream.data[:2500]

    small = struct.pack(">BIB", 3, 100 - 44, 0)
    entries = tuple((epoch, 100 * epoch) for epoch in range(1, 6))
    yield "reply", small + ha_frame.encode(("handshake reply", 900, 5, entries))
    yield "large", small + ha_frame.encode(("transfer", 0, 1, 0, 0, bytes(65)))

    for number, frames in enumerate(_with_checks(entries)):
        for speaker in (number + 2, number + 6):
            head = struct.pack(">BIB", speaker, LARGEST_FRAME, 2) + struct.pack(">2H", 30, 21)
            yield f"checks-{speaker}", head + b"".join(map(ha_frame.encode, frames))

    yield "descending", small + ha_frame.encode(("handshake reply", 900, 5, entries[::-1]))


def _with_checks(entries: tuple[tuple[int, int], ...]) -> Iterator[list[ha_frame.Frame]]:
    handshake = ("offering handshake", False, False, 2)
    yield [handshake, ("checked ack", 0, -1), ("checked ack", 40, 5)]
    crc = zlib.crc32(ha_frame.encode(handshake))
    reply = ("checked handshake reply", 900, 5, entries, crc)
    yield [
        reply,
        ("checked transfer", 0, 5, 0, 0, bytes(40)),
        ("checked transfer", 40, 5, 0, 0, b""),
    ]


def _shape(units: int, files: int, first: int, log_end: int, steps: bytes) -> bytes:
    return struct.pack(">BBBqB", units - 1, files, first, log_end, len(steps)) + steps


def _consume_queue(golden: Golden) -> Seeds:
    queues = golden.root("plain") / "consumequeue" / "TopicA"
    for number, path in enumerate(sorted(queues.glob("*/*0"))[:3]):
        yield (
            f"golden-{number}",
            _shape(8, 2, 0, 1 << 40, b"\x05\x00\x20\x00") + path.read_bytes()[:320],
        )

    def append(physical_offset: int) -> bytes:
        return struct.pack(">BBHBHHq", 0, 0, 0, 0, physical_offset, 100, -5)

    grown = b"".join(append(100 * number) for number in range(7))
    cut = struct.pack(">BBH", 4, 0, 350)
    expired = struct.pack(">BBH", 5, 0, 250)
    gap = struct.pack(">BBHBHHq", 0, 0, 9, 0, 900, 100, 5)
    yield "grown", _shape(3, 0, 0, 0, grown + b"\x07" + cut + b"\x07" + append(350) + b"\x06")
    rewound = struct.pack(">BBHB", 3, 0, 350, 2) + append(400)[1:] + append(500)[1:]
    yield "rewound", _shape(3, 0, 0, 0, grown + rewound + b"\x07" + append(600) + b"\x07")
    yield "gap", _shape(4, 0, 0, 0, grown[:24] + gap + b"\x07" + expired + gap + cut + b"\x07")
    yield "read-only", _shape(4, 0x42, 1, 900, b"\x07" + expired) + path.read_bytes()[:160]


def _batch_queue(golden: Golden) -> Seeds:
    queues = golden.root("batch") / "batchconsumequeue" / "BatchTopic"
    for number, path in enumerate(sorted(queues.glob("*/*"))):
        yield f"golden-{number}", _shape(8, 2, 0, 1 << 40, b"\x07") + path.read_bytes()[:736]
    append = struct.pack(">BBHBHHHqq", 0, 0, 0, 0, 3, 100, 5, -5, 1000)
    cut = struct.pack(">BBH", 4, 0, 350)
    expired = struct.pack(">BBH", 5, 0, 250)
    yield "grown", _shape(2, 0, 0, 0, append * 5 + b"\x07" + cut + append + expired + b"\x07")
    yield "read-only", _shape(8, 0x42, 1, 1 << 40, b"\x07") + path.read_bytes()[:736]


def _extension(golden: Golden) -> Seeds:
    queues = golden.root("cq-ext") / "consumequeue_ext"
    for number, path in enumerate(sorted(queues.glob("*/*/*"))[:3]):
        read = struct.pack(">BBHH", 6, 0, 28, 0)
        yield f"golden-{number}", _shape(16, 1, 0, 0, read + b"\x07") + path.read_bytes()[:528]
    append = struct.pack(">BBqH", 0, 12, -5, 1000)
    cut = struct.pack(">BBH", 4, 0, 32)
    expired = struct.pack(">BBH", 5, 0, 200)
    yield "grown", _shape(5, 0, 0, 0, append * 8 + b"\x07" + cut + append + expired + b"\x07")


def _index(golden: Golden) -> Seeds:
    path = sorted((golden.root("keys-index") / "index").iterdir())[0]
    # Seven slots, of whose entries the first 33 stay.
    data = path.read_bytes()[: 40 + 7 * 4 + 33 * 20]
    steps = struct.pack(">BHHB", 0, 100, 500, 1) * 5 + b"\x07" + struct.pack(">BH", 5, 200)
    discard = struct.pack(">BHH", 4, 700, 300)
    yield "golden", struct.pack(">BBBB", 6, 31, 1, 6) + b"\x07\x06\x07" + bytes(3) + data
    yield "read-only", struct.pack(">BBBB", 6, 31, 0x41, 2) + b"\x07\x06" + data
    yield "grown", struct.pack(">BBBB", 3, 5, 0x20, len(steps)) + steps
    more = steps + discard + steps + b"\x07\x06"
    yield "discarded", struct.pack(">BBBB", 0, 20, 0, len(more)) + more


def _timer_log(golden: Golden) -> Seeds:
    unit = struct.pack(">iqiqiqiiq", 52, -1, 1, 1_700_000_000_000, 1000, 0, 200, 7, 0)
    later = struct.pack(">iqiqiqiiq", 52, 0, 3, 1_700_000_000_000, 1000, 200, 200, 7, 0)
    blank = struct.pack(">iqI", 96, 0, 0xCBD43194).ljust(96, b"\0")
    yield "empty", struct.pack(">BBB", 0, 0, 8) + bytes(16)
    yield "units", struct.pack(">BBB", 132, 1, 4) + bytes(8) + unit + later
    yield "two-files", struct.pack(">BBB", 132, 2, 4) + bytes(8) + unit + later + blank + unit


def _checkpoint(golden: Golden) -> Seeds:
    for name in ("plain", "epoch-checkpoint"):
        data = (golden.root(name) / "checkpoint").read_bytes()[:48]
        yield name, struct.pack(">HB", 4096, 0) + data
    yield "short", struct.pack(">HB", 47, 0) + data
    yield "long", struct.pack(">HB", 5000, 0) + data
    yield "marked", struct.pack(">HB", 4096, 1) + data + struct.pack(">qI", 900, 0)


def _pieces(data: bytes, size: int) -> bytes:
    parts = (data[at : at + size] for at in range(0, len(data), size))
    return b"".join(struct.pack(">H", len(part)) + part for part in parts)


def _append_raw(golden: Golden) -> Seeds:
    large_files = struct.pack(">HH", 0, 3)
    for name in ("plain", "transactions", "prop-crc", "batch"):
        _, data = log.read_run(golden.root(name) / "commitlog")
        yield name, large_files + b"\x00" + _pieces(data[:3500], 700)
    core = library.load()
    with tempfile.TemporaryDirectory() as directory:
        _put_some(Calls(core, Path(directory) / "s")).close()
        _, data = log.read_run(Path(directory) / "s" / "commitlog")
    yield "rolled", PLAIN_STORE + b"\x00" + _pieces(data[:6000], 1500)


# ---- whole directories ----


def _pack(root: Path, head: bytes) -> bytes:
    parts = [head]
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        data = path.read_bytes()
        content = data.rstrip(b"\0")
        name = str(path.relative_to(root)).encode()
        parts.append(struct.pack(">H", len(name)) + name)
        parts.append(struct.pack(">HH", len(data), len(content)) + content)
    return b"".join(parts)


def _put_some(calls: Calls) -> Calls:
    for number in range(14):
        calls.put(b"%d" % number + b"." * (29 * number), queue_id=number % 2)
    return calls


def _put(calls: Calls, topic: bytes, body: bytes, text: bytes, *, sys_flag: int) -> None:
    message = calls.ffi.new("struct rmq_message *")
    kept = [calls.ffi.new("char[]", topic), calls.ffi.from_buffer(body)]
    kept.append(calls.ffi.new("char[]", text))
    message.topic, message.topic_size = kept[0], len(topic)
    message.body, message.body_size = kept[1], len(body)
    message.properties, message.properties_size = kept[2], len(text)
    message.born_host.size = message.store_host.size = 4
    message.sys_flag = sys_flag
    receipt, stored = calls.ffi.new("struct rmq_receipt *"), calls.ffi.new("size_t *")
    status = calls.lib.rmq_store_put(calls.store, message, 1, False, receipt, stored, calls.error)
    calls.check(status)


def _put_inner(calls: Calls) -> Calls:
    """Puts batch messages, which go to the batch consume queue, beside some others."""
    bodies = (b"one", b"two")
    body = batch.encode(batch.Message(flag=0, body=one, property_bytes=b"") for one in bodies)
    for _ in range(5):
        _put(calls, b"inner", body, b"INNER_NUM\x012\x02KEYS\x01k1\x02", sys_flag=0x80)
        calls.put(b"between")
    return calls


def _put_light(calls: Calls) -> Calls:
    """Puts messages that light queues point at too."""
    for number in range(4):
        text = b"TAGS\x01t1\x02INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02"
        _put(calls, b"orders", b"light %d" % number, text, sys_flag=0)
    return calls


def _crash(calls: Calls) -> None:
    calls.wait_dispatched(calls.end_offset)
    calls.abandon()


def _flushed_crash(calls: Calls) -> None:
    calls.flush()
    calls.put(b"k1 behind the checkpoint")
    _crash(calls)


def _expired(calls: Calls) -> None:
    calls.wait_dispatched(calls.end_offset)
    calls.expire(1)
    calls.close()


_LIGHT = {"multi_dispatch": True}
# Name, flags of target_store.c, what is done, how it ends, settings that go with the flags.
_STORES: tuple[tuple[str, int, Callable[[Calls], Calls], Callable[[Calls], None], Any], ...] = (
    ("closed", 0, _put_some, Calls.close, {}),
    ("crashed", 0, _put_some, _crash, {}),
    ("flushed", 0, _put_some, _flushed_crash, {}),
    ("expired", 0, _put_some, _expired, {}),
    ("extended", 16, _put_some, Calls.close, {"enable_ext": True}),
    ("tags", 2, _put_some, Calls.close, {"index_tags": True}),
    ("inner", 0, _put_inner, Calls.close, {}),
    ("inner-crashed", 0, _put_inner, _crash, {}),
    ("light-crashed", 128, _put_light, _crash, {"log": _LIGHT, "dispatch": _LIGHT}),
)


def _directory(golden: Golden) -> Seeds:
    core = library.load()
    with tempfile.TemporaryDirectory() as directory:
        for how, (name, flags, put, end, settings) in enumerate(_STORES):
            root = Path(directory) / name
            end(put(Calls(core, root, **settings)))
            yield name, _pack(root, struct.pack(">BHH", how & 15, flags, 0))
        (root / "abort").write_text("1")
        log_file = sorted((root / "commitlog").iterdir())[0]
        data = bytearray(log_file.read_bytes())
        data[len(data.rstrip(b"\0")) - 20 :] = bytes(20)
        log_file.write_bytes(data.ljust(4096, b"\0"))
        yield "torn", _pack(root, struct.pack(">BHH", 4, 0, 0))
    yield "empty", struct.pack(">BHH", 7, 0, 0)
    for name in ("plain", "transactions", "topic-length"):
        yield f"golden-{name}", _cut_golden(golden.root(name))


def _cut_golden(root: Path) -> bytes:
    """Packs what a golden store held when its log had about four thousand bytes."""
    head = struct.pack(">BHH", 0, 0, 3 | 2 << 2)
    _, data = log.read_run(root / "commitlog")

    end = 0
    for offset, found in log.walk(root / "commitlog"):
        if offset + found.size > 4000:
            break
        end = offset + found.size

    with tempfile.TemporaryDirectory() as directory:
        cut = Path(directory)
        _write(cut / "commitlog" / f"{0:020d}", data[:end].ljust(16384, b"\0"))
        shutil.copy(root / "checkpoint", cut / "checkpoint")

        for queue in sorted(path for path in (root / "consumequeue").glob("*/*")):
            units = (queue / f"{0:020d}").read_bytes()
            kept = [units[at : at + 20] for at in range(0, 400, 20)]
            kept = [
                unit for unit in kept if 0 < int.from_bytes(unit[8:12]) and unit[:8] < _big(end)
            ]
            if kept:
                name = queue.relative_to(root) / f"{0:020d}"
                _write(cut / name, b"".join(kept).ljust(400, b"\0"))
        return _pack(cut, head)


def _big(number: int) -> bytes:
    return number.to_bytes(8)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


MAKERS: dict[str, Callable[[Golden], Seeds]] = {
    "append_raw": _append_raw,
    "batch": _batch,
    "batch_queue": _batch_queue,
    "checkpoint": _checkpoint,
    "columns": _columns,
    "consume_queue": _consume_queue,
    "directory": _directory,
    "encode": _encode,
    "extension": _extension,
    "ha_frame": _ha_frame,
    "index": _index,
    "properties": _properties,
    "record": _record,
    "remoting": _remoting,
    "segment": _segment,
    "timer_log": _timer_log,
    "utf8": _utf8,
}


def main() -> None:
    """Write every seed to its place in the corpus."""
    with tempfile.TemporaryDirectory() as directory:
        golden = Golden(Path(directory))
        for target, make in MAKERS.items():
            for name, data in make(golden):
                _write(CORPUS / target / f"seed-{name}", data)


if __name__ == "__main__":
    main()
