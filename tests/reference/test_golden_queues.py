"""Queues, index files and checkpoints of the real Java store, held against the log."""

from itertools import pairwise

from tests.reference import (
    batch_consume_queue,
    checkpoint,
    consume_queue,
    consume_queue_ext,
    index_file,
    log,
    manifest,
)
from tests.reference.index_file import Index, IndexFile, Request
from tests.reference.walked import Walked

Key = tuple[str, int]


def queue_directories(case: Walked, kind: str) -> set[Key]:
    found = (case.root / kind).glob("*/*")
    return {(path.parent.name, int(path.name)) for path in found}


def damaged_lines(case: Walked) -> list[manifest.Line]:
    """Records that were dispatched whole and then damaged on purpose."""
    return [dict(line) for line in case.golden.manifest if "damaged" in line]


def damaged_units(case: Walked, key: Key) -> list[consume_queue.Unit]:
    return [
        consume_queue.Unit(line["phyOffset"], line["size"], line["tagsCode"])
        for line in damaged_lines(case)
        if (line["topic"], line["queueId"]) == key
    ]


def test_consume_queues_are_those_of_the_log(case: Walked) -> None:
    built = {
        key: entries for key, entries in case.queues().items() if key[0] not in case.batch_topics
    }
    assert queue_directories(case, "consumequeue") == built.keys()
    for key, entries in built.items():
        start, data = log.read_run(case.root / "consumequeue" / key[0] / str(key[1]))
        first = entries[0].queue_offset
        assert [entry.queue_offset for entry in entries] == list(range(first, first + len(entries)))
        expired = data[: first * consume_queue.UNIT.size - start]
        # Units of deleted records stay until their whole file can go.
        assert all(
            unit.physical_offset + unit.size <= case.start_offset
            for unit in consume_queue.decode(expired)
        )
        units = [entry.unit() for entry in entries] + damaged_units(case, key)
        assert data[len(expired) :] == consume_queue.encode(units).ljust(
            len(data) - len(expired), b"\0"
        )


def test_consume_queue_bounds_are_those_the_java_store_reports(case: Walked) -> None:
    built = case.queues()
    for line in case.golden.expected_of("queue"):
        entries = built[line["topic"], line["queueId"]]
        assert line["maxOffset"] == entries[-1].queue_offset + entries[-1].count
        assert line["minOffset"] + line["expiredEntries"] == entries[0].queue_offset


def test_consume_queue_files_are_named_and_sized_as_encoded(case: Walked) -> None:
    size = case.settings["mappedFileSizeConsumeQueue"]
    for key, entries in case.queues().items():
        if key[0] in case.batch_topics or case.start_offset > 0:
            continue
        units = [entry.unit() for entry in entries] + damaged_units(case, key)
        encoded = consume_queue.encode_files(units, first=entries[0].queue_offset, file_size=size)
        directory = case.root / "consumequeue" / key[0] / str(key[1])
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == encoded


def test_batch_consume_queues_are_those_of_the_log(case: Walked) -> None:
    built = {key: entries for key, entries in case.queues().items() if key[0] in case.batch_topics}
    assert queue_directories(case, "batchconsumequeue") == built.keys()
    for (topic, queue_id), entries in built.items():
        start, data = log.read_run(case.root / "batchconsumequeue" / topic / str(queue_id))
        units = [entry.batch_unit() for entry in entries]
        assert start == 0
        assert batch_consume_queue.decode(data) == units
        assert data == batch_consume_queue.encode(units).ljust(len(data), b"\0")


def test_extensions_are_those_of_the_log(case: Walked) -> None:
    if not case.has_extension:
        assert queue_directories(case, "consumequeue_ext") == set()
        return
    file_size = case.settings["mappedFileSizeConsumeQueueExt"]
    queues, runs = case.extension(case.queues())
    assert queue_directories(case, "consumequeue_ext") == runs.keys()
    for (topic, queue_id), run in runs.items():
        start, data = log.read_run(case.root / "consumequeue_ext" / topic / str(queue_id))
        entries = queues[topic, queue_id]
        assert (start, data) == (0, run)
        assert consume_queue_ext.decode(data, file_size=file_size) == [
            (entry.ext_address, entry.ext_unit()) for entry in entries
        ]
        assert all(consume_queue_ext.is_address(entry.unit().tags_code) for entry in entries)


