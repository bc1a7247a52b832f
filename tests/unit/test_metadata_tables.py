"""Groups, request modes and changing offsets (spec/broker.md 2, 4, 5). The files of
tests/golden/metadata were written by brokers of 5.3.3 and 5.5.0."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from rmqstore.errors import CorruptionError
from rmqstore.store.metadata import (
    FORBIDDEN_READ,
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    FilterTable,
    GroupConfig,
    GroupTable,
    LightConsumerOffsets,
    OffsetTable,
    RequestMode,
    RequestModes,
    TopicConfig,
    TopicTable,
)
from rmqstore.store.metadata.orders import OrderTable
from rmqstore.store.metadata.table import Table
from tests.support.effort import rounds

GOLDEN = Path(__file__).parent.parent / "golden" / "metadata"
RELEASES = ["5.3.3", "5.5.0"]
SEED = 20261128


def golden(release: str, name: str) -> str:
    return (GOLDEN / release / name).read_text()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("table", [FilterTable, GroupTable, RequestModes, TopicTable])
def test_files_of_java_brokers_are_read_and_written_again_byte_for_byte(
    release: str, table: type[Table]
) -> None:
    text = golden(release, table.FILE_NAME)
    assert table.from_json(text).to_json() == text


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", ["consumerOffset.json", "lmqConsumerOffset.json"])
def test_consumer_offsets_of_java_brokers_survive_a_save_whole(release: str, name: str) -> None:
    read = ConsumerOffsets.from_json(golden(release, name))
    assert ConsumerOffsets.from_json(read.to_json()) == read
    assert ConsumerOffsets.from_json(read.to_body().decode()) == read
    if name.startswith("lmq"):
        assert read.of("GroupsA", "ga") == {0: 2, 1: 1, 2: 3, 3: 4}
        assert read.others["lmqOffsetTable"] == {"%LMQ%one@%LMQ%lg": 1}


@pytest.mark.parametrize("release", RELEASES)
def test_offsets_of_light_groups_are_read_and_written_as_java_has_them(release: str) -> None:
    text = golden(release, LightConsumerOffsets.FILE_NAME)
    read = LightConsumerOffsets.from_json(text)
    assert read.of("%LMQ%one", "%LMQ%lg") == {0: 1}
    assert read.of("GroupsA", "ga") == {0: 2, 1: 1, 2: 3, 3: 4}
    assert LightConsumerOffsets.from_json(read.to_json()) == read
    if release == "5.3.3":
        assert read.to_json() == text

    # As a slave takes them, from a master of either kind.
    table = OffsetTable(LightConsumerOffsets())
    taken = ConsumerOffsets.from_json(read.to_body().decode())
    table.replace(taken)
    assert table.is_at(taken)
    assert table.snapshot() == read


def test_light_group_with_offsets_of_several_queues_keeps_them_all() -> None:
    offsets = {"T@%LMQ%g": {0: 1, 2: 3}, "U@%LMQ%g": {0: 4}}
    text = LightConsumerOffsets(offsets).to_json()
    assert LightConsumerOffsets.from_json(text).offsets == offsets
    assert '"lmqOffsetTable":{\n\t\t"U@%LMQ%g":4' in text


@pytest.mark.parametrize("release", RELEASES)
def test_delay_offsets_of_java_brokers_survive_a_save_whole(release: str) -> None:
    read = DelayOffsets.from_json(golden(release, "delayOffset.json"))
    assert read.offsets
    assert DelayOffsets.from_json(read.to_json()) == read


@pytest.mark.parametrize("release", RELEASES)
def test_groups_of_java_brokers_have_their_policies_and_forbidden_topics(release: str) -> None:
    table = GroupTable.from_json(golden(release, "subscriptionGroup.json"))
    assert table.forbidden == {
        "gb": {"GroupsFifo": FORBIDDEN_READ},
        "gd": {"GroupsSql": FORBIDDEN_READ},
    }
    policies = {name: group.retry_policy["type"] for name, group in table.groups.items()}
    assert policies["gc"] == "EXPONENTIAL" or "EXPONENTIAL" in policies.values()
    assert table.groups["TOOLS_CONSUMER"] == GroupConfig("TOOLS_CONSUMER")
    assert RequestModes.from_json(golden(release, "messageRequestMode.json")).modes == {
        "GroupsA": {"ga": RequestMode("GroupsA", "ga", "POP", 2)}
    }


@pytest.mark.parametrize("release", RELEASES)
def test_orderly_pops_of_java_brokers_are_read_and_written_as_5_3_does(release: str) -> None:
    text = golden(release, OrderTable.FILE_NAME)
    table = OrderTable.from_json(text)
    first, second = (table.states["PopOrder@go"][queue] for queue in (0, 1))
    assert (first.offsets, first.acknowledged, first.attempt_id) == ((0, 1, 2), 1, "attempt-1")
    assert (first.invisible_ms, first.counts, first.visible_ms) == (60_000, None, None)
    assert (second.offsets, list(second.visible_ms or {})) == ((0, 1), [1])
    assert OrderTable.from_json(table.to_json()) == table
    assert OrderTable.from_json(table.to_body().decode()) == table
    if release == "5.3.3":
        assert table.to_json() == text


def test_orderly_pop_with_every_member_is_written_as_rocketmq_does() -> None:
    text = (
        '{\n\t"table":{\n\t\t"T@g":{3:{\n\t\t\t\t"a":"x",\n\t\t\t\t"cm":-9223372036854775807,'
        '\n\t\t\t\t"i":5000,\n\t\t\t\t"l":9,\n\t\t\t\t"o":[],\n\t\t\t\t"oc":{0:1,1:1\n\t\t\t\t},'
        '\n\t\t\t\t"ot":{},\n\t\t\t\t"popTime":7\n\t\t\t}\n\t\t}\n\t}\n}'
    )
    assert OrderTable.from_json(text).to_json() == text


@pytest.mark.parametrize("release", RELEASES)
def test_damaged_file_of_orderly_pops_is_read_whole_or_refused(
    release: str, tmp_path: Path
) -> None:
    text = golden(release, OrderTable.FILE_NAME)
    rng, refused = Random(SEED), 0
    changed = [text[:end] for end in range(1, len(text))]
    for _ in range(rounds(300, 20_000)):
        at = rng.randrange(len(text))
        changed.append(text[:at] + rng.choice('"{}[]:,-0x9\\') + text[at + 1 :])
    for each in changed:
        try:
            table = OrderTable.from_json(each)
        except ValueError:
            refused += 1
            continue
        assert OrderTable.from_json(table.to_json()) == table
    assert refused >= len(text) - 2

    # A file that was cut gives way to the one before it.
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / OrderTable.FILE_NAME).write_text(text[: len(text) // 2])
    (tmp_path / "config" / f"{OrderTable.FILE_NAME}.bak").write_text(text)
    assert OrderTable.load(tmp_path) == OrderTable.from_json(text)


def test_unknown_members_of_a_group_survive_a_save() -> None:
    text = '{"subscriptionGroupTable":{"g":{"groupName":"g","liteSubClientQuota":2000}}}'
    table = GroupTable.from_json(text)
    assert table.groups["g"].others == {"liteSubClientQuota": 2000}
    assert GroupTable.from_json(table.to_json()) == table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"subscriptionGroupTable":{"g":{"consumeEnable":1}}}', r"g\.consumeEnable is 1"),
        ('{"subscriptionGroupTable":{"g":[]}}', r"subscriptionGroupTable\.g holds \[\]"),
        ('{"forbiddenTable":{"g":{"T":"x"}}}', r"forbiddenTable\.g\.T is 'x'"),
    ],
)
def test_wrong_member_of_a_group_table_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GroupTable.from_json(text)


def test_versions_are_ordered_by_state_then_counter_then_time() -> None:
    versions = [
        DataVersion(state_version=1, timestamp_ms=5),
        DataVersion(timestamp_ms=9, counter=9),
        DataVersion(timestamp_ms=8, counter=9),
        DataVersion(state_version=1),
    ]
    assert sorted(versions, key=lambda each: each.order) == [
        DataVersion(timestamp_ms=8, counter=9),
        DataVersion(timestamp_ms=9, counter=9),
        DataVersion(state_version=1),
        DataVersion(state_version=1, timestamp_ms=5),
    ]


def test_offset_table_takes_a_version_step_every_500_commits() -> None:
    table = OffsetTable(ConsumerOffsets(), commits_per_version=500)
    table.lead(7)
    for number in range(499):
        table.commit("T@G", 0, number, now_ms=40)
    assert table.version == DataVersion()
    table.commit("T@G", 1, 3, now_ms=50)
    assert table.version == DataVersion(state_version=7, timestamp_ms=50, counter=1)
    assert table.snapshot().offsets == {"T@G": {0: 498, 1: 3}}


def test_snapshot_of_offsets_does_not_change_with_the_table() -> None:
    table = OffsetTable(ConsumerOffsets({"T@G": {0: 1}}))
    before = table.snapshot()
    table.commit("T@G", 0, 2, now_ms=1)
    assert before.offsets == {"T@G": {0: 1}}
    assert table.snapshot() == ConsumerOffsets(
        {"T@G": {0: 2}}, DataVersion(timestamp_ms=1, counter=1)
    )
    assert table.snapshot() is table.snapshot()


def test_removed_offsets_are_gone_and_step_the_version() -> None:
    table = OffsetTable(ConsumerOffsets({"T@G": {0: 1}, "U@G": {0: 1}}), commits_per_version=500)
    table.remove(("T@G",), now_ms=9)
    assert table.keys() == ("U@G",)
    assert table.version == DataVersion(timestamp_ms=9, counter=1)


def test_changed_topic_is_written_with_its_new_values() -> None:
    table = TopicTable({"T": TopicConfig("T"), "U": TopicConfig("U")})
    assert TopicTable.from_json(table.to_json()) == table
    changed = table.with_topic(replace(table.topics["T"], perm=4), now_ms=5)
    assert TopicTable.from_json(changed.to_json()) == changed
    assert TopicTable.from_json(changed.to_body().decode()) == changed


def test_own_file_is_kept_as_the_backup_without_reading_it(tmp_path: Path) -> None:
    first, second = (TopicTable({name: TopicConfig(name)}) for name in "TU")
    first.save(tmp_path)
    second.save(tmp_path, is_file_whole=True)
    assert TopicTable.load(tmp_path) == second
    (tmp_path / "config" / "topics.json").unlink()
    assert TopicTable.load(tmp_path) == first


@pytest.mark.parametrize(
    "table",
    [
        ConsumerOffsets({"T@g": {0: 7}}),
        DelayOffsets({1: 7}),
        GroupTable({"g": GroupConfig("g")}),
        RequestModes({"T": {"g": RequestMode("T", "g")}}),
        TopicTable({"T": TopicConfig("T")}),
    ],
    ids=lambda table: table.FILE_NAME,
)
def test_a_file_cut_at_any_byte_gives_way_to_its_backup_or_is_refused(
    table: Table, tmp_path: Path
) -> None:
    kind, text = type(table), table.to_json().encode()
    (tmp_path / "config").mkdir()
    file = tmp_path / "config" / table.FILE_NAME
    backup = file.with_name(f"{file.name}.bak")
    for size in range(len(text)):
        file.write_bytes(text[:size])
        with pytest.raises(CorruptionError, match=table.FILE_NAME):
            kind.load(tmp_path)
    backup.write_bytes(text)
    for size in range(0, len(text), 16):
        file.write_bytes(text[:size])
        assert kind.load(tmp_path) == table
