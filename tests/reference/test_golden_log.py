"""The commit logs of the real Java store, read and written again by the reference."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from tests.golden import RELEASES, GoldenCases
from tests.reference import batch, log, manifest, properties, record
from tests.reference.log import Entry
from tests.reference.record import Record
from tests.reference.walked import Walked


def test_walk_gives_the_lines_of_the_manifest(case: Walked) -> None:
    entries: dict[int, list[Entry]] = {}
    for queue in case.queues().values():
        for entry in queue:
            entries.setdefault(entry.physical_offset, []).append(entry)
    lines = [manifest.line(found, entries.get(found.physical_offset, ())) for found in case.records]
    golden = [
        manifest.comparable(dict(line)) for line in case.golden.manifest if "damaged" not in line
    ]
    assert lines == golden


def test_walk_ends_where_the_java_store_recovers_to(case: Walked) -> None:
    (store,) = case.golden.expected_of("store")
    assert case.start_offset == store["minPhyOffset"]
    assert log.end_offset(case.root / "commitlog") == store["maxPhyOffset"]


def test_walked_offsets_are_those_in_the_records(case: Walked) -> None:
    walked = [offset for offset, _ in log.walk(case.root / "commitlog")]
    assert walked == [found.physical_offset for found in case.records]


def test_encoding_the_fields_again_gives_the_log_file_by_file(case: Walked) -> None:
    damaged = [line["phyOffset"] for line in case.golden.manifest if "damaged" in line]
    end = min(damaged, default=log.end_offset(case.root / "commitlog"))
    for start, data in log.files(case.root / "commitlog"):
        inside = [
            found for found in case.records if start <= found.physical_offset < start + len(data)
        ]
        encoded = b"".join(record.encode(found) for found in inside)
        if start + len(data) <= end:
            encoded += record.encode_blank(len(data) - len(encoded))
            assert data == encoded.ljust(len(data), b"\0")
        else:
            # A crash leaves the file behind that was made ahead of the writer.
            used = max(end - start, 0)
            assert data[:used] == encoded
            assert damaged or not any(data[used:])


def test_every_put_can_be_made_again(case: Walked) -> None:
    with_crc = bool(case.settings.get("enabledAppendPropCRC"))
    for found in case.records:
        cleared = replace(
            found,
            version=1,
            body_crc=0,
            sys_flag=found.sys_flag & ~(record.BORN_HOST_V6 | record.STORE_HOST_V6),
        )
        assert record.encode_put(cleared, property_crc=with_crc) == record.encode(found)


def test_crc_properties_agree_and_are_there_only_when_switched_on(case: Walked) -> None:
    expected = True if case.settings.get("enabledAppendPropCRC") else None
    verdicts = {record.property_crc_is_right(record.encode(found)) for found in case.records}
    assert verdicts == {expected}


def test_message_id_parses_to_host_and_offset(case: Walked) -> None:
    for found in case.records:
        parsed = record.parse_message_id(found.message_id)
        assert parsed == (found.store_host, found.physical_offset)


def test_every_record_keeps_eight_bytes_to_the_end_of_its_file(case: Walked) -> None:
    size = case.settings["mappedFileSizeCommitLog"]
    for found in case.records:
        assert found.physical_offset % size + found.size + record.BLANK_SIZE <= size


def test_inner_batches_hold_as_many_messages_as_they_say(case: Walked) -> None:
    for found in case.records:
        if found.sys_flag & record.INNER_BATCH:
            messages = batch.decode(found.body)
            assert len(messages) == int(found.properties[properties.INNER_COUNT])
            assert batch.encode(messages) == found.body


def test_property_text_of_inner_batches_is_in_the_order_of_a_hash_map(case: Walked) -> None:
    for found in case.records:
        if found.sys_flag & record.INNER_BATCH:
            ordered = properties.hash_map_order(found.properties, buckets=16)
            assert properties.encode(ordered) == found.property_bytes


def test_members_of_plain_batches_can_be_put_again_as_a_batch(case: Walked) -> None:
    property_crc = bool(case.settings.get("enabledAppendPropCRC"))
    batched = [pair for pair in pairwise(case.records) if _may_be_one_batch(*pair)]
    kinds = {step["kind"] for step in case.golden.spec["steps"]}
    assert batched or "batch" not in kinds

    for pair in batched:
        messages = [
            batch.Message(
                flag=member.flag,
                body=member.body,
                property_bytes=properties.remove(member.property_bytes, properties.CRC),
            )
            for member in pair
        ]

        written = batch.records(
            replace(pair[0], property_bytes=b""),
            messages,
            property_crc=property_crc,
            append_properties=False,
        )
        assert written == [record.encode(member) for member in pair]


def _may_be_one_batch(head: Record, following: Record) -> bool:
    return following == replace(
        head,
        flag=following.flag,
        body=following.body,
        body_crc=following.body_crc,
        property_bytes=following.property_bytes,
        queue_offset=head.queue_offset + 1,
        physical_offset=head.physical_offset + head.size,
    )


def test_only_5_3_appends_the_properties_of_a_batch(
    golden_cases: GoldenCases, tmp_path: Path
) -> None:
    old, new = (golden_cases.copy(release, "batch", into=tmp_path) for release in RELEASES)
    appended = 0
    for with_batch, own in zip(old.manifest, new.manifest, strict=True):
        suffix = with_batch["propertiesRaw"].removeprefix(own["propertiesRaw"])
        joined = batch.join_properties(own["propertiesRaw"].encode(), batch=suffix.encode())
        assert joined.decode() == with_batch["propertiesRaw"]
        assert with_batch["size"] - own["size"] == len(suffix.encode())
        appended += suffix != ""
    assert appended == 162
