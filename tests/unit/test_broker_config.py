"""The settings of a broker from RocketMQ's broker.conf."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from rmqstore.config import BrokerConfig, BrokerRole, Configuration
from rmqstore.config.known_keys import KEYS_WITHOUT_EFFECT
from rmqstore.errors import ConfigError


def test_defaults_are_those_of_rocketmq() -> None:
    config = BrokerConfig()
    assert (config.cluster_name, config.listen_port, config.permission) == (
        "DefaultCluster",
        10911,
        6,
    )
    assert config.registration_interval_ms == 30_000
    assert config.controller_heartbeat_timeout_ms == 10_000
    assert not config.is_controlled
    assert not config.is_slave


def test_one_file_fills_broker_store_and_replica(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rmqstore"):
        config = BrokerConfig.from_properties(
            "brokerClusterName=east\nbrokerName=broker-a\nbrokerId=2\nbrokerRole=SLAVE\n"
            "brokerIP1=10.0.0.7\nlistenPort=30911\nhaListenPort=30921\n"
            "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876\nstorePathRootDir=/data\n"
            "deleteWhen=04\nsendMessageThreadPoolNums=16\n"
        )
    assert (config.cluster_name, config.name, config.broker_id) == ("east", "broker-a", 2)
    assert (config.host, config.listen_port) == ("10.0.0.7", 30911)
    assert config.nameservers == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert config.store.broker_role is BrokerRole.SLAVE
    assert config.store.root_path == "/data"
    assert config.replica.ha_listen_port == 30921
    assert config.is_slave
    assert caplog.messages == [
        "1 key of the configuration has no effect here: sendMessageThreadPoolNums"
    ]


def test_every_mistake_of_all_parts_is_listed_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties(
            "namesrvAdr=h:1\nbrokerPermission=9\nmaxMessageSize=1\nhaMasterAddress=here\n"
        )
    assert caught.value.violations == (
        "namesrvAdr: unknown key; did you mean namesrvAddr?",
        "maxMessageSize (message_size_bytes_max): 1 is below the limit of 10 bytes; raise it",
        "haMasterAddress (ha_master_address): 'here' is not a host and a port; give both, such as "
        "10.0.0.7:10912",
        "brokerPermission (permission): 9 is above the limit of 7; lower it",
    )


def test_slave_without_an_id_above_0_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 is not the id of a slave"):
        BrokerConfig.from_properties("brokerRole=SLAVE\n")


def test_controller_mode_needs_controllers_and_passes_over_role_and_id() -> None:
    with pytest.raises(ConfigError, match="name the controllers"):
        BrokerConfig.from_properties("enableControllerMode=true\n")
    config = BrokerConfig.from_properties(
        "enableControllerMode=true\ncontrollerAddr=h:1\nbrokerRole=SLAVE\nbrokerId=-1\n"
    )
    assert config.is_controlled
    assert not config.is_slave


@pytest.mark.parametrize(
    ("text", "lease_ms"),
    [
        ("", 3000),
        ("masterLeaseMillis=7000", 7000),
        ("masterLeaseMillis=0", 0),
        ("brokerHeartbeatInterval=2000", 6000),
        ("controllerHeartBeatTimeoutMills=1000", 700),
        ("brokerHeartbeatInterval=5000\ncontrollerHeartBeatTimeoutMills=20000", 14_000),
    ],
)
def test_a_lease_lasts_for_heartbeats_and_ends_before_the_timeout(text: str, lease_ms: int) -> None:
    assert BrokerConfig.from_properties(f"{text}\n").granted_ms == lease_ms


def test_every_setting_is_read_back_from_its_own_file() -> None:
    config = BrokerConfig().replace(
        name="broker-a",
        listen_port=30911,
        nameservers=("h:1", "h:2"),
        root_path="/data",
        ha_listen_port=0,
    )
    assert BrokerConfig.from_properties(config.to_properties()) == config


def test_changes_by_name_are_checked_in_every_part() -> None:
    config = BrokerConfig().replace(host="10.0.0.7", root_path="/data", in_sync_replicas=2)
    assert (config.host, config.store.root_path) == ("10.0.0.7", "/data")
    assert config.replica.in_sync_replicas == 2
    with pytest.raises(ConfigError, match="did you mean root_path"):
        config.replace(root_pat="/data")


def test_constructor_takes_the_fields_of_store_and_replica() -> None:
    config = BrokerConfig(root_path="/data", listen_port=1, ha_listen_port=2)
    assert (config.store.root_path, config.listen_port) == ("/data", 1)
    assert config.replica.ha_listen_port == 2
    assert config == BrokerConfig().replace(root_path="/data", listen_port=1, ha_listen_port=2)
    of_parts = BrokerConfig(store=config.store, replica=config.replica, listen_port=1)
    assert dataclasses.replace(of_parts, listen_port=1) == config
    with pytest.raises(ConfigError, match="root_paht: unknown field; did you mean root_path"):
        BrokerConfig(root_paht="/data")


def test_addresses_may_be_pairs_as_servers_return_them() -> None:
    config = BrokerConfig(
        nameservers=(("10.0.0.1", 9876), "10.0.0.2:9876"),
        controllers=[("::1", 9878)],
        ha_master_address=("10.0.0.3", 10912),
    )
    assert config.nameservers == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert config.controllers == ("[::1]:9878",)
    assert config.replica.ha_master_address == "10.0.0.3:10912"
    assert config.replace(nameservers=[("h", 1)]).nameservers == ("h:1",)


def test_every_key_is_known_to_those_that_read_the_file_for_its_store() -> None:
    keys = {about.key for about in BrokerConfig.options().values()}
    others = {about.key for about in Configuration.options().values()}
    assert keys <= KEYS_WITHOUT_EFFECT | others
    assert len(keys) == len(BrokerConfig.options())
    for name, about in BrokerConfig.options().items():
        assert about.help, name
        assert about.effect, name
        assert about.codec.parse(about.codec.format(about.default)) == about.default, name


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ("inSyncReplicas=2", True),
        ("inSyncReplicas=1", False),
        ("inSyncReplicas=2\nallAckInSyncStateSet=true", False),
    ],
)
def test_a_number_of_copies_needs_a_lease(settings: str, is_refused: bool) -> None:
    text = (
        "enableControllerMode=true\ncontrollerAddr=10.0.0.1:9878\ntotalReplicas=3\n"
        f"masterLeaseMillis=0\n{settings}\n"
    )
    if not is_refused:
        assert BrokerConfig.from_properties(text).granted_ms == 0
        return
    with pytest.raises(ConfigError, match=r"masterLeaseMillis .* without a lease"):
        BrokerConfig.from_properties(text)
