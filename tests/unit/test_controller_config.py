"""The settings of a controller, from RocketMQ's own file."""

from __future__ import annotations

import logging

import pytest

from rmqstore.config import ControllerConfig, ControllerPeer
from rmqstore.errors import ConfigError

FILE = """
controllerDLegerGroup = group1
controllerDLegerPeers = n0-10.0.0.1:9878;n1-10.0.0.2:9868;n2-[::1]:9858
controllerDLegerSelfId = n1
controllerStorePath = /var/lib/controller
enableElectUncleanMaster = true
controllerThreadPoolNums = 16
"""


def test_the_file_of_rocketmq_is_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    config = ControllerConfig.from_properties(FILE)
    assert config.own_node == ControllerPeer("n1", "10.0.0.2", 9868)
    assert [each.node_id for each in config.nodes] == ["n0", "n1", "n2"]
    assert (config.group, config.store_path) == ("group1", "/var/lib/controller")
    assert config.elect_unclean_master
    assert "controllerThreadPoolNums" in caplog.text


def test_every_mistake_is_listed_and_the_nearest_key_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        ControllerConfig.from_properties("controlerStorePath=/x\nlistenPort=70000\n")
    assert "did you mean controllerStorePath?" in str(caught.value)
    assert len(caught.value.violations) == 2


@pytest.mark.parametrize(
    ("peers", "self_id", "word"),
    [
        ("n0", "n0", "not a node"),
        ("n0-h", "n0", "not a node"),
        ("-h:1", "n0", "not a node"),
        ("n0-h:99999", "n0", "not a node"),
        ("n0-h:1;n0-h:2", "n0", "twice"),
        ("n0-h:1", "n1", "not among the peers"),
    ],
)
def test_bad_peers_are_refused(peers: str, self_id: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        ControllerConfig(peers=peers, self_id=self_id)


def test_nodes_reach_each_other_a_thousand_ports_above_where_nothing_else_is_named() -> None:
    peers = "n0-10.0.0.1:9878;n1-10.0.0.2:9868"
    assert [each.port for each in ControllerConfig(peers=peers).raft_nodes] == [10878, 10868]
    named = ControllerConfig(peers=peers, raft_peers="n1-b:5;n0-a:4")
    assert [tuple(each) for each in named.raft_nodes] == [("n1", "b", 5), ("n0", "a", 4)]


@pytest.mark.parametrize(
    ("peers", "raft_peers", "word"),
    [
        ("n0-h:1;n1-h:65000", "", "65000 . 1000 is not a port"),
        ("n0-h:1;n1-h:2", "n0-h:3", "name each node"),
        ("n0-h:1;n1-h:2", "n0-h:3;n1", "controllerRaftPeers .raft_peers.: 'n1' is not a node"),
    ],
)
def test_bad_places_for_the_other_nodes_are_refused(peers: str, raft_peers: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        ControllerConfig(peers=peers, raft_peers=raft_peers)


def test_properties_are_read_back() -> None:
    config = ControllerConfig.from_properties(FILE.replace("controllerThreadPoolNums = 16", ""))
    assert ControllerConfig.from_properties(config.to_properties()) == config
