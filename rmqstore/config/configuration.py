"""A whole configuration: the settings of every part, read from one source."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore import arguments
from rmqstore.config import sources
from rmqstore.config.options import Option
from rmqstore.config.replica_config import ReplicaConfig
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import ConfigError

__all__ = ["Configuration"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The settings in one RocketMQ file, by part.

    `rmqstore.open` accepts it instead of a StoreConfig; a replica of that store starts from its
    *replica* part. The reading functions raise one ConfigError that lists every mistake in all
    parts, with the nearest known key for an unknown key. One warning names the keys that have no
    effect here.
    """

    store: StoreConfig = field(default_factory=StoreConfig)
    replica: ReplicaConfig = field(default_factory=ReplicaConfig)

    def __post_init__(self) -> None:
        arguments.instance("store", self.store, StoreConfig)
        arguments.instance("replica", self.replica, ReplicaConfig)

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Return the option table: the RocketMQ side of every field of all parts, by field name."""
        return {**StoreConfig.options(), **ReplicaConfig.options()}

    @classmethod
    def from_properties(
        cls, path_or_text: str | os.PathLike[str], *, strict: bool = False
    ) -> Configuration:
        """Return the configuration of a RocketMQ broker's own file, as StoreConfig.from_properties
        reads it."""
        text, name = sources.source_of(path_or_text, encoding="iso-8859-1")
        return cls._of(sources.from_properties(text, cls.options(), strict=strict), source=name)

    @classmethod
    def from_toml(cls, path_or_text: str | os.PathLike[str]) -> Configuration:
        """Return the configuration of a TOML document, as StoreConfig.from_toml reads it."""
        text, name = sources.source_of(path_or_text, encoding="utf-8-sig")
        return cls._of(sources.from_toml(text, cls.options()), source=name)

    @classmethod
    def from_env(
        cls, prefix: str = "RMQSTORE_", *, environ: Mapping[str, str] | None = None
    ) -> Configuration:
        """Return the configuration of environment variables, as StoreConfig.from_env reads them."""
        environment = os.environ if environ is None else environ
        settings = sources.from_environment(environment, prefix, cls.options())
        return cls._of(settings, source="the environment")

    @classmethod
    def _of(cls, settings: sources.Settings, *, source: str) -> Configuration:
        store, replica = sources.build(settings, (StoreConfig, ReplicaConfig), source=source)
        sources.warn(settings, source, used=cls.options())
        return cls(store=store, replica=replica)

    def to_properties(self) -> str:
        """Return every setting as a RocketMQ broker's file; from_properties reads the same value
        back."""
        return sources.to_properties(self.store, self.replica)

    def replace(self, **changes: Any) -> Configuration:
        """Return a copy with *changes* by field name of a part. Raises ConfigError for unknown
        names and bad values."""
        sources.check_names(changes, self.options())
        violations: list[str] = []
        parts: dict[str, Any] = {}
        for name in ("store", "replica"):
            part = getattr(self, name)
            own = {each: changes[each] for each in changes if each in part.options()}
            try:
                parts[name] = dataclasses.replace(part, **own)
            except ConfigError as error:
                violations += error.violations
        if violations:
            raise ConfigError(violations)
        return Configuration(**parts)
