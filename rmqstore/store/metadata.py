"""The metadata files under config/: topics, consumer offsets and delay offsets.

topics.json           dataVersion, topicConfigTable {topic: {...}}
consumerOffset.json   dataVersion, offsetTable {"topic@group": {queue: offset}}
delayOffset.json      dataVersion, offsetTable {level: offset}

They are read as RocketMQ 5.3 (fastjson) and 5.5 (fastjson2) write them: numeric keys without
quotes, and `$ref` objects where one value occurs twice. They are written as 5.3 does, which both
accept. Other than RocketMQ, a save is atomic and durable, and no load deletes anything: a file that
cannot be read is passed over for its .bak, and set aside as .damaged when the next save takes its
place.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from rmqstore import arguments
from rmqstore.errors import ArgumentError, CorruptionError, DiskError, UnsupportedStoreError
from rmqstore.regular_file import read_regular

__all__ = [
    "ConsumerOffsets",
    "DataVersion",
    "DelayOffsets",
    "TopicConfig",
    "TopicTable",
    "batch_queue_count",
]

_TOPIC_GROUP_SEPARATOR = "@"
_BATCH_QUEUES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The version of a table. RocketMQ compares all three parts for equality."""

    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def next(self, *, now_ms: int, state_version: int = 0) -> DataVersion:
        """Return the version after a change at *now_ms*."""
        return DataVersion(state_version, now_ms, self.counter + 1)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic. *others* keeps members this package has no use for, so that a save loses none."""

    name: str
    read_queue_count: int = 16
    write_queue_count: int = 16
    perm: int = 6
    """Bits: 4 readable, 2 writable, 1 inherited by topics made from it."""
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plain: dict[str, object] = {
            name: arguments.utf8(name, getattr(self, name)) for name in ("name", "filter_type")
        }

        for name in ("read_queue_count", "write_queue_count", "perm", "sys_flag"):
            plain[name] = arguments.integer(name, getattr(self, name))
        plain["order"] = arguments.boolean("order", self.order)

        attributes = arguments.mapping("attributes", self.attributes, "a mapping of str to str")
        plain["attributes"] = {
            arguments.utf8("a name in attributes", name): arguments.utf8(
                f"attributes[{name!r}]", value
            )
            for name, value in attributes.items()
        }

        arguments.mapping("others", self.others, "a mapping of str to JSON values")
        for name, value in plain.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class _Table:
    """What the files have in common: members of one JSON object, a version, and how they are
    kept."""

    FILE_NAME: ClassVar[str]

    @classmethod
    @abstractmethod
    def _from_members(cls, members: _Members) -> Self: ...

    @abstractmethod
    def _members(self) -> dict[str, Any]: ...

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the table a file's *text* holds. Raises ValueError naming the member at fault."""
        return cls._from_members(_Members(_parse(text), ""))

    def to_json(self) -> str:
        """Return the file's text as RocketMQ 5.3 writes it: tab-indented, numeric keys unquoted.

        Raises ArgumentError when a member is not a JSON value.
        """
        try:
            text = _pretty(dict(sorted(self._members().items())), depth=0)
            text.encode()
        except (RecursionError, TypeError, ValueError) as error:
            raise ArgumentError(
                f"a member for {self.FILE_NAME} is not a JSON value ({error}); give text, numbers, "
                "lists or objects"
            ) from error
        return text

    @classmethod
    def load(cls, root: str | os.PathLike[str]) -> Self:
        """Return the table of the store at *root*; an empty one when there is no file.

        A missing, empty or unreadable file gives way to its .bak. Raises CorruptionError when a
        file is there and neither can be read, DiskError when the system refuses.
        """
        path = _path_of(root, cls.FILE_NAME)
        problems: list[str] = []

        for candidate in (path, _beside(path, ".bak")):
            try:
                return cls.from_json(read_regular(candidate).decode())
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _disk_error(error, "read", candidate) from error
            except ValueError as error:
                problems.append(f"{candidate}: {error}")

        if not problems:
            return cls()
        raise CorruptionError(
            f"{'; '.join(problems)}; restore the file from a copy, or move it away to start empty",
            path=str(path),
            kind="metadata",
            suggested_command="rmqstore verify PATH",
        )

    def save(self, root: str | os.PathLike[str]) -> None:
        """Write the table to the store at *root*; when this returns, it survives a power loss.

        At every moment before, the file or its .bak holds a whole older table. Raises DiskError.
        """
        path = _path_of(root, self.FILE_NAME)
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
                sync_directory(path.parent.parent)
            self._keep_predecessor(path)
            replace_durably(path, self.to_json().encode())
        except OSError as error:
            raise _disk_error(error, "write", path) from error

    def _keep_predecessor(self, path: Path) -> None:
        """Copies a readable file to .bak; one that is not must not push out a good .bak."""
        try:
            old = read_regular(path)
        except FileNotFoundError:
            return
        try:
            type(self).from_json(old.decode())
        except ValueError:
            names = (_beside(path, f".damaged{n or ''}") for n in itertools.count())
            os.rename(path, next(name for name in names if not name.exists()))
        else:
            replace_durably(_beside(path, ".bak"), old)


