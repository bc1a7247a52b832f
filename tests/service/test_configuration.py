"""Every key of the option table does something: a changed value is seen where it takes effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import (
    ArgumentError,
    Configuration,
    Durability,
    InSyncReplicasNotEnough,
    NotWritable,
    ReplicaConfig,
    ReplicaTimeout,
    StoreConfig,
    UnsupportedStoreError,
    aio,
)
from rmqstore.config import BrokerRole, FlushDiskType
from rmqstore.config.known_keys import KEYS_WITHOUT_EFFECT
from rmqstore.replication import HaOptions, Master, Mode, Quorum, ReplicatedStore, Slave
from rmqstore.store.directory import Directory
from rmqstore.store.retention import (
    CommitLogFile,
    DiskUse,
    RetentionPolicy,
    RetentionTimer,
    share_used_ratio,
)
from rmqstore.store.settings import native_settings
from tests.support.agreement import FILES
from tests.support.waiting import spin_until

HERE = "127.0.0.1:0"
QUICK: dict[str, Any] = {"ha_send_heartbeat_interval_ms": 200}


def _native(config: Configuration) -> object:
    return native_settings(config.store, Directory(Path()), read_only=False, replica=config.replica)


def _policy(config: Configuration) -> object:
    return RetentionPolicy.from_config(config.store)


def _quorum(config: Configuration) -> object:
    return Quorum.from_config(config.replica)


def _connection(config: Configuration) -> object:
    return HaOptions.from_config(config.replica)


def _mode(config: Configuration) -> object:
    return Mode.from_config(config.replica)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., rmqstore.Store]]:
    """Return a function that opens a store of small files by name, with a configuration."""
    with ExitStack() as stack:

        def make(name: str = "a", **settings: Any) -> rmqstore.Store:
            config = Configuration().replace(**FILES, **settings)
            return stack.enter_context(rmqstore.open(tmp_path / name, config))

        yield make


Opened = Callable[..., rmqstore.Store]


# -- of a store


def test_a_store_without_a_path_is_where_the_file_says(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/data\nmaxHashSlotNum=100\nmaxIndexNum=400\n")
    with rmqstore.open(config=file, commit_log_file_size_bytes=1 << 20) as store:
        store.put("orders", b"paid")
        assert store.path == f"{tmp_path}/data"
    with pytest.raises(ArgumentError, match="storePathRootDir is not set"):
        rmqstore.open()


def test_queues_in_rocksdb_are_refused_for_writing(opened: Opened, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedStoreError, match=r"storeType is defaultRocksDB.*read-only"):
        opened(store_type="defaultRocksDB")
    opened().put("orders", b"paid")
    config = StoreConfig(store_type="defaultRocksDB", **FILES)
    with rmqstore.open(tmp_path / "a", config, read_only=True) as store:
        assert store.end_offset > 0


def test_a_commit_log_in_dledger_is_refused_for_writing(opened: Opened, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedStoreError, match="enableDLegerCommitLog is true"):
        opened(dledger_commit_log_enable=True)
    assert not (tmp_path / "a").exists()


def test_epochs_at_another_path_are_refused_in_controller_mode(
    opened: Opened, tmp_path: Path
) -> None:
    elsewhere = str(tmp_path / "epochs" / "epochFileCheckpoint")
    with pytest.raises(
        UnsupportedStoreError, match=r"storePathEpochFile is .* move the file there"
    ):
        opened(controller_mode_enable=True, epochs_path=elsewhere)
    assert not (tmp_path / "a").exists()

    own = str(tmp_path / "a" / "epochFileCheckpoint")
    opened(controller_mode_enable=True, epochs_path=own).put("orders", b"paid")
    opened("b", epochs_path=elsewhere).put("orders", b"paid")


def test_the_store_of_a_slave_takes_no_puts_before_it_is_promoted(opened: Opened) -> None:
    store = opened(broker_role=BrokerRole.SLAVE)
    with pytest.raises(NotWritable, match="role"):
        store.put("orders", b"paid")
    with Master(store, listen=HERE):
        store.put("orders", b"paid")


@pytest.mark.parametrize("flush", FlushDiskType)
def test_puts_of_a_sync_master_wait_for_its_copies(opened: Opened, flush: FlushDiskType) -> None:
    store = opened(
        broker_role=BrokerRole.SYNC_MASTER,
        in_sync_replicas=2,
        slave_timeout_ms=50,
        flush_disk_type=flush,
    )
    with pytest.raises(InSyncReplicasNotEnough, match="has no replicas"):
        store.put("orders", b"paid")
    with Master(store, listen=HERE) as master:
        with pytest.raises(ReplicaTimeout):
            store.put("orders", b"paid")
        assert store.put("orders", b"paid", durability=Durability.MEMORY).copies == 1
        copy = opened("b", ha_master_address="{}:{}".format(*master.address or ()), **QUICK)
        with Slave(copy):
            master.wait_in_sync(2, timeout=20)
            receipt = store.put("orders", b"paid", timeout=20.0)
            assert (receipt.durability, receipt.copies) == (Durability.REPLICATED, 2)
            if flush is FlushDiskType.SYNC_FLUSH:
                assert store.flushed_offset == store.end_offset


def test_awaited_puts_of_a_sync_master_wait_for_its_copies(tmp_path: Path) -> None:
    config = Configuration().replace(
        **FILES, broker_role=BrokerRole.SYNC_MASTER, in_sync_replicas=2, slave_timeout_ms=50
    )

    async def main() -> None:
        async with aio.open(tmp_path / "a", config) as store:
            with pytest.raises(InSyncReplicasNotEnough, match="has no replicas"):
                await store.put("orders", b"paid")
            with Master(store.store, listen=HERE), pytest.raises(ReplicaTimeout):
                await store.put("orders", b"paid")

    asyncio.run(main())


def test_one_copy_is_no_wait_for_a_sync_master(opened: Opened) -> None:
    store = opened(broker_role=BrokerRole.SYNC_MASTER)
    assert store.put("orders", b"paid").durability is Durability.MEMORY


def test_an_index_that_is_not_read_answers_no_look_up(opened: Opened) -> None:
    store = opened(index_file_read_enable=False)
    with pytest.raises(UnsupportedStoreError, match="indexFileReadEnable is false"):
        store.find("orders", "k")
    with pytest.raises(UnsupportedStoreError, match="indexFileReadEnable is false"):
        store.find_tag("orders", "k")


def test_an_index_that_is_not_written_has_no_files(opened: Opened, tmp_path: Path) -> None:
    store = opened(index_file_write_enable=False)
    store.put("orders", b"paid", keys=["k"])
    store.wait_dispatched()
    assert not list((tmp_path / "a" / "index").glob("*"))


def test_a_look_up_returns_as_many_as_the_configuration_says(opened: Opened) -> None:
    store = opened(index_query_count_max=3)
    store.put_many([rmqstore.Message("orders", b"%d" % n, keys=["k"]) for n in range(5)])
    assert len(store.find("orders", "k")) == 3
    assert len(store.find("orders", "k", max_count=5)) == 5


def test_rounds_of_retention_come_as_often_as_the_configuration_says(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    class Recorded(RetentionTimer):
        def __init__(self, *arguments: Any, interval_ms: int, **options: Any) -> None:
            seen.append(interval_ms)
            super().__init__(*arguments, interval_ms=interval_ms, **options)

    monkeypatch.setattr("rmqstore.store.cleaning.RetentionTimer", Recorded)
    opened(clean_interval_ms=123)
    assert seen == [123]


def test_the_share_of_a_disk_is_that_of_one_store() -> None:
    files = [CommitLogFile(0, 100, 0), CommitLogFile(100, 100, 0)]
    policy = RetentionPolicy.from_config(StoreConfig(replicas_per_disk_partition=4))
    assert share_used_ratio(files, policy, [DiskUse("/a", 0.5, 1000)]) == 0.8
    assert share_used_ratio(files, policy, [DiskUse("/a", 0.5)]) == 0.0


def test_a_store_that_shares_its_disk_is_cleaned_by_its_share(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rmqstore.store.cleaning.disk_use", lambda path: DiskUse(path, 0.1, 1 << 40)
    )
    assert not opened("alone").clean().forced
    shared = opened("shared", replicas_per_disk_partition=1 << 30)
    shared.put("orders", b"paid")
    decision = shared.clean()
    assert decision.forced
    assert "share of the disk" in decision.reasons[0]


@pytest.mark.parametrize(
    "name", sorted(native_settings(StoreConfig(), Directory(Path()), read_only=False))
)
def test_the_core_reads_every_setting_that_it_is_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*arguments: Any, **options: Any) -> dict[str, Any]:
        settings = native_settings(*arguments, **options)
        del settings[name]
        return settings

    monkeypatch.setattr("rmqstore.store.store.native_settings", lacking)
    with pytest.raises(KeyError, match=name):
        rmqstore.open(tmp_path / "a", **FILES)


# -- of a replica


def test_a_master_listens_where_the_file_says(opened: Opened) -> None:
    with Master(opened(ha_listen_port=0)) as master:
        assert master.address is not None
        assert master.address[0] == "127.0.0.1"
        assert master.address[1] != ReplicaConfig().ha_listen_port
    named = opened("b", ha_host_address="127.0.0.2", ha_listen_port=0)
    with Master(named) as master:
        assert master.address is not None
        assert master.address[0] == "127.0.0.2"
    with ReplicatedStore(opened("c", ha_listen_port=0), listen="127.0.0.3") as replica:
        assert replica.address is not None
        assert replica.address[0] == "127.0.0.3"


def test_a_slave_follows_the_master_of_the_file(opened: Opened) -> None:
    with Master(opened(), listen=HERE) as master:
        assert master.address is not None
        host, port = master.address
        with Slave(opened("b", ha_master_address=f"{host}:{port}", **QUICK)) as slave:
            assert slave.master_status is not None
            assert slave.master_status.address == master.address
    with pytest.raises(ArgumentError, match="haMasterAddress is not set"):
        Slave(opened("c"))


def test_a_learner_of_the_file_never_counts(opened: Opened) -> None:
    with Master(opened(**QUICK), listen=HERE) as master:
        assert master.address is not None
        with Slave(opened("b", async_learner=True, **QUICK), master=master.address):
            spin_until(lambda: [each.is_learner for each in master.replicas] == [True], "a learner")


def test_an_empty_slave_begins_at_the_last_file_when_the_file_says_so(opened: Opened) -> None:
    first = opened(**QUICK)
    size = first.config.commit_log_file_size_bytes
    while first.end_offset < 3 * size:
        first.put("orders", bytes(1000))
    with Master(first, listen=HERE) as master:
        assert master.address is not None
        whole, last = opened("b", **QUICK), opened("c", sync_from_last_file=True, **QUICK)
        with Slave(whole, master=master.address), Slave(last, master=master.address):
            master.wait_in_sync(3, timeout=20)
            assert whole.start_offset == 0
            assert last.start_offset == first.end_offset // size * size


def test_arguments_win_over_the_file(opened: Opened) -> None:
    store = opened(in_sync_replicas=3, slave_timeout_ms=50)
    with (
        Master(store, listen=HERE, quorum=Quorum(in_sync=1), mode=Mode.PLAIN) as master,
    ):
        assert store.put("orders", b"paid", durability=Durability.REPLICATED).copies == 1
        assert master.sync_state_set is None


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({"in_sync_replicas": 2}, False),
        ({"in_sync_replicas": 2, "acting_master_enable": True}, True),
        ({"min_in_sync_replicas": 2, "controller_mode_enable": True}, True),
        (
            {
                "in_sync_replicas": 2,
                "auto_in_sync_replicas": True,
                "acting_master_enable": True,
            },
            None,
        ),
    ],
)
def test_a_put_needs_what_the_file_says(
    opened: Opened, changes: Mapping[str, Any], is_refused: bool | None
) -> None:
    store = opened(slave_timeout_ms=50, **changes)
    with Master(store, listen=HERE):
        if is_refused is None:
            assert store.put("orders", b"x", durability=Durability.REPLICATED).copies == 1
            return
        refusal = InSyncReplicasNotEnough if is_refused else ReplicaTimeout
        with pytest.raises(refusal):
            store.put("orders", b"x", durability=Durability.REPLICATED)


# -- all keys

CHANGED: dict[str, Any] = {
    "batch_consume_queue_file_size_bytes": 46,
    "compatibility": "5.3",
    "commit_log_paths": ("/a",),
    "commit_log_read_only_paths": ("/a",),
    "store_host_address": "10.0.0.7",
    "flush_disk_type": FlushDiskType.SYNC_FLUSH,
    "delete_at_hours": (5,),
    "delay_levels_ms": (1000,),
    "logical_disk_used_ratio_max": 0.5,
    "disk_clean_forcibly_percent": 50,
    "disk_warning_percent": 60,
}
"""Values where neither the opposite nor a number above the default will do."""

NEEDS: dict[str, dict[str, Any]] = {
    "commit_log_read_only_paths": {"commit_log_paths": ("/a", "/b")},
    "force_verify_property_crc": {"append_property_crc": True},
    "ha_transfer_bytes_per_second_max": {"ha_flow_control_enable": True},
    "min_in_sync_replicas": {"in_sync_replicas": 3},
}
"""What else must be set so that a field has an effect."""

PLACES: tuple[Callable[[Configuration], object], ...] = (
    _native,
    _policy,
    _quorum,
    _connection,
    _mode,
)
"""Where settings are handed on; what each of these does with them has its own tests."""

TESTS: dict[str, Callable[..., None]] = {
    "root_path": test_a_store_without_a_path_is_where_the_file_says,
    "dledger_commit_log_enable": test_a_commit_log_in_dledger_is_refused_for_writing,
    "epochs_path": test_epochs_at_another_path_are_refused_in_controller_mode,
    "store_type": test_queues_in_rocksdb_are_refused_for_writing,
    "broker_role": test_puts_of_a_sync_master_wait_for_its_copies,
    "index_file_read_enable": test_an_index_that_is_not_read_answers_no_look_up,
    "index_query_count_max": test_a_look_up_returns_as_many_as_the_configuration_says,
    "clean_interval_ms": test_rounds_of_retention_come_as_often_as_the_configuration_says,
    "ha_listen_port": test_a_master_listens_where_the_file_says,
    "ha_host_address": test_a_master_listens_where_the_file_says,
    "ha_master_address": test_a_slave_follows_the_master_of_the_file,
    "async_learner": test_a_learner_of_the_file_never_counts,
    "sync_from_last_file": test_an_empty_slave_begins_at_the_last_file_when_the_file_says_so,
}
"""Fields whose effect is seen in a test of their own."""


def _changed(name: str, default: Any) -> Any:
    if name in CHANGED:
        return CHANGED[name]
    return not default if isinstance(default, bool) else default + 1


@pytest.mark.parametrize("name", sorted(Configuration.options().keys() - TESTS.keys()))
def test_every_other_key_reaches_the_place_where_it_takes_effect(name: str) -> None:
    about = Configuration.options()[name]
    plain = Configuration().replace(**NEEDS.get(name, {}))
    changed = plain.replace(**{name: _changed(name, about.default)})
    read_back = Configuration.from_properties(changed.to_properties())
    assert [place(plain) == place(read_back) for place in PLACES].count(False) >= 1


def test_every_key_without_effect_is_named_when_a_file_sets_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = sorted(KEYS_WITHOUT_EFFECT)
    with caplog.at_level(logging.WARNING, "rmqstore"):
        config = Configuration.from_properties("".join(f"{key}=1\n" for key in keys))
    assert config == Configuration()
    (message,) = caplog.messages
    assert message == (
        f"{len(keys)} keys of the configuration have no effect here: {', '.join(keys)}"
    )
