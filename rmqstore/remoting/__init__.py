"""The remoting protocol of RocketMQ: frames, codes, headers, JSON bodies, a server and a client."""

from typing import TYPE_CHECKING

from rmqstore.exports import lazily

if TYPE_CHECKING:
    from rmqstore.remoting.client import RemotingClient
    from rmqstore.remoting.codes import RequestCode, ResponseCode
    from rmqstore.remoting.frames import Frame
    from rmqstore.remoting.server import RemotingServer

__all__ = ["Frame", "RemotingClient", "RemotingServer", "RequestCode", "ResponseCode"]

__getattr__ = lazily(
    __name__,
    {
        "rmqstore.remoting.client": ("RemotingClient",),
        "rmqstore.remoting.codes": (
            "RequestCode",
            "ResponseCode",
        ),
        "rmqstore.remoting.frames": ("Frame",),
        "rmqstore.remoting.server": ("RemotingServer",),
    },
)