@dataclass(frozen=True, slots=True)
class TopicTable(_Table):
    """config/topics.json: every topic by name."""

    FILE_NAME = "topics.json"

    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    others: Mapping[str, Any] = field(default_factory=dict)

    def with_topic(self, topic: TopicConfig, *, now_ms: int) -> Self:
        """Return the table with *topic*, in place of an older one of its name."""
        return replace(
            self,
            topics={**self.topics, topic.name: topic},
            data_version=self.data_version.next(now_ms=now_ms),
        )

    @classmethod
    def _from_members(cls, members: _Members) -> Self:
        version = _version_of(members)
        topics = {name: _topic_of(name, each) for name, each in members.table("topicConfigTable")}
        return cls(topics, version, members.rest())

    def _members(self) -> dict[str, Any]:
        table = {name: _topic_members(topic) for name, topic in self.topics.items()}
        version = _version_members(self.data_version)
        return {**self.others, "dataVersion": version, "topicConfigTable": table}


@dataclass(frozen=True, slots=True)
class ConsumerOffsets(_Table):
    """config/consumerOffset.json: by "topic@group", the next offset to consume of each queue."""

    FILE_NAME = "consumerOffset.json"

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    others: Mapping[str, Any] = field(default_factory=dict)

    def of(self, topic: str, group: str) -> Mapping[int, int]:
        """Return the offsets of one group on one topic by queue; empty when there are none."""
        return self.offsets.get(f"{topic}{_TOPIC_GROUP_SEPARATOR}{group}", {})

    def with_offset(self, topic: str, group: str, *, queue: int, offset: int, now_ms: int) -> Self:
        """Return the offsets with that of *group* on one queue of *topic*."""
        key = f"{topic}{_TOPIC_GROUP_SEPARATOR}{group}"
        return replace(
            self,
            offsets={**self.offsets, key: {**self.of(topic, group), queue: offset}},
            data_version=self.data_version.next(now_ms=now_ms),
        )

    @classmethod
    def _from_members(cls, members: _Members) -> Self:
        version = _version_of(members)
        offsets = {key: each.int_table() for key, each in members.table("offsetTable")}
        return cls(offsets, version, members.rest())

    def _members(self) -> dict[str, Any]:
        version = _version_members(self.data_version)
        return {**self.others, "dataVersion": version, "offsetTable": self.offsets}


@dataclass(frozen=True, slots=True)
class DelayOffsets(_Table):
    """config/delayOffset.json: by delay level (from 1), the next offset to deliver."""

    FILE_NAME = "delayOffset.json"

    offsets: Mapping[int, int] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def _from_members(cls, members: _Members) -> Self:
        version = _version_of(members)
        return cls(members.child("offsetTable").int_table(), version, members.rest())

    def _members(self) -> dict[str, Any]:
        version = _version_members(self.data_version)
        return {**self.others, "dataVersion": version, "offsetTable": self.offsets}


