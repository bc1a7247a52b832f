"""Names of topics: the retry topics of POP in both forms, and whose they are."""

from __future__ import annotations

import pytest

from rmqstore.topic_names import (
    RetryKind,
    pop_retry_topic,
    popped_from,
    retry_kind,
    revive_topic,
)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (RetryKind.NONE, "orders"),
        (RetryKind.V1, "%RETRY%pay_orders"),
        (RetryKind.V2, "%RETRY%pay+orders"),
    ],
)
def test_retry_topic_has_the_form_of_its_kind(kind: RetryKind, name: str) -> None:
    assert pop_retry_topic("orders", "pay", kind) == name
    assert retry_kind(name) is kind


def test_retry_topic_of_a_known_group_is_that_of_its_topic() -> None:
    known = {"pay"}.__contains__
    assert list(popped_from("%RETRY%pay_orders", known)) == [("pay", "orders")]
    assert list(popped_from("%RETRY%pay+orders", known)) == [("pay", "orders")]


def test_group_and_topic_with_underscores_are_told_apart_by_the_known_groups() -> None:
    name = "%RETRY%pay_eu_orders_new"
    assert list(popped_from(name, {"pay_eu"}.__contains__)) == [("pay_eu", "orders_new")]
    assert list(popped_from(name, {"pay_eu", "pay"}.__contains__)) == [
        ("pay_eu", "orders_new"),
        ("pay", "eu_orders_new"),
    ]


@pytest.mark.parametrize(
    "name",
    ["orders", "%RETRY%pay", "%RETRY%pay_", "%RETRY%_orders", "%RETRY%pay+", "%RETRY%pay+a+b"],
)
def test_other_names_are_of_no_pop(name: str) -> None:
    assert list(popped_from(name, {"pay", "", "pay_"}.__contains__)) == []


def test_retry_topic_of_an_unknown_group_is_of_no_pop() -> None:
    assert list(popped_from("%RETRY%pay_orders", {"other"}.__contains__)) == []
    assert list(popped_from("%RETRY%pay+orders", {"other"}.__contains__)) == []


def test_revive_topic_is_that_of_the_cluster() -> None:
    assert revive_topic("PeerCluster") == "rmq_sys_REVIVE_LOG_PeerCluster"
