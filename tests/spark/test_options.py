"""Options are checked all at once, in the words of Spark's Kafka source."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from rmqstore.errors import ArgumentError
from rmqstore.spark.options import LATEST, Options
from rmqstore.spark.read.queue_ranges import EVERY_QUEUE, choice, range_of
from rmqstore.spark.read.ranges import QueueRange

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def parse(**options: str) -> Options:
    return Options.parse({"path": "/store", **options})


def parse_streaming(**options: str) -> Options:
    return Options.parse({"path": "/store", **options}, streaming=True)


def refused(**options: str) -> str:
    with pytest.raises(ArgumentError) as caught:
        parse(**options)
    return str(caught.value)


def refused_streaming(**options: str) -> str:
    with pytest.raises(ArgumentError) as caught:
        parse_streaming(**options)
    return str(caught.value)


def test_a_path_alone_reads_everything() -> None:
    assert parse() == Options(paths=("/store",))
    assert not parse().by_topic


def test_the_case_of_names_is_of_no_matter() -> None:
    options = Options.parse({"PATH": "/a", "MaxPartitionBytes": "1k", "failondataloss": "FALSE"})
    assert options == Options(paths=("/a",), max_partition_bytes=1024, fail_on_data_loss=False)


def test_paths_come_as_json_and_each_once() -> None:
    assert Options.parse({"paths": '["/a", "/b", "/a"]'}).paths == ("/a", "/b")


@pytest.mark.parametrize("paths", ["/a", "[1]", '{"a": "b"}'])
def test_paths_in_another_form_are_refused(paths: str) -> None:
    with pytest.raises(ArgumentError, match=r"paths: .* is not a JSON list of paths"):
        Options.parse({"paths": paths})


def test_no_path_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"path: not given; give load"):
        Options.parse({})


def test_options_are_pickled_whole() -> None:
    options = parse(
        assign='{"orders": [1, 0]}', startingOffsets='{"orders": {"0": 5}}', tags="a || b"
    )
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("pth", "path"),
        ("topics", "topic"),
        ("startingOffset", "startingOffsets"),
        ("STARTINGTIMESTAMPS", "startingTimestamp"),
        ("minPartition", "minPartitions"),
        ("failOnDataLost", "failOnDataLoss"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("checkCRCs", "checkCrc"),
        ("subscribePatterns", "subscribePattern"),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest_right_one(given: str, nearest: str) -> None:
    assert f"{given}: unknown option; did you mean {nearest}?" in refused(**{given: "1"})


def test_an_option_unlike_any_is_answered_with_all() -> None:
    answer = refused(zzzzzz="1")
    assert "zzzzzz: unknown option; the options are path, paths, storePathCommitLog" in answer


@pytest.mark.parametrize(
    "name",
    ["kafka.bootstrap.servers", "kafkaConsumer.pollTimeoutMs", "groupIdPrefix", "nameServer"],
)
def test_an_option_of_a_client_is_answered_with_what_to_use_instead(name: str) -> None:
    answer = refused(**{name: "host:9092"})
    assert f"{name}: unknown option; a store is read from its files" in answer
    assert "load(...) the store's directory" in answer
    assert "subscribe" in answer


@pytest.mark.parametrize(
    "name", ["minOffsetsPerTrigger", "minBytesPerTrigger", "maxTriggerDelay", "mintriggerdelay"]
)
def test_an_option_is_never_answered_with_its_reverse(name: str) -> None:
    answer = refused_streaming(**{name: "100"})
    assert "did you mean max" not in answer


def test_least_sizes_of_batches_are_answered_with_the_trigger() -> None:
    for name in ("minOffsetsPerTrigger", "maxTriggerDelay"):
        assert "give trigger(processingTime=...) a longer time" in refused_streaming(**{name: "1"})


def test_everything_wrong_is_told_at_once() -> None:
    answer = refused(
        tpic="a",
        failOnDataLoss="maybe",
        minPartitions="0",
        maxPartitionBytes="-1",
        upTo="end",
        onCorrupt="ignore",
        subscribePattern="(",
        startingTimestamp="yesterday",
        columns="bdy",
    )
    assert answer.startswith("9 wrong options:")
    for part in (
        "did you mean topic?",
        "failOnDataLoss: 'maybe' is not true or false; correct it, or leave it out for the default",
        "minPartitions: '0' is not a whole number above 0;",
        "maxPartitionBytes: '-1' is not a size such as 1048576, 128m or 64MiB;",
        "upTo: 'end' is not confirm or max;",
        "onCorrupt: 'ignore' is not fail or skip or row;",
        "subscribePattern: '(' is not a regular expression",
        "startingTimestamp: 'yesterday' is not milliseconds since 1970 or a time such as",
        "columns: there is no column bdy; did you mean body?",
    ):
        assert part in answer


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("128m", 128 << 20),
        ("64MiB", 64 << 20),
        ("64 mb", 64 << 20),
        ("1G", 1 << 30),
        ("2t", 2 << 40),
        ("5k", 5120),
        ("77b", 77),
        ("1", 1),
    ],
)
def test_sizes_are_digits_with_or_without_a_unit(given: str, value: int) -> None:
    assert parse(maxPartitionBytes=given).max_partition_bytes == value


@pytest.mark.parametrize("given", ["", "m", "1.5m", "1x", "0", "1 kilobyte", "9999999999t"])
def test_other_sizes_are_refused(given: str) -> None:
    assert "is not a size" in refused(maxPartitionBytes=given)


def test_a_batch_stays_below_what_its_columns_can_hold() -> None:
    assert (
        "batchBytes: '1025m' is not a size such as 1048576, 128m or 64MiB, up to 1024m"
        in refused(batchBytes="1025m")
    )


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("-5", -5),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123", 1_700_000_000_123),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times_are_milliseconds_or_iso_8601_in_utc(given: str, milliseconds: int) -> None:
    assert parse(startingTimestamp=given).starting_ms == milliseconds


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ("1700000000", "seconds"),
        ("1700000000123456", "microseconds"),
        ("1700000000123456789", "nanoseconds"),
    ],
)
@pytest.mark.parametrize("name", ["startingTimestamp", "endingTimestamp"])
def test_a_time_in_another_unit_is_refused_with_its_milliseconds(
    name: str, given: str, unit: str
) -> None:
    answer = refused(**{name: given})
    assert f"'{given}' is not in milliseconds but, it seems, in {unit}: give 1700000000" in answer
    by_queue = f"{name.removesuffix('Timestamp')}OffsetsByTimestamp"
    answer = refused(**{by_queue: json.dumps({"orders": {"0": int(given)}})})
    assert f"it seems, in {unit}: give 1700000000" in answer


@pytest.mark.parametrize("given", [0, 1, 86_400_000, 946_684_800_000, 4_102_444_800_000, 2**63 - 1])
def test_other_numbers_are_times_in_milliseconds(given: int) -> None:
    assert parse(startingTimestamp=str(given)).starting_ms == given


# ---- topics, queues, tags ----


@pytest.mark.parametrize("name", ["topic", "subscribe"])
def test_topics_are_a_list(name: str) -> None:
    options = parse(**{name: "orders, payments,orders"})
    assert options.topics == ("orders", "payments")
    assert options.by_topic


@pytest.mark.parametrize("given", ["", "a,,b", ","])
def test_an_empty_topic_is_refused(given: str) -> None:
    assert "is not topics separated by commas" in refused(topic=given)


def test_ways_to_choose_topics_exclude_each_other() -> None:
    answer = refused(topic="a", subscribePattern="b", assign='{"c": [0]}')
    assert "topic and subscribePattern and assign exclude each other" in answer


@pytest.mark.parametrize("given", ["orders", "[0]", '{"a": 0}', '{"a": [-1]}', '{"a": [true]}'])
def test_an_assignment_in_another_form_is_refused(given: str) -> None:
    assert 'is not JSON of queue ids by topic such as {"orders": [0, 1]}' in refused(assign=given)


@pytest.mark.parametrize(
    ("given", "tags"),
    [("a || b", ("a", "b")), ("a,b", ("a", "b")), ("a", ("a",)), ("*", None), ("a||a", ("a",))],
)
@pytest.mark.parametrize("name", ["tags", "subExpression"])
def test_tags_are_any_of_some(name: str, given: str, tags: tuple[str, ...] | None) -> None:
    options = parse(**{name: given})
    assert options.tags == tags
    assert not options.by_topic


@pytest.mark.parametrize("given", ["", "a || ", "* || a"])
def test_other_tags_are_refused(given: str) -> None:
    assert "is not tags such as" in refused(tags=given)


# ---- where to start and to end ----


def test_a_timestamp_goes_before_timestamps_by_queue_and_these_before_offsets() -> None:
    given = {
        "startingOffsets": '{"a": {"0": 7}}',
        "startingOffsetsByTimestamp": '{"a": {"0": 1000}}',
        "startingTimestamp": "2000",
        "endingOffsets": '{"a": {"0": 9}}',
        "endingOffsetsByTimestamp": '{"a": {"0": 3000}}',
        "endingTimestamp": "4000",
    }
    options = parse(**given)
    assert (options.starting_ms, options.ending_ms) == (2000, 4000)
    assert options.starting_ms_by_queue is options.ending_ms_by_queue is None
    assert (options.starting_offsets, options.ending_offsets) == ("earliest", "latest")
    assert not options.by_topic

    del given["startingTimestamp"], given["endingTimestamp"]
    options = parse(**given)
    assert options.starting_ms_by_queue == {"a": {0: 1000}}
    assert options.ending_ms_by_queue == {"a": {0: 3000}}
    assert (options.starting_offsets, options.ending_offsets) == ("earliest", "latest")

    del given["startingOffsetsByTimestamp"], given["endingOffsetsByTimestamp"]
    options = parse(**given)
    assert options.starting_offsets == {"a": {0: 7}}
    assert options.ending_offsets == {"a": {0: 9}}


@pytest.mark.parametrize("given", ["latest", " LATEST ", '{"a": {"0": -1}}'])
def test_a_batch_cannot_start_at_the_latest(given: str) -> None:
    assert "is not for the start of a batch query; give earliest" in refused(startingOffsets=given)


def test_a_stream_starts_at_the_latest_unless_told_otherwise() -> None:
    assert parse_streaming().starting_offsets == "latest"
    given = parse_streaming(startingOffsets='{"a": {"0": -1}}')
    assert given.starting_offsets == {"a": {0: LATEST}}


@pytest.mark.parametrize("given", ["earliest", '{"a": {"0": -2}}'])
def test_no_query_ends_at_the_earliest(given: str) -> None:
    assert "is not for the end of a query; give latest" in refused(endingOffsets=given)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    answer = refused_streaming(**{name: "{}"})
    assert f"{name}: a streaming query has no end; leave it out" in answer


@pytest.mark.parametrize(
    "given", ["first", "[]", '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"0": -3}}', '{"a": {"0": 1.5}}']
)
def test_offsets_in_another_form_are_refused(given: str) -> None:
    assert "is not earliest, latest or JSON by topic and queue id" in refused(startingOffsets=given)


def test_a_start_behind_the_end_is_refused() -> None:
    assert "startingTimestamp: 2000 is after endingTimestamp 1000" in refused(
        startingTimestamp="2000", endingTimestamp="1000"
    )


@pytest.mark.parametrize(
    ("option", "given"),
    [
        (
            "startingOffsets",
            {"startingOffsets": '{"a": {"0": 7}}', "endingOffsets": '{"a": {"0": 5}}'},
        ),
        (
            "startingOffsetsByTimestamp",
            {
                "startingOffsetsByTimestamp": '{"a": {"0": 7}}',
                "endingOffsetsByTimestamp": '{"a": {"0": 5}}',
            },
        ),
        (
            "startingOffsetsByTimestamp",
            {"startingOffsetsByTimestamp": '{"a": {"0": 7}}', "endingTimestamp": "5"},
        ),
        (
            "startingTimestamp",
            {"startingTimestamp": "7", "endingOffsetsByTimestamp": '{"a": {"0": 5}}'},
        ),
    ],
)
def test_a_start_behind_the_end_of_a_queue_is_refused(option: str, given: dict[str, str]) -> None:
    assert f"{option}: 7 is after the end of a/0, 5; give an earlier one" in refused(**given)


def test_a_start_at_the_end_of_a_queue_or_beside_it_is_taken() -> None:
    parse(startingOffsets='{"a": {"0": 5}}', endingOffsets='{"a": {"0": 5, "1": 2}}')
    parse(startingOffsets='{"a": {"0": 5, "1": -2}}', endingOffsets='{"a": {"0": -1, "1": 0}}')


@pytest.mark.parametrize(
    "chosen",
    [{"topic": "b"}, {"subscribePattern": "b.*"}, {"assign": '{"a": [1]}'}],
)
def test_a_bound_for_a_queue_that_is_not_read_is_refused(chosen: dict[str, str]) -> None:
    answer = refused(startingOffsets='{"a": {"0": 1}}', **chosen)
    assert "startingOffsets: a/0 is not read; leave it out" in answer


@pytest.mark.parametrize("name", ["maxBytesPerTrigger", "maxOffsetsPerTrigger"])
def test_a_batch_has_no_limits_of_a_trigger(name: str) -> None:
    assert f"{name}: a batch query has no triggers; leave it out" in refused(**{name: "10"})
    parse_streaming(**{name: "10"})


def test_limits_of_a_trigger_exclude_each_other() -> None:
    answer = refused_streaming(maxBytesPerTrigger="1m", maxOffsetsPerTrigger="10")
    assert "maxBytesPerTrigger and maxOffsetsPerTrigger exclude each other" in answer


# ---- what is chosen ----


@pytest.mark.parametrize(
    ("options", "topic", "ranges"),
    [
        ({"topic": "a"}, "a", [(EVERY_QUEUE, INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX)]),
        ({"topic": "a"}, "b", None),
        ({"subscribePattern": "a.c"}, "abc", [(-1, INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX)]),
        ({"subscribePattern": "a.c"}, "abcd", None),
        (
            {"assign": '{"a": [2, 0]}', "startingOffsets": '{"a": {"0": 5}}'},
            "a",
            [
                (2, INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX),
                (0, 5, INT64_MAX, INT64_MIN, INT64_MAX),
            ],
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"a": {"1": 100}}',
                "endingOffsets": '{"a": {"3": 9, "1": -1}}',
                "endingTimestamp": "500",
            },
            "a",
            [
                (1, INT64_MIN, INT64_MAX, 100, 500),
                (-1, INT64_MIN, INT64_MAX, INT64_MIN, 500),
            ],
        ),
        (
            {"startingOffsets": '{"a": {"0": -2, "1": 3}}', "endingOffsets": '{"a": {"1": 9}}'},
            "a",
            [
                (0, INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX),
                (1, 3, 9, INT64_MIN, INT64_MAX),
                (-1, INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX),
            ],
        ),
    ],
)
def test_the_ranges_of_a_topic_follow_from_all_options(
    options: dict[str, str], topic: str, ranges: list[Any] | None
) -> None:
    found = choice(parse(**options))(topic.encode())
    assert (found is None) == (ranges is None)
    assert sorted(found or ()) == sorted(ranges or ())


def test_a_queue_that_is_not_named_has_the_range_of_all_others() -> None:
    options = parse(topic="a", endingOffsets=json.dumps({"a": {"0": 4}}))
    assert range_of(options, "a", 0) == QueueRange(0, INT64_MIN, 4, INT64_MIN, INT64_MAX)
    assert range_of(options, "a", 7) == QueueRange(7, INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX)
    assert range_of(parse(assign='{"a": [1]}'), "a", 7) is None
