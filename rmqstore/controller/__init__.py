"""The controller: it assigns broker ids, maintains sync-state sets and elects masters."""

from typing import TYPE_CHECKING

from rmqstore.exports import lazily

if TYPE_CHECKING:
    from rmqstore.controller.server import Controller, ControllerStatus

__all__ = ["Controller", "ControllerStatus"]

__getattr__ = lazily(
    __name__,
    {
        "rmqstore.controller.server": (
            "Controller",
            "ControllerStatus",
        ),
    },
)
