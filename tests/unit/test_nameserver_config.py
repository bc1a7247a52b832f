"""The settings of a nameserver from RocketMQ's namesrv.conf."""

from __future__ import annotations

import logging

import pytest

from rmqstore.config import Configuration, NameserverConfig
from rmqstore.config.known_keys import KEYS_WITHOUT_EFFECT
from rmqstore.errors import ConfigError


def test_defaults_are_those_of_rocketmq() -> None:
    config = NameserverConfig()
    assert (config.bind_address, config.listen_port, config.scan_interval_ms) == (
        "0.0.0.0",
        9876,
        5000,
    )
    assert not config.acting_master
    assert not config.notify_min_broker_id
    assert config.return_order_topics


def test_a_file_of_rocketmq_sets_what_it_names(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rmqstore"):
        config = NameserverConfig.from_properties(
            "listenPort=9877\nsupportActingMaster = true\nconfigBlackList=a;b\n"
            "rocketmqHome=/opt/rocketmq\nbrokerId=0\nhaListenPort=10912\n"
        )
    assert config == NameserverConfig(
        listen_port=9877, acting_master=True, config_black_list=("a", "b")
    )
    assert caplog.messages == [
        "3 keys of the configuration have no effect here: rocketmqHome, brokerId, haListenPort"
    ]


def test_every_mistake_is_listed_with_the_nearest_key() -> None:
    with pytest.raises(ConfigError) as caught:
        NameserverConfig.from_properties(
            "supportActingMaste=true\nlistenPort=70000\nscanNotActiveBrokerInterval=soon\n"
        )
    assert caught.value.violations == (
        "supportActingMaste: unknown key; did you mean supportActingMaster?",
        "scanNotActiveBrokerInterval: 'soon' is not a whole number; correct it, or leave it out "
        "for the default, 5000",
        "listenPort (listen_port): 70000 is above the limit of 65535; lower it",
    )


def test_every_setting_is_read_back_from_its_own_file() -> None:
    config = NameserverConfig(
        listen_port=0, kv_config_path="kv.json", config_black_list=("listenPort",), topic_list=False
    )
    assert NameserverConfig.from_properties(config.to_properties()) == config


def test_every_key_of_the_table_is_one_of_rocketmq() -> None:
    keys = {about.key for about in NameserverConfig.options().values()}
    others = {about.key for about in Configuration.options().values()}
    assert keys <= KEYS_WITHOUT_EFFECT | others
    assert len(keys) == len(NameserverConfig.options())
    for name, about in NameserverConfig.options().items():
        assert about.help, name
        assert about.effect, name
        assert about.codec.parse(about.codec.format(about.default)) == about.default, name
