"""The settings of a store, and the files and variables they come from."""

from rmqstore.config.options import (
    BrokerRole,
    FlushDiskType,
    Option,
    format_delay_levels,
    parse_delay_levels,
)
from rmqstore.config.properties import format_properties, parse_properties
from rmqstore.config.store_config import Compatibility, StoreConfig

__all__ = [
    "BrokerRole",
    "Compatibility",
    "FlushDiskType",
    "Option",
    "StoreConfig",
    "format_delay_levels",
    "format_properties",
    "parse_delay_levels",
    "parse_properties",
]
