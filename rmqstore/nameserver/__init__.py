"""The nameserver: brokers register, clients look up the queues of a topic."""

from typing import TYPE_CHECKING

from rmqstore.exports import lazily

if TYPE_CHECKING:
    from rmqstore.nameserver.server import Nameserver

__all__ = ["Nameserver"]

__getattr__ = lazily(
    __name__,
    {
        "rmqstore.nameserver.server": ("Nameserver",),
    },
)