def requests_of(case: Walked) -> list[Request]:
    requests = [log.index_request(found, tag_keys=case.has_tag_keys) for found in case.records]
    for line in damaged_lines(case):
        assert (line["tags"], line["keys"]) == (None, None)
        requests.append(
            Request(
                keys=[f"{line['topic']}#{line['properties']['UNIQ_KEY']}"],
                physical_offset=line["phyOffset"],
                store_timestamp=line["storeTimestamp"],
            )
        )
    return requests


def files_on_disk(case: Walked) -> list[bytes]:
    return [path.read_bytes() for path in sorted((case.root / "index").iterdir())]


def decode_index_file(case: Walked, data: bytes) -> IndexFile:
    return index_file.decode(
        data,
        slot_count=case.settings["maxHashSlotNum"],
        entry_count=case.settings["maxIndexNum"],
    )


def whole_border(case: Walked, files: list[IndexFile]) -> int:
    """The first file that begins with a record of its own, from which on the log is there."""
    if case.start_offset == 0:
        return 0
    for number, (before, after) in enumerate(pairwise(files), 1):
        if case.start_offset <= before.end_physical_offset < after.begin_physical_offset:
            return number
    raise AssertionError("no border between index files where the log is still there")


def rebuilt_index(case: Walked) -> Index:
    """The index built from the log, on top of those files that only a longer log could give."""
    files = [decode_index_file(case, data) for data in files_on_disk(case)]
    kept = files[: whole_border(case, files)]
    index = Index(
        slot_count=case.settings["maxHashSlotNum"],
        entry_count=case.settings["maxIndexNum"],
        files=kept,
    )
    for request in requests_of(case):
        if not kept or request.physical_offset > kept[-1].end_physical_offset:
            index.put(request)
    return index


def test_index_files_are_those_of_the_log(case: Walked) -> None:
    on_disk = files_on_disk(case)
    rebuilt = rebuilt_index(case)
    assert [file.encode() for file in rebuilt.files] == on_disk
    assert len(rebuilt.files) > whole_border(case, rebuilt.files)


def test_index_entries_of_every_surviving_record_are_in_order(case: Walked) -> None:
    files = [decode_index_file(case, data) for data in files_on_disk(case)]
    on_disk = [
        (entry.hash, entry.physical_offset)
        for file in files
        for entry in file.entries[1:]
        if entry.physical_offset >= case.start_offset
    ]
    assert on_disk == [
        (index_file.key_hash(key), request.physical_offset)
        for request in requests_of(case)
        for key in request.keys
    ]


def test_index_queries_find_what_the_java_store_finds(case: Walked) -> None:
    index = rebuilt_index(case)
    end = log.end_offset(case.root / "commitlog")
    for line in case.golden.expected_of("index"):
        hits = index.query(line["topic"], line["key"], begin_ms=0, end_ms=(1 << 63) - 1, limit=64)
        surviving = {offset for offset in hits if case.start_offset <= offset < end}
        assert sorted(surviving) == line["phyOffsets"]


def test_checkpoint_is_what_the_java_store_reports(case: Walked) -> None:
    data = (case.root / "checkpoint").read_bytes()
    decoded = checkpoint.decode(data)
    (expected,) = case.golden.expected_of("checkpoint")
    assert {
        "type": "checkpoint",
        "physicMsgTimestamp": decoded.physic_timestamp,
        "logicsMsgTimestamp": decoded.logics_timestamp,
        "indexMsgTimestamp": decoded.index_timestamp,
        "masterFlushedOffset": decoded.master_flushed_offset,
        "confirmPhyOffset": decoded.confirm_offset,
    } == expected
    assert decoded.encode() == data


def test_logics_physical_offset_is_a_dispatched_record_in_5_5_and_unset_in_5_3(
    case: Walked,
) -> None:
    decoded = checkpoint.decode((case.root / "checkpoint").read_bytes())
    if case.golden.release == "5.3.3":
        assert decoded.logics_physical_offset == 0
        return
    times = {found.physical_offset: found.store_timestamp for found in case.records}
    times |= {line["phyOffset"]: line["storeTimestamp"] for line in damaged_lines(case)}
    if decoded.logics_timestamp == 0:
        assert decoded.logics_physical_offset == 0
    else:
        assert times[decoded.logics_physical_offset] == decoded.logics_timestamp
