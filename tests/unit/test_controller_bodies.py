"""Bodies of answers of controllers and brokers, as an operator's requests read them."""

from __future__ import annotations

import pytest

from rmqstore.errors import RemotingFrameError
from rmqstore.remoting.bodies.controller import (
    Elected,
    ReplicasInfo,
    ReplicaState,
    decode_sync_state_data,
    sync_state_data,
)
from rmqstore.remoting.bodies.epochs import EpochCache

# As recorded from RocketMQ 5.3.3.
DATA = (
    b'{"replicasInfoTable":{"broker-a":{"inSyncReplicas":[{"alive":true,'
    b'"brokerAddress":"127.0.0.1:10911","brokerId":1,"brokerName":"broker-a"}],'
    b'"masterAddress":"127.0.0.1:10911","masterBrokerId":1,"masterEpoch":2,'
    b'"notInSyncReplicas":[],"syncStateSetEpoch":3}}}'
)
ELECTED = (
    b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:11911"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster"},"syncStateSet":[1]}'
)


def test_the_sync_state_set_of_a_java_controller_is_read_and_written_alike() -> None:
    found = decode_sync_state_data(DATA)
    assert found["broker-a"] == ReplicasInfo(
        broker_name="broker-a",
        master_id=1,
        master_address="127.0.0.1:10911",
        master_epoch=2,
        set_epoch=3,
        in_sync=(ReplicaState(1, "127.0.0.1:10911", True),),
        not_in_sync=(),
    )
    assert sync_state_data(found) == DATA


def test_the_reason_of_a_wait_is_kept() -> None:
    group = ReplicasInfo(
        broker_name="b",
        master_id=None,
        master_address="",
        master_epoch=4,
        set_epoch=2,
        in_sync=(),
        not_in_sync=(ReplicaState(2, "h:2", False),),
        waits_for=frozenset({3, 1}),
        wait_reason="two copies",
    )
    assert decode_sync_state_data(sync_state_data({"b": group})) == {"b": group}


def test_an_election_of_a_java_controller_is_read_with_unquoted_ids() -> None:
    found = Elected.decode(ELECTED)
    assert found.group.addresses == {0: "127.0.0.1:10911", 1: "127.0.0.1:11911"}
    assert found.sync_state_set == {1}


def test_epochs_end_where_the_next_one_begins_and_with_the_log() -> None:
    body = (
        b'{"brokerId":1,"brokerName":"b","clusterName":"c","epochList":['
        b'{"endOffset":100,"epoch":1,"startOffset":0},'
        b'{"endOffset":9223372036854775807,"epoch":2,"startOffset":100}],"maxOffset":500}'
    )
    cache = EpochCache.decode(body)
    assert (cache.broker_id, cache.ranges()) == (1, [(1, 0, 100), (2, 100, 500)])
    assert EpochCache.decode(b"{}").ranges() == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"replicasInfoTable":[]}',
        b'{"replicasInfoTable":{"b":{"inSyncReplicas":[7]}}}',
        b'{"replicasInfoTable":{"b":{"masterEpoch":"x"}}}',
        b'{"replicasInfoTable":{"b":{"masterEpoch":2147483648}}}',
        b'{"replicasInfoTable":{"b":{"inSyncReplicas":[{"brokerId":9223372036854775808}]}}}',
        b'{"replicasInfoTable":{"b":{"waitsFor":[%b0]}}}' % (b"0," * 1000),
    ],
)
def test_another_shape_is_refused(body: bytes) -> None:
    with pytest.raises(RemotingFrameError):
        decode_sync_state_data(body)


@pytest.mark.parametrize("body", [b"[]", b'{"epochList":7}', b'{"epochList":[7]}'])
def test_epochs_of_another_shape_are_refused(body: bytes) -> None:
    with pytest.raises(RemotingFrameError):
        EpochCache.decode(body)
