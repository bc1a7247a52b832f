"""The settings of a replica that do not change with its role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rmqstore import arguments
from rmqstore.config import FlushDiskType
from rmqstore.errors import ArgumentError
from rmqstore.net.addresses import Address, AllowList
from rmqstore.replication.group.fixed_master import FixedMaster
from rmqstore.replication.group.node import HaProtocol
from rmqstore.replication.group.quorum import Lease, Mode, Quorum
from rmqstore.replication.protocol.events import HaOptions
from rmqstore.store import Store

__all__ = ["Settings", "settings_of"]

_CONNECTIONS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that do not change with a role; see `rmqstore.replication.Replica`."""

    broker_id: int
    """-1 before the id that is kept with the store is known."""
    address: Address | None
    """Where slaves connect; None without a port, and before it is open."""
    protocol: HaProtocol
    quorum: Quorum
    mode: Mode
    options: HaOptions
    lease: Lease
    is_gated: bool
    waits_for_admission: bool
    connections_max: int
    allowed: AllowList
    is_learner: bool
    sync_from_last_file: bool
    learns_while_partial: bool
    fixed: FixedMaster | None


def settings_of(
    store: Store,
    *,
    broker_id: int | None,
    protocol: HaProtocol,
    quorum: Quorum | None,
    mode: Mode | None,
    options: HaOptions | None,
    lease: Lease | None,
    is_gated: bool,
    waits_for_admission: bool,
    connections_max: int,
    allow: Sequence[str],
    is_learner: bool | None,
    sync_from_last_file: bool | None,
    learns_while_partial: bool,
    fixed: FixedMaster | None,
) -> Settings:
    """Return the settings of a replica of *store* whose configuration decides what is None. Raises
    ArgumentError."""
    if broker_id is not None:
        broker_id = arguments.integer("broker_id", broker_id)
        if broker_id < 0:
            raise ArgumentError(f"broker_id {broker_id}; ids are 0 or more")

    for name, value, kind in (
        ("quorum", quorum, Quorum),
        ("mode", mode, Mode),
        ("options", options, HaOptions),
        ("lease", lease, Lease),
    ):
        if value is not None:
            arguments.instance(name, value, kind)

    connections_max = arguments.integer("connections_max", connections_max)
    if not 1 <= connections_max <= _CONNECTIONS_MAX:
        raise ArgumentError(
            f"connections_max is {connections_max}; it must be from 1 to {_CONNECTIONS_MAX}"
        )
    arguments.text("protocol", protocol)
    if protocol not in ("autoswitch", "classic"):
        raise ArgumentError(f"protocol {protocol!r}; there are 'autoswitch' and 'classic'")

    config = store.replica_config
    if is_learner is None:
        is_learner = config.async_learner
    if sync_from_last_file is None:
        sync_from_last_file = config.sync_from_last_file
    return Settings(
        broker_id=-1 if broker_id is None else broker_id,
        address=None,
        protocol=protocol,
        quorum=quorum or Quorum.from_config(config),
        mode=mode or Mode.from_config(config, has_set=protocol == "autoswitch"),
        options=_options_of(options or HaOptions.from_config(config), store),
        lease=lease or Lease(),
        is_gated=arguments.boolean("is_gated", is_gated),
        waits_for_admission=arguments.boolean("waits_for_admission", waits_for_admission),
        connections_max=connections_max,
        allowed=AllowList(allow),
        is_learner=arguments.boolean("is_learner", is_learner),
        sync_from_last_file=arguments.boolean("sync_from_last_file", sync_from_last_file),
        learns_while_partial=arguments.boolean("learns_while_partial", learns_while_partial),
        fixed=fixed,
    )


def _options_of(options: HaOptions, store: Store) -> HaOptions:
    """Return *options* with what the store decides where they leave it open."""
    ack_flushed = options.ack_flushed
    if ack_flushed is None:
        ack_flushed = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    return replace(options, ack_flushed=ack_flushed, streams=True, checks=True)
