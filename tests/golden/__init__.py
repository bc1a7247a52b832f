"""Stores written by the real Java store, unpacked for tests.

`every_case` parametrises a test over releases and cases; the fixture `golden_case`
(tests/conftest.py) gives the test its own writable copy.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DIRECTORY = Path(__file__).parent
RELEASES = ("5.3.3", "5.5.0")
NAMES = tuple(sorted(spec.stem for spec in (DIRECTORY / "specs").glob("*.json")))


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """One store as the Java store left it. README.md tells what each file and field means."""

    release: str
    name: str
    directory: Path
    spec: Mapping[str, Any]
    manifest: Sequence[Mapping[str, Any]]
    """One entry per record, in commit log order."""
    expected: Sequence[Mapping[str, Any]]
    """What the Java store reports on opening this directory, one entry per line."""

    @property
    def root(self) -> Path:
        """The store root: the folder with `commitlog/` in it."""
        return self.directory / "store"

    def expected_of(self, kind: str) -> Iterator[Mapping[str, Any]]:
        """Yield the expected lines of one type, such as `queue` or `checkpoint`."""
        return (line for line in self.expected if line["type"] == kind)


class GoldenCases:
    """Unpacks each case once into *directory* and hands out private copies."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._masters: dict[tuple[str, str], GoldenCase] = {}

    def copy(self, release: str, name: str, *, into: Path) -> GoldenCase:
        """Return a case whose files lie in a fresh folder under *into*, free to be changed."""
        master = self._master(release, name)
        directory = Path(tempfile.mkdtemp(prefix=f"{release}-{name}-", dir=into))
        shutil.copytree(master.directory, directory, dirs_exist_ok=True)
        for path in (directory, *directory.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        return GoldenCase(release, name, directory, master.spec, master.manifest, master.expected)

    def _master(self, release: str, name: str) -> GoldenCase:
        found = self._masters.get((release, name))
        if found is None:
            found = self._masters[release, name] = _unpack(release, name, self._directory)
        return found


def archive(release: str, name: str) -> Path:
    """Return the packed case in the tree."""
    return DIRECTORY / release / f"{name}.tar.xz"


def every_case(*names: str, without: Collection[str] = ()) -> pytest.MarkDecorator:
    """Return a mark that gives a test `release` and `case_name`, for every release.

    All cases are meant when no name is given.
    """
    unknown = sorted({*names, *without} - set(NAMES))
    if unknown:
        raise ValueError(f"no such golden case: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    chosen = [name for name in names or NAMES if name not in without]
    return pytest.mark.parametrize(
        ("release", "case_name"),
        [
            pytest.param(release, name, id=f"{release}-{name}")
            for release in RELEASES
            for name in chosen
        ],
    )


def _unpack(release: str, name: str, into: Path) -> GoldenCase:
    target = into / release
    with tarfile.open(archive(release, name)) as packed:
        # The filter exists from 3.11.4 on and is asked for by later releases.
        packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        packed.extractall(target)

    directory = target / name
    for path in directory.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)

    return GoldenCase(
        release=release,
        name=name,
        directory=directory,
        spec=json.loads((directory / "spec.json").read_bytes()),
        manifest=_json_lines(directory / "manifest.jsonl"),
        expected=_json_lines(directory / "expected.jsonl"),
    )


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]
