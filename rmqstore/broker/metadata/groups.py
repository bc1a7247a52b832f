"""RocketMQ's rules for consumer groups: names, groups of the system, creation."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import GroupConfig
from rmqstore.topic_names import LIGHT_PREFIX

__all__ = ["PREDEFINED", "check_name", "is_system", "may_be_made"]

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_NAME_SIZE_MAX = 255
_ADMIN_NAME_SIZE_MAX = 120
"""Of groups that an operator makes: the limit of 5.5.0."""
_SYSTEM_PREFIX = "CID_RMQ_SYS_"

PREDEFINED: Mapping[str, GroupConfig] = {
    name: GroupConfig(name)
    for name in (
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    )
}
"""The groups that a broker has from its start; a stored group of the name counts instead."""


def is_system(name: str) -> bool:
    """Whether a group belongs to RocketMQ itself."""
    return name.startswith(_SYSTEM_PREFIX) or name in PREDEFINED


def may_be_made(name: str, *, creates_groups: bool) -> bool:
    """Whether a consumer that names an unknown group makes it."""
    is_named = len(name) <= _NAME_SIZE_MAX and _NAME.fullmatch(name) is not None
    return is_named and (creates_groups or is_system(name))


def light_group(name: str) -> GroupConfig | None:
    """Return the group of a light queue, which exists by its name; None for another name."""
    is_light = name.startswith(LIGHT_PREFIX) and len(name) <= _NAME_SIZE_MAX
    return GroupConfig(name) if is_light and _NAME.fullmatch(name) else None


def check_name(name: str) -> None:
    """Check the name of a group that an operator makes. Raises RequestRefused."""
    if not name.strip():
        raise _invalid("The specified group is blank.")
    if not _NAME.fullmatch(name):
        raise _invalid(
            "The specified group contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if len(name) > _ADMIN_NAME_SIZE_MAX:
        raise _invalid(
            f"The specified group is {len(name)} characters long, the limit is "
            f"{_ADMIN_NAME_SIZE_MAX}."
        )


def _invalid(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.INVALID_PARAMETER)
