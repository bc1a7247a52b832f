"""Puts each defect of docs/defects.md back, one line at a time, and shows that its test fails.

    python -m tests.house.mutate                   every mutation; about an hour of one core
    python -m tests.house.mutate epoch "H16"       those whose row, path or test contains a word
    python -m tests.house.mutate --jobs 2          in so many copies of the tree at once

The mutations are in `mutations.toml`: the row by the beginning of its first cell, and either the
line that changes and what it becomes, or the reason why no change of one line brings the defect
back. A mutation is made in a copy of the tree, the extension is built again where C changed, and
the tests that the row names are run. They have to fail, and to pass in the copy as it is.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.house import tree

__all__ = [
    "BuildError",
    "Copy",
    "Mutation",
    "Row",
    "apply",
    "main",
    "mutations",
    "row_of",
    "rows",
    "without_effect",
]

LIST = tree.ROOT / "tests" / "house" / "mutations.toml"
_TEST = re.compile(r"`(tests/[\w/]+\.py(?:::\w+)?)`")
_TEST_SECONDS_MAX = 300
_NAME_SECONDS_MAX = 20
"""More for each test that is named."""
_BUILD_SECONDS_MAX = 600
_FAILED = 1
"""The exit code of pytest when tests failed; others mean that it could not run them."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of docs/defects.md."""

    defect: str
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A line to change, or the reason why there is none."""

    row: str
    """Of docs/defects.md; in other lists what is wrong then."""
    path: str = ""
    after: str = ""
    """Text that occurs once in the file; the line is searched behind it. Empty: from the start."""
    old: str = ""
    """A part of a line, or all of it, that occurs once there."""
    new: str = ""
    tests: tuple[str, ...] = ()
    """In place of the tests that the row names."""
    sweep: str = ""
    """Arguments of `python -m rmqstore.sim` that find it, if the default seeds do not."""
    none: str = ""

    @property
    def is_native(self) -> bool:
        """Whether the extension has to be built again."""
        return self.path.startswith("csrc/") or "/_native/" in self.path


def rows() -> list[Row]:
    """Return the rows that name a test."""
    found = []
    for line in (tree.ROOT / "docs" / "defects.md").read_text().splitlines():
        tests = tuple(_TEST.findall(line))
        if line.startswith("| ") and tests:
            found.append(Row(line[2:].split(" | ")[0].strip(), tests))
    return found


def mutations(path: Path = LIST) -> list[Mutation]:
    """Return the list at *path*."""
    listed = tomllib.loads(path.read_text())["mutation"]
    return [Mutation(**{**each, "tests": tuple(each.get("tests", ()))}) for each in listed]


def row_of(mutation: Mutation, among: Sequence[Row]) -> Row:
    """Return the one row that a mutation is of; raises LookupError for none or several."""
    equal = [each for each in among if each.defect == mutation.row]
    found = equal or [each for each in among if each.defect.startswith(mutation.row)]
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows of docs/defects.md begin with {mutation.row!r}")
    return found[0]


def apply(mutation: Mutation, root: Path) -> None:
    """Change the line below *root*. Raises LookupError where it is not found exactly once."""
    path = root / mutation.path
    text = path.read_text()
    start = 0
    if mutation.after:
        if text.count(mutation.after) != 1:
            raise LookupError(
                f"{mutation.path}: {text.count(mutation.after)} times {mutation.after!r}"
            )
        start = text.index(mutation.after) + len(mutation.after)
    rest = text[start:]
    if not mutation.old or "\n" in mutation.old or "\n" in mutation.new:
        raise LookupError(f"{mutation.path}: {mutation.old!r} is not a line")
    if (not mutation.after and rest.count(mutation.old) != 1) or mutation.old not in rest:
        raise LookupError(f"{mutation.path}: {rest.count(mutation.old)} times {mutation.old!r}")
    path.write_text(text[:start] + rest.replace(mutation.old, mutation.new, 1))


def without_effect(among: Iterable[Mutation], path: str, folder: Path) -> list[Mutation]:
    """Return the mutations of the file *path* that leave a copy of it in *folder* as it is."""
    copy = folder / path
    copy.parent.mkdir(parents=True)
    found = []
    for each in among:
        if each.path == path:
            shutil.copy2(tree.ROOT / path, copy)
            apply(each, folder)
            if copy.read_bytes() == (tree.ROOT / path).read_bytes():
                found.append(each)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the tests took a mutation."""

    is_found: bool
    text: str


class BuildError(Exception):
    """The extension cannot be compiled with a mutation."""