class _Members:
    """The members of one JSON object, taken out one by one; mistakes name their place."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            found = arguments.shown(value)
            raise ValueError(f"{place or 'the file'} holds {found} instead of a JSON object")
        self._left: dict[str, Any] = dict(value)
        self._place = place

    def take(self, name: str, default: Any) -> Any:
        """Returns a member of the type of *default*; absent and null mean *default*."""
        value = self._left.pop(name, None)
        if value is None:
            return default
        if type(value) is not type(default):
            kind = type(default).__name__
            raise ValueError(f"{self._name_of(name)} is {value!r}, where {kind} is expected")
        return value

    def child(self, name: str) -> _Members:
        return _Members(self.take(name, {}), self._name_of(name))

    def table(self, name: str) -> Iterator[tuple[str, _Members]]:
        child = self.child(name)
        return ((key, _Members(each, child._name_of(key))) for key, each in child._left.items())

    def int_table(self) -> dict[int, int]:
        table: dict[int, int] = {}
        for key in list(self._left):
            if not re.fullmatch("-?[0-9]+", key):
                raise ValueError(f"{self._name_of(key)}: the key is not a whole number")
            table[int(key)] = self.take(key, 0)
        return table

    def rest(self) -> dict[str, Any]:
        return self._left

    def _name_of(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name


def _version_of(members: _Members) -> DataVersion:
    version = members.child("dataVersion")
    return DataVersion(
        version.take("stateVersion", 0), version.take("timestamp", 0), version.take("counter", 0)
    )


def _version_members(version: DataVersion) -> dict[str, int]:
    return {
        "counter": version.counter,
        "stateVersion": version.state_version,
        "timestamp": version.timestamp_ms,
    }


def _topic_of(key: str, members: _Members) -> TopicConfig:
    return TopicConfig(
        name=members.take("topicName", key),
        read_queue_count=members.take("readQueueNums", 16),
        write_queue_count=members.take("writeQueueNums", 16),
        perm=members.take("perm", 6),
        filter_type=members.take("topicFilterType", "SINGLE_TAG"),
        sys_flag=members.take("topicSysFlag", 0),
        order=members.take("order", False),
        attributes=members.take("attributes", {}),
        others=members.rest(),
    )


def _topic_members(topic: TopicConfig) -> dict[str, Any]:
    members = {
        **topic.others,
        "attributes": topic.attributes,
        "order": topic.order,
        "perm": topic.perm,
        "readQueueNums": topic.read_queue_count,
        "topicFilterType": topic.filter_type,
        "topicName": topic.name,
        "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queue_count,
    }
    return dict(sorted(members.items()))


# A string, closed or not, or a number in the place of a key. Strings come first, so that nothing
# inside one is taken for a key.
_STRING_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?<=[{,])(\s*+)(-?[0-9]+)(\s*+:)', re.DOTALL)
_REFERENCE = re.compile(r"\$((?:\.(?:\\.|[^.\[\\])+|\[-?[0-9]+\])*)", re.DOTALL)
_REFERENCE_STEP = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[(-?[0-9]+)\]", re.DOTALL)


def _parse(text: str) -> object:
    """Returns the value of fastjson's text: bare numeric keys allowed, `$ref` objects resolved."""
    import json

    def quoted(match: re.Match[str]) -> str:
        return match[0] if match[2] is None else f'{match[1]}"{match[2]}"{match[3]}'

    try:
        root = json.loads(_STRING_OR_BARE_KEY.sub(quoted, text), strict=False)
        return _Resolver(root).resolve(root) if '"$ref"' in text else root
    except RecursionError:
        raise ValueError("objects are nested too deeply, or refer to themselves") from None


class _Resolver:
    """Replaces {"$ref": path} by the value at the path, each path once."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._known: dict[str, object] = {}

    def resolve(self, value: object) -> object:
        if isinstance(value, list):
            return [self.resolve(each) for each in value]
        if not isinstance(value, dict):
            return value
        reference = value.get("$ref")
        if len(value) != 1 or not isinstance(reference, str):
            return {key: self.resolve(each) for key, each in value.items()}
        if reference not in self._known:
            # A path that leads back to itself never gets here twice: it ends as RecursionError.
            self._known[reference] = self.resolve(self._find(reference))
        return self._known[reference]

    def _find(self, reference: str) -> object:
        whole = _REFERENCE.fullmatch(reference)
        if whole is None:
            raise ValueError(
                f"$ref {reference!r} is not a path from the root, such as $.offsetTable"
            )
        value: Any = self._root
        for name, index in _REFERENCE_STEP.findall(whole[1]):
            try:
                if isinstance(value, list):
                    value = value[int(index)]
                else:
                    value = value[index or re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)]
            except (KeyError, IndexError, TypeError, ValueError):
                raise ValueError(f"$ref {reference!r} names no member of the file") from None
        return value


def _pretty(value: Any, *, depth: int) -> str:
    """Returns *value* as fastjson 1.2 prints it: a map of numeric keys is printed on one line."""
    import json

    if not isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not value:
        return "{}"
    end = "\n" + "\t" * depth
    pairs = [(key, _pretty(each, depth=depth + 1)) for key, each in value.items()]
    if all(isinstance(key, int) for key, _ in pairs):
        return "{" + ",".join(f"{key}:{text}" for key, text in pairs) + end + "}"
    lines = [f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, text in pairs]
    return "{" + ",".join(f"{end}\t{line}" for line in lines) + end + "}"


def _path_of(root: str | os.PathLike[str], name: str) -> Path:
    return Path(root) / "config" / name


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def replace_durably(path: Path, data: bytes) -> None:
    """Puts *data* in the place of a file, whole or not at all, and on disk when it returns."""
    temporary = _beside(path, ".tmp")
    # A link or a FIFO with this name must not be written through.
    temporary.unlink(missing_ok=True)
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _disk_error(error: OSError, act: str, path: Path) -> DiskError:
    return DiskError(error.errno or 0, f"cannot {act} {path}: {error.strerror}")


def batch_queue_count(topic: TopicConfig) -> int:
    """Return how many queues for inner batches *topic* has, 0 unless its queue.type is BatchCQ.

    Raises UnsupportedStoreError for more than 65,536.
    """
    attributes = topic.attributes
    if "BatchCQ" not in (attributes.get("queue.type"), attributes.get("+queue.type")):
        return 0
    count = max(topic.write_queue_count, topic.read_queue_count)
    if count > _BATCH_QUEUES_MAX:
        raise UnsupportedStoreError(
            f"topic {topic.name} has {count} batch queues; the limit is {_BATCH_QUEUES_MAX}"
        )
    return count
