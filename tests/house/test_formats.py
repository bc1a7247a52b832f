"""The tables of docs/formats.md and docs/protocols.md, and the numbers of docs/replication.md, are
those of the headers of the core and of the configuration."""

from __future__ import annotations

import inspect
import re
import struct
from pathlib import PurePosixPath

import pytest

from rmqstore import StoreConfig
from rmqstore.config.options import options_of
from rmqstore.epochs import parse_epochs
from rmqstore.index_layout import INDEX_ENTRY, INDEX_HEADER
from rmqstore.queue_units import BATCH_UNIT, EXTENSION_UNIT, UNIT
from rmqstore.replication import EpochEntry, HaOptions, Quorum, ReplicatedStore
from tests.house import tree

FORMATS = tree.text_of("docs/formats.md") + tree.text_of("docs/protocols.md")
HEADERS = [name for name in tree.files() if re.fullmatch(r"csrc/(?:\w+/)?\w+\.h", name)]
SECTION = re.compile(r"^##+ (.+)$", re.MULTILINE)
DEFINED = re.compile(r"^#define (RMQ_\w+) (0x[0-9A-Fa-f]+|\d+)u?(?: /\*.*)?$", re.MULTILINE)
FLAG = re.compile(r"^    (RMQ_FLAG_\w+) = (0x[0-9A-Fa-f]+),$", re.MULTILINE)
# A line of a layout in a header: maybe an offset, a size, and a field after two blanks or more.
LAYOUT = re.compile(r"^ \*   (?:(\d+) +| *)(\d+|[BSn]|1\|2) {2,}\S", re.MULTILINE)


def _sections() -> dict[str, str]:
    parts = SECTION.split(FORMATS)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _tables(text: str) -> list[list[list[str]]]:
    """Return the rows of each table, header and rule first."""
    blocks = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        for block in blocks
    ]


def _layout_of_document(section: str) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for table in _tables(_sections()[section]):
        columns = table[0]
        if "size" not in columns:
            continue
        size = columns.index("size")
        rows += [(row[0] if size else "", row[size].replace(" or ", "|")) for row in table[2:]]
    return rows


def _layout_of_header(name: str) -> list[tuple[str, str]]:
    return [(at or "", size) for at, size in LAYOUT.findall(tree.text_of(name))]


LAID_OUT = {
    section: found[1]
    for section in _sections()
    if (found := re.search(r"`(csrc/[\w/]+\.h)`", section))
}


@pytest.mark.parametrize("section", [name for name in LAID_OUT if "Properties" not in name])
def test_layout_is_that_of_the_header(section: str) -> None:
    documented = _layout_of_document(section)
    assert documented
    assert documented == _layout_of_header(LAID_OUT[section])


def test_every_header_with_a_layout_has_a_section() -> None:
    laid_out = {name for name in HEADERS if len(_layout_of_header(name)) > 1}
    assert laid_out <= set(LAID_OUT.values())


def test_fixed_layouts_have_no_gap_and_no_overlap() -> None:
    for section in ("Consume queue", "Batch consume queue", "Checkpoint"):
        name = next(each for each in LAID_OUT if each.startswith(f"{section} ("))
        end = 0
        for at, size in _layout_of_document(name):
            assert int(at) == end, name
            end += int(size)


def _defined() -> dict[str, int]:
    return {
        name: int(value, 0)
        for header in HEADERS
        for name, value in DEFINED.findall(tree.text_of(header))
    }


def test_constants_are_those_of_the_headers() -> None:
    defined = _defined()
    (table,) = _tables(_sections()["Constants"])
    documented = {name.strip("`"): int(value, 0) for name, value in table[2:]}
    assert documented == {name: defined.get(name) for name in documented}


@pytest.mark.parametrize("name", ["docs/formats.md", "docs/durability.md"])
def test_prose_counts_log_files_as_the_headers_do(name: str) -> None:
    text = " ".join(tree.text_of(name).split())
    spans = re.findall(r"(?:spans at most|span more than|also after) (\d+) log files", text)
    moves = re.findall(r"at the latest (?:every )?(\d+) log files", text)
    assert spans
    assert moves
    assert {int(count) for count in spans} == {_defined()["RMQ_INDEX_LOG_FILES_MAX"]}
    assert {int(count) for count in moves} == {_defined()["RMQ_CHECKPOINT_LOG_FILES_MAX"]}


