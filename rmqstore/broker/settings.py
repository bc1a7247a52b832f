"""The settings of a broker: its file, the address that it found, and changes while it runs."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from rmqstore.config import BrokerConfig, BrokerRole, Configuration, with_changes
from rmqstore.errors import ConfigError
from rmqstore.net.addresses import Address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.own_address import OwnAddress, own_address
from rmqstore.net.runtime import Runtime
from rmqstore.store.server_files import save_changes, stored_config

__all__ = ["Settings"]

_RUNNING_KEYS = frozenset(
    about.key for about in BrokerConfig.options().values() if not about.effect.startswith("start")
)
"""Keys that may change while a broker runs; keys of its store and replica need a restart."""


class Settings:
    """The settings that are in effect. Changes are written to *config_file* where configStorePath
    is empty; without both they are lost when the process ends."""

    def __init__(self, config: BrokerConfig, config_file: str | os.PathLike[str] | None) -> None:
        self._found = _found_address(config)
        host = config.host or (self._found.address if self._found else config.bind_address)
        self.config = config.replace(
            host=host,
            bind_address=_bind_address(config.bind_address, host),
            name=config.name or socket.gethostname(),
        )
        """The settings, with the detected host and name if the file names none."""
        self._file = None if config_file is None else Path(config_file)

    async def load(self, runtime: Runtime) -> None:
        """Take changes of former runs. Raises ConfigError, DiskError."""
        self._changing = runtime.lock()
        self._runtime = runtime
        self.config = await runtime.on_disk(lambda: stored_config(self.config, _RUNNING_KEYS))

    def listens_at(self, port: int) -> None:
        """Take the port that the server for clients was bound to."""
        self.config = self.config.replace(listen_port=port)

    @property
    def address(self) -> Address:
        """Host and port that clients connect to."""
        return self.config.host, self.config.listen_port

    @property
    def of_store(self) -> Configuration:
        """The settings of the store and its replica. The address is part of each record."""
        config = self.config
        host, port = self.address
        store = config.store.replace(store_host_address=host, store_host_port=port)
        if config.is_controlled:
            # brokerRole has no effect with a controller: here every master waits for its replicas.
            store = store.replace(broker_role=BrokerRole.SYNC_MASTER)
        return Configuration(store=store, replica=config.replica)

    async def change(self, changes: Mapping[str, str]) -> None:
        """Change settings by RocketMQ key, first in the file.

        Raises ConfigError for unknown keys, bad values, and keys that take effect only at a start,
        and DiskError; then nothing has changed.
        """
        async with self._changing:
            changed = with_changes(self.config, changes)
            at_start = [key for key in sorted(changes) if key not in _RUNNING_KEYS]
            if at_start:
                raise ConfigError(
                    [
                        f"{', '.join(at_start)}: a new value takes effect only at a start; change "
                        "it in the broker's file and start the broker again"
                    ]
                )
            config, file = self.config, self._file
            await self._runtime.on_disk(lambda: save_changes(config, file, changes))
            self.config = changed

    def log_address(self, log: IdentityLog) -> None:
        """Log the address that was found, where the file names none."""
        found = self._found
        if found is None:
            return
        is_certain = found.is_reachable
        log.log(
            logging.INFO if is_certain else logging.WARNING,
            "brokerIP1 is empty: clients and slaves get %s of interface %s%s",
            found.address,
            found.interface,
            "" if is_certain else ", which other machines usually cannot reach; set brokerIP1",
        )


def _found_address(config: BrokerConfig) -> OwnAddress | None:
    """Returns the address of this machine for clients, None where the configuration names one."""
    is_any = config.bind_address in ("0.0.0.0", "::")
    return own_address() if is_any and not config.host else None


def _bind_address(bind_address: str, host: str) -> str:
    """Returns the address to listen at so that *host* is served: as in Java 0.0.0.0 has to include
    IPv6."""
    return "::" if bind_address == "0.0.0.0" and ":" in host else bind_address
