"""The id of a broker in its group: the assignment by a controller, and the texts of its files.

    brokerIdentity        cluster#name#ID
    brokerIdentity-temp   cluster#name#ID#address;milliseconds
    brokerIdentity-life   properties: the same names and id, the life of the process, the lives of
                          the processes before it that used the directory, a CRC

The first two are RocketMQ's. Their texts have no checksum, so a cut text may name another id; the
third file, which RocketMQ ignores, shows that.

A broker applies for the next id under a unique code, which it saves before it sends it. A
controller that has assigned the id under this code confirms it again, so a lost answer does not
waste an id. RocketMQ's brokers drop the code in this case, and apply for another id.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from dataclasses import dataclass

from rmqstore.config import format_properties, parse_properties
from rmqstore.errors import ConfigError, CorruptionError

__all__ = [
    "Application",
    "Apply",
    "Assignment",
    "DropApplication",
    "GroupName",
    "Kept",
    "Life",
    "RequestNextId",
    "SaveApplication",
    "SaveIdentity",
    "assign",
    "settle",
]

_INT64_MAX = 2**63 - 1
_FORMER_MAX = 64


@dataclass(frozen=True, slots=True)
class GroupName:
    """The cluster of a broker, and its name in it. Raises ConfigError for names that the file of
    the identity cannot hold."""

    cluster: str
    name: str

    def __post_init__(self) -> None:
        violations = [
            f"{key}: {value!r} is empty, or has a # or a line break, which separate names in the "
            "file of the broker's identity; give another name"
            for key, value in (("brokerClusterName", self.cluster), ("brokerName", self.name))
            if not value or any(each in value for each in "#\r\n")
        ]
        if violations:
            raise ConfigError(violations)


@dataclass(frozen=True, slots=True)
class Application:
    """An application for an id. The code distinguishes it from those of other brokers."""

    broker_id: int
    check_code: str
    """The address of the broker, a semicolon, and the time."""


@dataclass(frozen=True, slots=True)
class Life:
    """Further saved state of a broker of this library."""

    broker_id: int
    number: int
    """Number of the broker's process, ascending."""
    former: tuple[int, ...] = ()
    """The last processes that used the directory before, ascending. A copy of a directory does not
    name the processes that used the original after it."""

    def next(self, broker_id: int, wall_ms: int) -> Life:
        """Return the life of the next process. It is above this one, and above those of files that
        were lost as long as the clock did not go back."""
        past = (*self.former, self.number)[-_FORMER_MAX:] if self.number else ()
        return Life(broker_id, max(self.number + 1, wall_ms), past)


@dataclass(frozen=True, slots=True)
class Kept:
    """The content of a broker's files: its id, or else the application that may have an answer."""

    broker_id: int | None = None
    application: Application | None = None
    life: Life = Life(0, 0)
    """The life of the last process; its number is 0 where none is known."""
    restored: str = ""
    """The reason why the file of the identity must be written again; else empty."""


# ---- texts


def format_identity(group: GroupName, broker_id: int) -> str:
    """Return the text of the file with an identity."""
    return f"{group.cluster}#{group.name}#{broker_id}"


def format_application(group: GroupName, application: Application) -> str:
    """Return the text of the file with an application."""
    return f"{format_identity(group, application.broker_id)}#{application.check_code}"


def format_life(group: GroupName, life: Life) -> str:
    """Return the text of the file with the life."""
    text = format_properties(
        {
            "brokerClusterName": group.cluster,
            "brokerName": group.name,
            "brokerId": str(life.broker_id),
            "life": str(life.number),
            **({"formerLives": ";".join(map(str, life.former))} if life.former else {}),
        }
    )
    return text + format_properties({"crc": str(zlib.crc32(text.encode()))})


def parse_life(text: str) -> tuple[GroupName, Life] | None:
    """Return the life that the text of its file names; None for another text."""
    try:
        fields = parse_properties(text)
        group = GroupName(fields["brokerClusterName"], fields["brokerName"])
        former = tuple(int(each) for each in fields.get("formerLives", "").split(";") if each)
        life = Life(int(fields["brokerId"]), int(fields["life"]), former)
    except (KeyError, ValueError):
        return None
    return (group, life) if text == format_life(group, life) else None


