"""Metadata files (spec/store.md 19, spec/changes-5.5.md 3). Texts were printed by the real
classes."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.errors import CorruptionError, DiskError
from rmqstore.store.metadata import (
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    TopicConfig,
    TopicTable,
)

TOPICS_5_3 = """{
	"dataVersion":{
		"counter":0,
		"stateVersion":0,
		"timestamp":1795245035433
	},
	"topicConfigTable":{
		"same":{
			"attributes":{
				"cleanup.policy":"COMPACTION",
				"b":"c"
			},
			"order":false,
			"perm":6,
			"readQueueNums":16,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"%RETRY%g",
			"topicSysFlag":0,
			"writeQueueNums":16
		},
		"%RETRY%g":{"$ref":"$.topicConfigTable.same"},
		"A\\"é\\t/x":{
			"attributes":{},
			"order":false,
			"perm":6,
			"readQueueNums":16,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"A\\"é\\t/x",
			"topicSysFlag":0,
			"writeQueueNums":16
		}
	}
}"""
RETRY = TopicConfig("%RETRY%g", attributes={"cleanup.policy": "COMPACTION", "b": "c"})
TOPICS = TopicTable(
    {"same": RETRY, "%RETRY%g": RETRY, 'A"é\t/x': TopicConfig('A"é\t/x')},
    DataVersion(timestamp_ms=1795245035433),
)

CONSUMER_OFFSETS_5_3 = """{
	"dataVersion":{
		"counter":0,
		"stateVersion":0,
		"timestamp":1795245035499
	},
	"offsetTable":{
		"T1@G":{0:5,3:9,11:1
		},
		"T0@G":{0:5,3:9,11:1
		},
		"Empty@G":{}
	}
}"""
CONSUMER_OFFSETS_5_5 = (
    '{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1795245035499},"offsetTable":{"T1@G":{'
    '\n\t0:5,\n\t3:9,\n\t11:1\n},"T0@G":{"0":5,"3":9,"11":1},"Empty@G":{}}}'
)
CONSUMER_OFFSETS = ConsumerOffsets(
    {"T1@G": {0: 5, 3: 9, 11: 1}, "T0@G": {0: 5, 3: 9, 11: 1}, "Empty@G": {}},
    DataVersion(timestamp_ms=1795245035499),
)
SHARED_OFFSETS = '{"offsetTable":{"T0@G":{0:5,3:9},"Shared@G":{"$ref":"$.offsetTable.T0\\\\@G"}}}'

DELAY_OFFSETS_5_3 = """{
	"dataVersion":{
		"counter":7,
		"stateVersion":2,
		"timestamp":1795245035500
	},
	"offsetTable":{1:5,18:7
	}
}"""
DELAY_OFFSETS = DelayOffsets(
    {1: 5, 18: 7}, DataVersion(state_version=2, timestamp_ms=1795245035500, counter=7)
)


def config_file(root: Path, name: str) -> Path:
    (root / "config").mkdir(exist_ok=True)
    return root / "config" / name


@pytest.mark.parametrize("text", [CONSUMER_OFFSETS_5_3, CONSUMER_OFFSETS_5_5])
def test_consumer_offsets_of_both_releases_are_read(text: str) -> None:
    assert ConsumerOffsets.from_json(text) == CONSUMER_OFFSETS
    assert CONSUMER_OFFSETS.of("T1", "G")[3] == 9
    assert CONSUMER_OFFSETS.of("none", "G") == {}


def test_consumer_offsets_are_written_as_5_3_writes_them() -> None:
    assert CONSUMER_OFFSETS.to_json() == CONSUMER_OFFSETS_5_3


def test_delay_offsets_are_read_and_written_as_5_3_does() -> None:
    assert DelayOffsets.from_json(DELAY_OFFSETS_5_3) == DELAY_OFFSETS
    assert DELAY_OFFSETS.to_json() == DELAY_OFFSETS_5_3


def test_topics_are_read_with_their_references() -> None:
    assert TopicTable.from_json(TOPICS_5_3) == TOPICS


def test_topics_are_written_as_5_3_writes_them_without_references() -> None:
    start = TOPICS_5_3.index('"same":') + len('"same":')
    topic = TOPICS_5_3[start : TOPICS_5_3.index(',\n\t\t"%RETRY%g"')]
    expected = TOPICS_5_3.replace('{"$ref":"$.topicConfigTable.same"}', topic)
    assert TOPICS.to_json() == expected


def test_empty_tables_are_written_as_5_3_writes_them() -> None:
    head = (
        '{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":0\n\t},\n'
    )
    assert TopicTable().to_json() == head + '\t"topicConfigTable":{}\n}'
    assert DelayOffsets().to_json() == head + '\t"offsetTable":{}\n}'


def test_reference_with_escaped_characters_is_resolved() -> None:
    offsets = ConsumerOffsets.from_json(SHARED_OFFSETS).offsets
    assert offsets["Shared@G"] == offsets["T0@G"] == {0: 5, 3: 9}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "Expecting value"),
        ("[]", "the file holds [] (list) instead of a JSON object"),
        ('{"offsetTable":5}', "offsetTable is 5, where dict is expected"),
        ('{"offsetTable":{"T@G":{"x":5}}}', "offsetTable.T@G.x: the key is not a whole number"),
        ('{"offsetTable":{"T@G":{1:"5"}}}', "offsetTable.T@G.1 is '5', where int is expected"),
        ('{"offsetTable":{"T@G":{1:true}}}', "where int is expected"),
        ('{"offsetTable":{"T@G":{"$ref":"$.nowhere"}}}', "names no member"),
        ('{"offsetTable":{"T@G":{"$ref":".."}}}', "not a path from the root"),
        ('{"offsetTable":{"T@G":{"$ref":"$.offsetTable"}}}', "refer to themselves"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"unclosed', "Unterminated string"),
    ],
)
def test_malformed_text_is_a_value_error(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        ConsumerOffsets.from_json(text)


def test_bare_keys_inside_strings_are_left_alone() -> None:
    name = '{1:2,3:"x"}'
    table = TopicTable({name: TopicConfig(name, attributes={"a": '",4:5'})})
    assert TopicTable.from_json(table.to_json()) == table


def test_members_nobody_knows_survive_a_save() -> None:
    text = '{"later":{"x":[1,"é"]},"topicConfigTable":{"T":{"topicName":"T","fresh":true}}}'
    table = TopicTable.from_json(text)
    assert table.topics["T"].others == {"fresh": True}
    assert TopicTable.from_json(table.to_json()) == table


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.dictionaries(st.integers(-1, 2**31 - 1), st.integers(-(2**63), 2**63 - 1)),
    )
)
def test_any_offsets_read_back(offsets: dict[str, dict[int, int]]) -> None:
    table = ConsumerOffsets(offsets, DataVersion(state_version=1, timestamp_ms=2, counter=3))
    assert ConsumerOffsets.from_json(table.to_json()) == table


def test_next_version_counts_and_carries_the_time() -> None:
    assert DataVersion(timestamp_ms=5, counter=7).next(now_ms=9, state_version=2) == DataVersion(
        state_version=2, timestamp_ms=9, counter=8
    )


def test_missing_files_are_an_empty_table(tmp_path: Path) -> None:
    assert TopicTable.load(tmp_path) == TopicTable()
    assert not (tmp_path / "config").exists()


def test_saved_table_is_loaded_and_the_older_one_kept(tmp_path: Path) -> None:
    DelayOffsets({1: 1}).save(tmp_path)
    DELAY_OFFSETS.save(tmp_path)
    assert DelayOffsets.load(tmp_path) == DELAY_OFFSETS
    backup = config_file(tmp_path, "delayOffset.json.bak")
    assert DelayOffsets.from_json(backup.read_text()) == DelayOffsets({1: 1})
    assert sorted(os.listdir(tmp_path / "config")) == ["delayOffset.json", "delayOffset.json.bak"]


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff", b'{"offsetTable":{'])
def test_unreadable_file_gives_way_to_its_backup_and_is_not_deleted(
    tmp_path: Path, content: bytes | None
) -> None:
    file = config_file(tmp_path, "delayOffset.json")
    config_file(tmp_path, "delayOffset.json.bak").write_text(DELAY_OFFSETS_5_3)
    if content is not None:
        file.write_bytes(content)
    assert DelayOffsets.load(tmp_path) == DELAY_OFFSETS
    assert content is None or file.read_bytes() == content


def test_file_and_backup_unreadable_is_corruption(tmp_path: Path) -> None:
    config_file(tmp_path, "topics.json").write_text("{")
    config_file(tmp_path, "topics.json.bak").write_text("")
    with pytest.raises(CorruptionError, match=r"topics\.json: .*topics\.json\.bak: ") as caught:
        TopicTable.load(tmp_path)
    assert caught.value.path == str(tmp_path / "config" / "topics.json")


def test_save_over_a_damaged_file_keeps_it_and_the_good_backup(tmp_path: Path) -> None:
    config_file(tmp_path, "delayOffset.json.bak").write_text(DELAY_OFFSETS_5_3)
    for damage in (b"{first", b"{second"):
        config_file(tmp_path, "delayOffset.json").write_bytes(damage)
        DelayOffsets({2: 2}).save(tmp_path)
    assert config_file(tmp_path, "delayOffset.json.damaged").read_bytes() == b"{first"
    assert config_file(tmp_path, "delayOffset.json.damaged1").read_bytes() == b"{second"
    assert config_file(tmp_path, "delayOffset.json.bak").read_text() == DELAY_OFFSETS_5_3
    assert DelayOffsets.load(tmp_path) == DelayOffsets({2: 2})


class Stopped(Exception):
    """Stands for the death of the process at a system call."""


@pytest.mark.parametrize("stop_at", range(8))
def test_death_at_any_step_of_a_save_leaves_a_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    DelayOffsets({1: 1}).save(tmp_path)
    DelayOffsets({1: 2}).save(tmp_path)
    calls = 0

    def counting(call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls > stop_at:
                raise Stopped
            return call(*arguments, **options)

        return counted

    with monkeypatch.context() as patch:
        for name in ("fsync", "replace", "rename"):
            patch.setattr(os, name, counting(getattr(os, name)))
        try:
            DelayOffsets({1: 3}).save(tmp_path)
        except Stopped:
            assert DelayOffsets.load(tmp_path).offsets in ({1: 2}, {1: 3})
        else:
            assert calls == 6, "every step was stopped at"
            assert DelayOffsets.load(tmp_path) == DelayOffsets({1: 3})


def test_full_disk_is_a_disk_error_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DELAY_OFFSETS.save(tmp_path)

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        with pytest.raises(DiskError, match=r"cannot write .*delayOffset\.json") as caught:
            DelayOffsets({1: 9}).save(tmp_path)
    assert caught.value.errno == errno.ENOSPC
    assert DelayOffsets.load(tmp_path) == DELAY_OFFSETS
    assert os.listdir(tmp_path / "config") == ["delayOffset.json"]


def test_directory_in_the_place_of_a_file_is_a_disk_error(tmp_path: Path) -> None:
    config_file(tmp_path, "topics.json").mkdir()
    with pytest.raises(DiskError, match="cannot read"):
        TopicTable.load(tmp_path)