def test_sys_flags_are_those_of_the_header() -> None:
    defined = {
        name: int(value, 0) for name, value in FLAG.findall(tree.text_of("csrc/format/record.h"))
    }
    table = _tables(_sections()["Record (`csrc/format/record.h`)"])[1]
    documented = {name.strip("`"): int(bits, 0) for bits, name, _ in table[2:]}
    values = {"RMQ_FLAG_PREPARED", "RMQ_FLAG_COMMIT", "RMQ_FLAG_ROLLBACK"}
    assert documented == {name: bits for name, bits in defined.items() if name not in values}


def test_file_sizes_are_the_defaults_of_the_configuration() -> None:
    defaults = {about.key: about.default for about in StoreConfig.options().values()}
    (table,) = _tables(_sections()["File sizes and names"])
    documented = {key.strip("`"): int(default) for key, default, _ in table[2:]}
    assert documented == {key: defaults.get(key) for key in documented}


def test_files_named_in_code_are_in_the_table_of_the_directory() -> None:
    written = {
        name
        for source in ("csrc/store/store_open.c", "csrc/index/queue_table.c", "csrc/log/recover.c")
        for name in re.findall(
            r'"(?:%s/)?(commitlog|consumequeue|consumequeue_ext|batchconsumequeue|index|checkpoint'
            r'|abort|lock|cut)[/"]',
            tree.text_of(source),
        )
    }
    (table,) = _tables(_sections()["The directory"])
    documented = {PurePosixPath(row[0].strip("`")).parts[0] for row in table[2:]}
    assert len(written) >= 7
    assert written <= documented


def test_epoch_file_of_the_document_is_one() -> None:
    found = re.search(r"^```text\n(.*?)^```$", _sections()["Epoch file"], re.MULTILINE | re.DOTALL)
    assert found is not None
    lines = [line.split()[0] for line in found[1].splitlines()]
    assert parse_epochs("\n".join(lines)) == (EpochEntry(1, 100), EpochEntry(2, 300))


def test_frames_are_bounded_as_the_document_says() -> None:
    limits = re.findall(r"A frame has at most (\d+) MiB", tree.text_of("docs/protocols.md"))
    assert [int(each) << 20 for each in limits] == [_defined()["RMQ_HA_FRAME_SIZE_MAX"]]


def test_numbers_of_replication_are_those_of_the_code() -> None:
    text = " ".join(tree.text_of("docs/replication.md").split())
    defined, options = _defined(), HaOptions()
    connections = inspect.signature(ReplicatedStore).parameters["connections_max"].default
    for said in (
        f"costs its master {defined['RMQ_PUMP_ACKS_SIZE'] >> 10} KiB while it streams",
        f"handshake (the epoch list) and {options.window_bytes >> 20} MiB while it catches up",
        f"buffers {defined['RMQ_PUMP_RECEIVE_SIZE'] >> 10} KiB of received bytes",
        f"lacks even the last {options.overlap_bytes >> 10} KiB of it",
        f"silent for more than `haHousekeepingInterval` ({options.housekeeping_ms // 1000} s)",
        f"every `reconnect_ms` ({options.reconnect_ms // 1000} s)",
        f"(`slaveTimeout`, {Quorum().timeout_ms // 1000} s;",
        f"At most `connections_max` ({connections}) are open",
    ):
        assert said in text


def test_settings_of_the_quorum_are_named_with_their_keys() -> None:
    text = " ".join(tree.text_of("docs/replication.md").split())
    named = re.findall(
        r"`(\w+)` \(`(\w+)`[,)]", text.partition("`Quorum` has")[2].partition("|")[0]
    )
    assert dict(named) == {name: about.key for name, about in options_of(Quorum).items()}


@pytest.mark.parametrize(
    ("header", "structs"),
    [
        ("csrc/index/consume_queue.h", [UNIT]),
        ("csrc/index/batch_consume_queue.h", [BATCH_UNIT]),
        ("csrc/index/consume_queue_ext.h", [EXTENSION_UNIT]),
        ("csrc/index/index_file.h", [INDEX_HEADER, INDEX_ENTRY]),
    ],
)
def test_structs_in_python_have_the_layout_of_the_core(
    header: str, structs: list[struct.Struct]
) -> None:
    layout = []
    for each in structs:
        at = 0
        for code in each.format.removeprefix(">"):
            size = struct.calcsize(f">{code}")
            layout.append((str(at), str(size)))
            at += size
    assert layout == [row for row in _layout_of_header(header) if row[1] != "n"]
