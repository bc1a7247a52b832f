"""Requests of an operator to running servers, Java's or ours; `rmqstore.cli` prints the answers."""

from typing import TYPE_CHECKING

from rmqstore.exports import lazily

if TYPE_CHECKING:
    from rmqstore.admin.broker import BrokerAdmin
    from rmqstore.admin.controller import ControllerAdmin
    from rmqstore.admin.nameserver import NameserverAdmin
    from rmqstore.admin.servers import Change

__all__ = ["BrokerAdmin", "Change", "ControllerAdmin", "NameserverAdmin"]

__getattr__ = lazily(
    __name__,
    {
        "rmqstore.admin.broker": ("BrokerAdmin",),
        "rmqstore.admin.controller": ("ControllerAdmin",),
        "rmqstore.admin.nameserver": ("NameserverAdmin",),
        "rmqstore.admin.servers": ("Change",),
    },
)