class Copy:
    """A copy of the tree in which one mutation at a time is made and tested."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in tree.files():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree.ROOT / name, target)
        for library in _libraries(tree.ROOT):
            shutil.copy2(library, root / library.relative_to(tree.ROOT))
        if (tree.ROOT / "build" / "cython").is_dir():
            shutil.copytree(tree.ROOT / "build" / "cython", root / "build" / "cython")

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        """Make a mutation for the context. Raises BuildError where that cannot be compiled."""
        path = self.root / mutation.path
        before = path.read_bytes()
        libraries = {each: each.read_bytes() for each in _libraries(self.root)}
        try:
            apply(mutation, self.root)
            if mutation.is_native:
                code, answer = self._build()
                if code != 0:
                    raise BuildError(answer)
            yield
        finally:
            path.write_bytes(before)
            if mutation.is_native:
                for library in _libraries(self.root):
                    if library not in libraries:
                        library.unlink()
                for library, content in libraries.items():
                    library.write_bytes(content)

    def try_out(self, mutation: Mutation, tests: Sequence[str]) -> Outcome:
        """Make a mutation, run its tests, take the mutation back, and return how that went."""
        try:
            with self.mutated(mutation):
                code, answer = self.test(tests)
        except BuildError as error:
            return Outcome(is_found=False, text=f"cannot be built:\n{error}")
        if code == 0 and " passed" not in answer:
            return Outcome(is_found=True, text="skipped: its tests lack something here")
        if code == 0:
            return Outcome(is_found=False, text="its tests pass")
        # A process that died by a signal, or never ended, failed as well.
        is_found = code == _FAILED or code < 0
        return Outcome(
            is_found=is_found, text="" if is_found else f"pytest ended with {code}:\n{answer}"
        )

    def test(self, tests: Collection[str]) -> tuple[int, str]:
        """Return the exit code of the tests, and the end of what they printed."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        seconds_max = _TEST_SECONDS_MAX + _NAME_SECONDS_MAX * len(tests)
        return self.run([*command, "-o", "faulthandler_timeout=0"], seconds_max)

    def _build(self) -> tuple[int, str]:
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        return self.run(command, _BUILD_SECONDS_MAX)

    def run(self, command: Sequence[str], seconds_max: int) -> tuple[int, str]:
        """Return the exit code of *command* in this copy, and the end of what it printed."""
        environment = {**os.environ, "PYTHONPATH": str(self.root), "RMQ_LONG": "0"}
        if shutil.which("ccache"):
            environment |= {"CCACHE_BASEDIR": str(self.root.parent), "CCACHE_NOHASHDIR": "1"}
            environment.setdefault("CC", "ccache gcc")

        with subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                answer, _ = process.communicate(timeout=seconds_max)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return -signal.SIGKILL, f"no end within {seconds_max} s"

        return process.returncode, answer[-3000:]


def _libraries(root: Path) -> list[Path]:
    """Return what a build makes of C: the extensions, and the jar with its own library."""
    package = root / "rmqstore"
    return sorted([*package.glob("_native/*.so"), *package.glob("spark/jvm/*.jar")])


def main(arguments: list[str] | None = None) -> int:
    """Try out the mutations that *arguments* choose; return 1 where one is not found out."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.house.mutate", description="Puts known defects back, one at a time."
    )
    parser.add_argument("word", nargs="*", help="mutations whose row, path or test contains a word")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree. Default: 1")
    parser.add_argument("--python", action="store_true", help="only those that need no compiler")
    given = parser.parse_args(arguments)

    known = rows()

    chosen: list[tuple[Mutation, tuple[str, ...]]] = []
    for mutation in mutations():
        tests = mutation.tests or row_of(mutation, known).tests
        text = " ".join((mutation.row, mutation.path, *tests))
        is_wanted = not given.word or any(word in text for word in given.word)
        if not mutation.none and is_wanted and not (given.python and mutation.is_native):
            chosen.append((mutation, tests))

    if not chosen:
        parser.error("no mutation contains any of these words")

    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(given.jobs) as pool:
        return _try_all(Path(name), chosen, pool, jobs=given.jobs)


def _try_all(
    root: Path,
    chosen: Sequence[tuple[Mutation, tuple[str, ...]]],
    pool: ThreadPoolExecutor,
    *,
    jobs: int,
) -> int:
    idle: SimpleQueue[Copy] = SimpleQueue()
    for number in range(jobs):
        idle.put(Copy(root / str(number)))
    copy = idle.get()
    code, answer = copy.test(sorted({test for _, tests in chosen for test in tests}))
    idle.put(copy)
    if code != 0:
        print(f"the tests fail without any mutation:\n{answer}")
        return 1

    def try_out(mutation: Mutation, tests: Sequence[str]) -> Outcome:
        copy = idle.get()
        try:
            return copy.try_out(mutation, tests)
        finally:
            idle.put(copy)

    survived = 0
    running = [(each, pool.submit(try_out, *each)) for each in chosen]
    for (mutation, tests), future in running:
        outcome = future.result()
        survived += not outcome.is_found
        print(f"{'found' if outcome.is_found else 'NOT FOUND'}: {mutation.row}", flush=True)
        if outcome.text:
            print(f"    {mutation.path}: {mutation.old.strip()} -> {mutation.new.strip()}")
            print(f"    {' '.join(tests)}: {outcome.text}", flush=True)
    print(f"{len(chosen)} mutations, {survived} not found")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
