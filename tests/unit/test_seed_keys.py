"""The configuration keys of the design documents: their defaults, and that a file sets them."""

from __future__ import annotations

import pytest

from rmqstore.config import BrokerConfig, ControllerConfig, NameserverConfig, parse_properties
from rmqstore.config.known_keys import KEYS_WITHOUT_EFFECT

_Config = type[BrokerConfig | ControllerConfig | NameserverConfig]

# By configuration: keys, with the default that the documents name and with another value.
_KEYS: dict[_Config, dict[str, tuple[str, str]]] = {
    NameserverConfig: {
        "scanNotActiveBrokerInterval": ("5000", "300"),
        "supportActingMaster": ("false", "true"),
        "enableControllerInNamesrv": ("false", "true"),
    },
    ControllerConfig: {
        "controllerDLegerGroup": ("", "controllers"),
        "controllerDLegerPeers": ("", "n0-127.0.0.1:9877;n1-127.0.0.1:9878;n2-127.0.0.1:9879"),
        "controllerDLegerSelfId": ("n0", "n1"),
        "controllerStorePath": ("", "/home/admin/DledgerController"),
        "enableElectUncleanMaster": ("false", "true"),
        "notifyBrokerRoleChanged": ("true", "false"),
    },
    BrokerConfig: {
        "enableSlaveActingMaster": ("false", "true"),
        "brokerHeartbeatInterval": ("1000", "500"),
        "brokerNotActiveTimeoutMillis": ("10000", "9000"),
        "sendHeartbeatTimeoutMillis": ("1000", "500"),
        "compatibleWithOldNameSrv": ("true", "false"),
        "totalReplicas": ("1", "3"),
        "lockInStrictMode": ("false", "true"),
        "inSyncReplicas": ("1", "2"),
        "minInSyncReplicas": ("1", "2"),
        "enableAutoInSyncReplicas": ("false", "true"),
        "haMaxGapNotInSync": ("268435456", "262144"),
        "enableControllerMode": ("false", "true"),
        "controllerAddr": ("", "127.0.0.1:9877;127.0.0.1:9878;127.0.0.1:9879"),
        "syncBrokerMetadataPeriod": ("5000", "500"),
        "syncControllerMetadataPeriod": ("10000", "1000"),
        "haMaxTimeSlaveNotCatchup": ("15000", "3000"),
        "checkSyncStateSetPeriod": ("5000", "1000"),
        "storePathEpochFile": ("", "/home/admin/store/epochFileCheckpoint"),
        "allAckInSyncStateSet": ("false", "true"),
        "syncFromLastFile": ("false", "true"),
        "asyncLearner": ("false", "true"),
    },
}
_WITHOUT_EFFECT = {
    "enableRemoteEscape": "true",
    "skipPreOnline": "true",
    "haSlaveFallbehindMax": "268435456",
}
"""Keys that need not have an effect here, some of them cancelled by a later document."""


@pytest.mark.parametrize(
    ("config", "key"), [(config, key) for config, keys in _KEYS.items() for key in keys]
)
def test_key_has_the_default_of_the_documents_and_is_read_from_a_file(
    config: _Config, key: str
) -> None:
    default, other = _KEYS[config][key]
    assert _written(config.from_properties(""), key) == default
    assert _written(config.from_properties(_file(config, key, other)), key) == other


def _file(config: _Config, key: str, value: str) -> str:
    pairs = {key: value}
    if config is BrokerConfig:
        # A broker in controller mode needs the address of a controller.
        pairs = {"controllerAddr": "127.0.0.1:9877"} | pairs
    if config is ControllerConfig and key == "controllerDLegerSelfId":
        pairs["controllerDLegerPeers"] = "n0-127.0.0.1:9877;n1-127.0.0.1:9878"
    return "".join(f"{name}={text}\n" for name, text in pairs.items())


def _written(config: BrokerConfig | ControllerConfig | NameserverConfig, key: str) -> str:
    """Returns the value of a key; settings that are not set are not written."""
    return parse_properties(config.to_properties()).get(key, "")


def test_keys_without_an_effect_are_accepted() -> None:
    known = KEYS_WITHOUT_EFFECT | _KEYS[BrokerConfig].keys()
    assert set(_WITHOUT_EFFECT) <= known
    BrokerConfig.from_properties(
        "".join(f"{key}={text}\n" for key, text in _WITHOUT_EFFECT.items())
    )