def settle(
    group: GroupName, *, identity: str | None, application: str | None, life: str | None, path: str
) -> Kept:
    """Return what the texts of the three files mean together; None for a file that is missing.

    *path* names the file of the identity in messages. Raises ConfigError where they belong to
    another group, CorruptionError where the id cannot be known.
    """
    about = None if life is None else parse_life(life)
    past = None if about is None or about[0] != group else about[1]
    last = past or Life(0, 0)

    if identity is not None:
        found = _identity_of(identity.rstrip("\r\n"))
        if past is not None and (found is None or found != (group, past.broker_id)):
            expected = format_identity(group, past.broker_id)
            if not expected.startswith(identity):
                raise _unreadable(
                    path, f"it names {identity[:80]!r} where {expected!r} was written"
                )
            return Kept(past.broker_id, life=last, restored=f"it was cut to {identity!r}")
        if found is not None:
            _check_group(group, found[0], path)
            return Kept(found[1], life=last)

    applied = None if application is None else _application_of(application.rstrip("\r\n"))
    if applied is not None:
        _check_group(group, applied[0], path)
        return Kept(application=applied[1], life=last)
    if identity is not None:
        raise _unreadable(path, f"it holds {identity[:80]!r}")
    return Kept(life=last)


def _identity_of(text: str) -> tuple[GroupName, int] | None:
    parts = text.split("#")
    if len(parts) != 3 or not all(parts) or not _is_id(parts[2]):
        return None
    return GroupName(parts[0], parts[1]), int(parts[2])


def _application_of(text: str) -> tuple[GroupName, Application] | None:
    parts = text.split("#", 3)
    if len(parts) != 4 or not all(parts) or not _is_id(parts[2]):
        return None
    address, separator, time = parts[3].rpartition(";")
    if not (address and separator and time.isascii() and time.isdecimal()):
        return None
    return GroupName(parts[0], parts[1]), Application(int(parts[2]), parts[3])


def _is_id(text: str) -> bool:
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    return is_number and 1 <= int(text) <= _INT64_MAX


def _check_group(group: GroupName, found: GroupName, path: str) -> None:
    if found != group:
        raise ConfigError(
            [
                f"brokerClusterName, brokerName: {group.cluster} and {group.name}, but {path} "
                f"belongs to broker {found.name} of cluster {found.cluster}; give those names, or "
                "use an empty directory"
            ]
        )


def _unreadable(path: str, what: str) -> CorruptionError:
    return CorruptionError(
        f"{path}: {what}, which is not the identity of a broker (cluster#name#ID); write the id "
        "that this broker had (rmqstore admin getSyncStateSet shows the ids), or start with an "
        "empty directory",
        path=path,
        kind="broker identity",
    )


# ---- assignment


@dataclass(frozen=True, slots=True)
class RequestNextId:
    """Request the next free id; the result is the id and the time in ms, None without an answer."""


@dataclass(frozen=True, slots=True)
class SaveApplication:
    """Have the application on disk before it is sent."""

    application: Application


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply for an id; the result is whether it is assigned, None without an answer."""

    application: Application


@dataclass(frozen=True, slots=True)
class DropApplication:
    """Remove an application that was refused."""


@dataclass(frozen=True, slots=True)
class SaveIdentity:
    """Have the assigned id on disk, and remove the application after that."""

    broker_id: int


Step = RequestNextId | SaveApplication | Apply | DropApplication | SaveIdentity
Assignment = Generator[Step, "tuple[int, int] | bool | None", int]


def assign(address: str, application: Application | None = None) -> Assignment:
    """Return the steps to an id for the broker at *address*, which the generator returns.

    Each step is carried out before the next one is requested with its result. *application* is one
    that was kept: the process, or the answer, was lost before the id was known.
    """
    refused = ""
    while True:
        if application is None:
            found = yield RequestNextId()
            if not isinstance(found, tuple):
                continue
            number, wall_ms = found
            code = f"{address};{wall_ms}"
            application = Application(number, code if code != refused else f"{code}1")
            yield SaveApplication(application)
        is_assigned = yield Apply(application)
        if is_assigned is None:
            continue
        if is_assigned:
            yield SaveIdentity(application.broker_id)
            return application.broker_id
        yield DropApplication()
        refused, application = application.check_code, None
