"""Files that servers of RocketMQ 5 start with, from its distribution, images and tutorials."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.config import BrokerConfig, Configuration, ControllerConfig, NameserverConfig
from rmqstore.errors import ConfigError

LICENCE = """<!--
  Licensed to one or more contributors.  See the NOTICE file
  (the "License"); you may obtain a copy at http://example.org/licence

  listenPort = 9876
  -->
"""
GROUP = "controllerDLegerPeers = n0-127.0.0.1:9878;n1-127.0.0.1:9868\n"
CONTROLLER = f"controllerDLegerGroup = group1\n{GROUP}controllerDLegerSelfId = n0\n"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "mapedFileSizeCommitLog=1073741824\nmapedFileSizeConsumeQueue=300000\n"
            "destroyMapedFileIntervalForcibly=120000\n",
            "3 keys of the configuration have no effect here: mapedFileSizeCommitLog, "
            "mapedFileSizeConsumeQueue, destroyMapedFileIntervalForcibly",
        ),
        (
            "storeCheckPoint=/x/checkpoint\nabortFile=/x/abort\n",
            "2 keys of the configuration have no effect here: storeCheckPoint, abortFile",
        ),
        (
            "messageStorePlugIn = org.apache.rocketmq.tieredstore.TieredMessageStore\n"
            'tieredStorageLevel = FORCE\nobjectStoreRegion = ""\n',
            "2 keys of the configuration have no effect here: messageStorePlugIn, "
            "tieredStorageLevel; 1 key of the configuration has no effect here or in RocketMQ: "
            "objectStoreRegion",
        ),
        (
            "spring.application.name=x\n\\u0000=1\n",
            "2 keys of the configuration have no effect here or in RocketMQ: "
            "spring.application.name, '\\x00'",
        ),
        (
            "brokerAddress=10.0.0.1\nnamesOfBroker=a\n",
            "2 keys of the configuration have no effect here or in RocketMQ: "
            "brokerAddress, namesOfBroker",
        ),
    ],
    ids=["RocketMQ 4", "tutorials", "tiered storage", "other programs", "inventions"],
)
def test_keys_that_a_java_broker_passes_over_are_named_in_one_warning(
    text: str, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig.from_properties(f"storePathRootDir=/x\n{text}")
    assert config.store.root_path == "/x"
    assert caplog.messages == [warning]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("brokerNam", "brokerName"),
        ("brokerNamee", "brokerName"),
        ("brokerNane", "brokerName"),
        ("brokreName", "brokerName"),
        ("brokername", "brokerName"),
        ("disMaxUsedSpaceRatio", "diskMaxUsedSpaceRatio"),
        ("brokerIP", "brokerIP1 or brokerIP2 or brokerId"),
        ("useTSL", "useTLS"),
    ],
)
def test_a_key_one_letter_away_from_a_known_one_is_a_mistake(written: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties(f"{written}=1\n")
    assert caught.value.violations == (f"{written}: unknown key; did you mean {meant}?",)


def test_a_strict_reader_refuses_every_unknown_key() -> None:
    kinds = (BrokerConfig, Configuration, NameserverConfig, ControllerConfig)
    for kind in kinds:
        kind.from_properties("fooBar=1\n")
        with pytest.raises(ConfigError, match="fooBar: unknown key"):
            kind.from_properties("fooBar=1\n", strict=True)


@pytest.mark.parametrize("licence", [LICENCE, ""], ids=["licence", "plain"])
def test_the_distributions_nameserver_with_a_controller_is_read(
    licence: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"{licence}\n#Namesrv config\nenableControllerInNamesrv = true\n{CONTROLLER}"
    config = NameserverConfig.from_properties(text)
    assert config.controller_in_namesrv
    beside = ControllerConfig.from_properties(text, beside=NameserverConfig.options())
    assert beside.peers == "n0-127.0.0.1:9878;n1-127.0.0.1:9868"
    assert caplog.messages == []


def test_keys_in_an_xml_comment_count_as_in_rocketmq() -> None:
    config = NameserverConfig.from_properties("<!--\nlistenPort = 9999\n-->\n")
    assert config.listen_port == 9999


def test_a_byte_order_mark_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(b"\xef\xbb\xbfbrokerName=a\r\nstorePathRootDir=/x\r\n")
    assert BrokerConfig.from_properties(file).name == "a"
    assert BrokerConfig.from_properties(file.read_text(encoding="utf-8")).name == "a"
    file.write_bytes(b'\xef\xbb\xbfroot_path = "/x"\n')
    assert Configuration.from_toml(file).store.root_path == "/x"
    assert caplog.messages == []


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_refused_by_name(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes("\ufeffbrokerName=a\n".encode(encoding))
    with pytest.raises(ConfigError, match="UTF-16; save it in UTF-8") as caught:
        BrokerConfig.from_properties(file)
    assert caught.value.source == str(file)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("brokerIP1=rocketmq-broker", "rocketmq-broker"),
        ("brokerIP1=rocketmq_broker_1.example", "rocketmq_broker_1.example"),
        ("brokerIP1=[::1]", "::1"),
        ("brokerIP1=fe80::1%eth0", "fe80::1%eth0"),
        ("brokerIP1=", ""),
        ("bindAddress=[::]", ""),
    ],
)
def test_hosts_are_names_or_addresses(text: str, host: str) -> None:
    config = BrokerConfig.from_properties(f"{text}\n")
    assert config.host == host
    assert config.bind_address == ("::" if "bind" in text else "0.0.0.0")


@pytest.mark.parametrize(
    "text",
    [
        "brokerIP1=10.0.0.1:10911",
        "brokerIP1=10.0.0.1,10.0.0.2",
        "brokerIP2=http://10.0.0.1",
        "bindAddress=0.0.0.0 ::",
        "metricsPromExporterHost=[10.0.0.1]",
        "namesrvAddr=127.0.0.1:9876,127.0.0.1:9877",
        "namesrvAddr=127.0.0.1",
        "namesrvAddr=127.0.0.1:9876;127.0.0.2",
        "namesrvAddr=http://127.0.0.1:9876",
        "namesrvAddr='127.0.0.1:9876'",
        "namesrvAddr=127.0.0.1:99999",
        "namesrvAddr=127.0.0.1:9876:9877",
        "namesrvAddr=a b:9876",
        "controllerAddr=127.0.0.1:9878,127.0.0.1:9879",
        "haMasterAddress=127.0.0.1:10912,127.0.0.2:10912",
    ],
)
def test_what_is_no_host_or_address_is_refused(text: str) -> None:
    key = text.partition("=")[0]
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties(f"{text}\n")
    [violation] = caught.value.violations
    assert violation.startswith(f"{key} (")
    assert "; give " in violation


def test_lists_of_addresses_take_blanks_ipv6_and_a_last_semicolon() -> None:
    config = BrokerConfig.from_properties("namesrvAddr= a-b.c:9876 ; [::1]:9876;::1:9877;\n")
    assert config.nameservers == ("a-b.c:9876", "[::1]:9876", "::1:9877")


@pytest.mark.parametrize(
    "peers",
    [
        "n0-127.0.0.1:1,n1-127.0.0.1:2,n2-127.0.0.1:3",
        "n0-127.0.0.1",
        "n0-http://127.0.0.1:1",
        "127.0.0.1:1;127.0.0.1:2",
        "n0-127.0.0.1:1 n1-127.0.0.1:2",
    ],
)
@pytest.mark.parametrize("key", ["controllerDLegerPeers", "controllerRaftPeers"])
def test_peers_of_a_controller_are_nodes_separated_by_semicolons(key: str, peers: str) -> None:
    text = f"{key}={peers}\n" if key == "controllerDLegerPeers" else f"{GROUP}{key}={peers}\n"
    with pytest.raises(ConfigError, match=f"{key} .*is not a node; .*separate nodes by ;"):
        ControllerConfig.from_properties(text)
