"""Several messages in one body: split and join."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.c.memory import GuardedMemory
from tests.golden import GoldenCases, every_case
from tests.reference import batch as reference
from tests.reference import log
from tests.reference import record as record_reference
from tests.reference.batch import Message

MESSAGES = st.lists(
    st.builds(
        Message,
        flag=st.integers(-(1 << 31), (1 << 31) - 1),
        body=st.binary(max_size=40),
        property_bytes=st.binary(max_size=30),
    ),
    max_size=6,
)


def split(core: Any, body: Any, size: int) -> tuple[int, list[Message], int]:
    """Return the last status, the messages before it, and the place it names."""
    ffi, lib = core
    at = ffi.new("size_t *", 0)
    item = ffi.new("struct rmq_batch_item *")
    error = ffi.new("struct rmq_error *", {"at_offset": -1})
    found: list[Message] = []
    while (status := lib.rmq_batch_next(body, size, at, item, error)) == lib.RMQ_OK:
        found.append(
            Message(
                flag=item.flag,
                body=bytes(ffi.buffer(item.body, item.body_size)),
                property_bytes=bytes(ffi.buffer(item.properties, item.properties_size)),
            )
        )
        assert len(found) <= size // lib.RMQ_BATCH_HEAD_SIZE
    return status, found, error.at_offset


def join(core: Any, messages: list[Message]) -> bytes:
    ffi, lib = core
    joined = b""

    for message in messages:
        body = ffi.new("uint8_t[]", message.body or 1)
        properties = ffi.new("char[]", message.property_bytes)
        item = ffi.new(
            "struct rmq_batch_item *",
            {
                "body": body,
                "body_size": len(message.body),
                "properties": properties,
                "properties_size": len(message.property_bytes),
                "flag": message.flag,
            },
        )

        out = ffi.new("uint8_t[]", len(message.body) + len(message.property_bytes) + 22)
        size = lib.rmq_batch_put(out, item)
        assert size == len(out)
        joined += bytes(ffi.buffer(out))

    return joined


@given(messages=MESSAGES)
def test_joined_messages_are_the_bytes_of_the_reference(core: Any, messages: list[Message]) -> None:
    assert join(core, messages) == reference.encode(messages)


@given(messages=MESSAGES)
def test_messages_come_back(core: Any, messages: list[Message]) -> None:
    ffi, lib = core
    data = reference.encode(messages)
    kept = ffi.new("uint8_t[]", data or 1)
    assert split(core, kept, len(data)) == (lib.RMQ_END, messages, -1)


def verdict(data: bytes) -> list[Message] | None:
    try:
        return reference.decode(data)
    except ValueError:
        return None


@given(messages=MESSAGES, at=st.integers(0, 400), value=st.integers(0, 255))
def test_one_wrong_byte_is_judged_as_the_reference_does(
    core: Any, messages: list[Message], at: int, value: int
) -> None:
    ffi, lib = core
    data = bytearray(reference.encode(messages))
    if at < len(data):
        data[at] = value
    with GuardedMemory(4096) as memory:
        body = ffi.cast("uint8_t *", memory.put_last(bytes(data)))
        status, found, place = split(core, body, len(data))
    expected = verdict(bytes(data))
    if expected is None:
        assert status == lib.RMQ_CORRUPT
        assert place == len(reference.encode(found))
    else:
        assert (status, found) == (lib.RMQ_END, expected)


@given(messages=MESSAGES.filter(bool))
def test_every_cut_is_noticed_and_reads_nothing_behind_it(
    core: Any, messages: list[Message]
) -> None:
    ffi, lib = core
    data = reference.encode(messages)
    ends = [len(reference.encode(messages[:count])) for count in range(len(messages) + 1)]
    with GuardedMemory(4096) as memory:
        for size in range(len(data)):
            body = ffi.cast("uint8_t *", memory.put_last(data[:size]))
            status, found, _ = split(core, body, size)
            assert status == (lib.RMQ_END if size in ends else lib.RMQ_CORRUPT)
            assert found == messages[: sum(end <= size for end in ends) - 1]


@pytest.mark.parametrize(
    "sizes", [(1 << 31) - 1, -1, -(1 << 31)], ids=["largest", "minus one", "smallest"]
)
def test_hostile_body_size_is_refused(core: Any, sizes: int) -> None:
    ffi, lib = core
    data = bytearray(reference.encode([Message(flag=0, body=b"abc", property_bytes=b"")]))
    data[16:20] = sizes.to_bytes(4, "big", signed=True)
    kept = ffi.new("uint8_t[]", bytes(data))
    assert split(core, kept, len(data)) == (lib.RMQ_CORRUPT, [], 0)


@every_case("batch")
def test_golden_inner_batches_come_back_byte_for_byte(
    core: Any, golden_cases: GoldenCases, tmp_path: Any, release: str, case_name: str
) -> None:
    ffi, lib = core
    case = golden_cases.copy(release, case_name, into=tmp_path)
    bodies = [
        record.body
        for _, record in log.walk(case.root / "commitlog")
        if record.sys_flag & record_reference.INNER_BATCH
    ]
    assert bodies
    for body in bodies:
        status, messages, _ = split(core, ffi.new("uint8_t[]", body), len(body))
        assert status == lib.RMQ_END
        assert join(core, messages) == body
