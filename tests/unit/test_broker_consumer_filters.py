"""The expressions of consumer groups, and the bits that stand for them.

Behaviour of upstream's ConsumerFilterManagerTest and BloomFilterTest; a docstring names the
methods.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.broker.metadata.consumer_filters import ConsumerFilters
from rmqstore.filters import Bloom
from rmqstore.filters.bloom import murmur3_low
from rmqstore.remoting.bodies.clients import SubscriptionData
from rmqstore.store.metadata import FilterData, FilterTable
from tests.unit.test_metadata_tables import RELEASES, golden

NOW_MS = 1_000_000
DAY_MS = 24 * 60 * 60 * 1000


def subscription(expression: str, *, version: int = 5, topic: str = "T") -> SubscriptionData:
    return SubscriptionData(
        topic=topic, expression=expression, version=version, expression_type="SQL92"
    )


def filters(table: FilterTable | None = None, *, now_ms: int = NOW_MS) -> ConsumerFilters:
    return ConsumerFilters(table or FilterTable(), Bloom(), now_ms=now_ms)


def registered(expression: str = "a > 5") -> ConsumerFilters:
    """Return the filters with that of group g for topic T, in version 5."""
    found = filters()
    found.register("g", [subscription(expression)], now_ms=NOW_MS)
    return found


def known(found: ConsumerFilters, topic: str = "T") -> FilterData:
    data = found.get(topic, "g")
    assert data is not None
    return data


# -- heartbeats


def test_expression_is_kept_with_its_bits_and_times() -> None:
    """testRegister, testRegister_bySubscriptionData."""
    found = known(registered())
    bits = Bloom().positions("g", "T")
    assert found == FilterData("T", "g", "a > 5", "SQL92", 5, NOW_MS, 0, 112, bits)
    assert not found.is_dead


def test_newer_version_replaces_an_expression_and_an_older_one_does_not() -> None:
    """testRegister_change, testRegister: same version."""
    found = registered()
    for version in (4, 5):
        found.register("g", [subscription("a < 1", version=version)], now_ms=NOW_MS + 1)
        assert known(found).expression == "a > 5"
    found.register("g", [subscription("a < 1", version=6)], now_ms=NOW_MS + 2)
    assert (known(found).expression, known(found).born_ms) == ("a < 1", NOW_MS + 2)


def test_newer_version_of_the_same_expression_keeps_its_time() -> None:
    found = registered()
    found.register("g", [subscription("a > 5", version=6)], now_ms=NOW_MS + 1)
    assert (known(found).version, known(found).born_ms) == (6, NOW_MS)


def test_wrong_expression_removes_the_former_one() -> None:
    """testRegister_newExpressionCompileErrorAndRemoveOld."""
    found = registered()
    found.register("g", [subscription("a between 10,20", version=6)], now_ms=NOW_MS)
    assert found.get("T", "g") is None
    found.register("g", [subscription("a between 10 and 20", version=6)], now_ms=NOW_MS)
    assert known(found).expression == "a between 10 and 20"


def test_tags_and_unknown_types_are_not_kept() -> None:
    """testRegister_tag."""
    found = filters()
    tags = SubscriptionData(topic="T", expression="a || b")
    other = replace(tags, topic="U", expression_type="GROOVY")
    found.register("g", [tags, other, subscription("", topic="V")], now_ms=NOW_MS)
    assert len(found) == 0


@pytest.mark.parametrize(("version", "is_dead"), [(4, True), (5, False), (6, False)])
def test_expression_of_a_group_without_members_lives_again_with_its_version(
    version: int, is_dead: bool
) -> None:
    """testUnregister, testRegister_reAlive."""
    found = registered()
    found.unregister("g", now_ms=NOW_MS + 7)
    assert (known(found).is_dead, known(found).dead_ms) == (True, NOW_MS + 7)
    found.unregister("g", now_ms=NOW_MS + 9)
    assert known(found).dead_ms == NOW_MS + 7
    found.register("g", [subscription("a > 5", version=version)], now_ms=NOW_MS + 8)
    assert known(found).is_dead is is_dead


def test_topic_that_the_group_left_is_dead() -> None:
    found = registered()
    found.register("g", [subscription("b = 1", topic="U")], now_ms=NOW_MS + 3)
    assert known(found).dead_ms == NOW_MS + 3
    assert not known(found, "U").is_dead


# -- the file


def test_expressions_of_a_file_are_dead_until_a_heartbeat() -> None:
    """testPersist."""
    table = registered().table(now_ms=NOW_MS, kept_ms=DAY_MS)
    for now_ms, dead_ms in ((NOW_MS + 60_000, NOW_MS + 30_000), (NOW_MS + 10_000, NOW_MS)):
        again = filters(FilterTable.from_json(table.to_json()), now_ms=now_ms)
        assert known(again) == replace(known(registered()), dead_ms=dead_ms)
        assert known(again).is_dead
        again.register("g", [subscription("a > 5")], now_ms=now_ms)
        assert not known(again).is_dead


def test_group_without_members_for_a_day_is_removed() -> None:
    """testPersist_clean."""
    found = registered()
    found.unregister("g", now_ms=NOW_MS)
    assert found.table(now_ms=NOW_MS + DAY_MS - 1, kept_ms=DAY_MS).filters
    assert found.table(now_ms=NOW_MS + DAY_MS, kept_ms=DAY_MS).filters == {}
    assert found.get("T", "g") is None


def test_file_for_another_bloom_filter_is_ignored() -> None:
    table = registered().table(now_ms=NOW_MS, kept_ms=DAY_MS)
    assert len(ConsumerFilters(table, Bloom(consumers=64), now_ms=NOW_MS)) == 0


def test_expression_of_a_file_that_cannot_be_read_is_left_out() -> None:
    data = known(registered())
    others = {"wrong": replace(data, group="wrong", expression="a >"), "g": data}
    assert len(filters(FilterTable({"T": others}))) == 1


@pytest.mark.parametrize("release", RELEASES)
def test_file_of_a_java_broker_has_the_bits_and_members_of_ours(release: str) -> None:
    text = golden(release, FilterTable.FILE_NAME)
    found = filters(FilterTable.from_json(text), now_ms=2_000_000_000_000)
    [data] = found.of_group("gsql")
    assert data.bit_positions == Bloom().positions("gsql", "GroupsSql")
    again = found.table(now_ms=data.dead_ms, kept_ms=DAY_MS)
    assert again.to_json() == text


def is_refused(text: str) -> bool:
    try:
        FilterTable.from_json(text)
    except ValueError:
        return True
    return False


def test_file_that_is_cut_anywhere_is_refused_or_whole() -> None:
    text = registered().table(now_ms=NOW_MS, kept_ms=DAY_MS).to_json()
    for end in range(len(text)):
        assert is_refused(text[:end])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"bitPos":[', '"bitPos":["x",'),
        ('"bitPos":[', '"bitPos":7,"x":['),
        ('"bornTime":', '"bornTime":"x","y":'),
        ('"expression":"a > 5"', '"expression":5'),
        ('"groupFilterData":{', '"groupFilterData":[],"x":{'),
    ],
)
def test_file_with_a_value_of_another_type_is_refused(old: str, new: str) -> None:
    text = registered().table(now_ms=NOW_MS, kept_ms=DAY_MS).to_json()
    assert old in text
    assert is_refused(text.replace(old, new))


# -- bits


@pytest.mark.parametrize(
    ("error_percent", "consumers", "bits", "hashes"),
    [(20, 32, 112, 3), (10, 20, 96, 4), (1, 300, 2880, 7), (99, 1, 8, 1), (20, 64, 216, 3)],
)
def test_size_follows_from_error_rate_and_consumers(
    error_percent: int, consumers: int, bits: int, hashes: int
) -> None:
    """testEquals: another rate or number is another filter."""
    bloom = Bloom(error_percent, consumers)
    assert (bloom.bit_count, bloom.hash_count) == (bits, hashes)


def test_bits_are_those_of_a_java_broker() -> None:
    assert Bloom().positions("cg", "Td") == (50, 62, 37)
    assert Bloom().positions("gsql", "GroupsSql") == (18, 32, 60)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0),
        (b"hello", 0xCBD8A7B341BD9B02),
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_hash_is_murmur3(text: bytes, expected: int) -> None:
    assert murmur3_low(text) == expected


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_bits_lie_in_the_bit_map(text: str) -> None:
    """testCalcBitPositions."""
    bloom = Bloom(10, 20)
    found = bloom.positions_of(text)
    assert len(found) == bloom.hash_count
    assert all(0 <= each < bloom.bit_count for each in found)


def test_few_texts_have_the_bits_of_others() -> None:
    """testCheckFalseHit."""
    bloom, taken, false_hits = Bloom(1, 300), set[int](), 0
    for number in range(bloom.consumers):
        found = bloom.positions_of(f"group-{number}#topic")
        false_hits += taken.issuperset(found)
        taken.update(found)
    assert false_hits <= bloom.consumers * bloom.error_percent / 100
