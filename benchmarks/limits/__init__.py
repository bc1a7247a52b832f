"""What this machine allows: programs in C and one compiled module, built and run here.

Programs answer in lines of JSON: `limit`, `variant`, `size` in bytes, `ns` an operation took in
each run. The floor of a Python call is measured in a process of its own
(`python -m benchmarks.limits`).
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "BUILD",
    "COMPILER",
    "ROOT",
    "Line",
    "LimitError",
    "build",
    "floor",
    "program",
    "release_flags",
    "run",
]

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "benchmarks"
COMPILER = shlex.split(os.environ.get("CC", "cc"))
# As fast as this processor can: a limit is not a product.
LIMIT_FLAGS = ("-std=c11", "-O3", "-march=native", "-D_GNU_SOURCE", "-pthread", "-Wall", "-Wextra")
CORE_ALONE = ("base/crc32.c", "base/crc32_x86.c")
PROGRAMS = {
    "memory": ("memory.c", "fold.c"),
    "append": ("append.c", "fold.c"),
    "disk": ("disk.c",),
    "loopback": ("loopback.c",),
    "scan": ("scan.c", "fold.c"),
}
WITHOUT_CORE = ("disk", "loopback")
RUN_TIMEOUT_S = 600

Line = dict[str, Any]


class LimitError(Exception):
    """A program that could not be built, or that failed."""


def release_flags() -> list[str]:
    """Return the flags the extension is compiled with: the interpreter's own and those of
    setup.py."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "extra_compile_args":
            value = node.value
            if isinstance(value, ast.Name):
                value = constants[value.id]
            own = [str(flag) for flag in ast.literal_eval(value)]
            return [*shlex.split(str(sysconfig.get_config_var("CFLAGS") or "")), "-fPIC", *own]

    raise LimitError("setup.py names no extra_compile_args")


def program(name: str) -> Path:
    """Return the program of that name, compiled unless these very sources and flags already were.

    Sources of csrc are compiled as the extension is, those of the limits for this processor alone.
    """
    own = [HERE / source for source in PROGRAMS[name]]
    core: list[Path] = []
    if name == "append":
        others = {"raft", "jni"}  # Parts of other libraries.
        core = sorted(c for c in (ROOT / "csrc").rglob("*.c") if c.parent.name not in others)
    elif name not in WITHOUT_CORE:
        core = [ROOT / "csrc" / source for source in CORE_ALONE]

    flags = release_flags()
    headers = [*(ROOT / "csrc").rglob("*.h"), *HERE.glob("*.h")]
    target = BUILD / f"{name}-{_digest([*own, *core, *headers], [*LIMIT_FLAGS, *flags])}"

    if target.exists():
        return target

    parts = BUILD / f"{target.name}.{os.getpid()}"
    parts.mkdir(parents=True, exist_ok=True)
    include = f"-I{ROOT / 'csrc'}"

    objects = []
    for source in [*own, *core]:
        objects.append(str(parts / f"{source.stem}.o"))
        chosen = LIMIT_FLAGS if source in own else flags
        _call([*COMPILER, *chosen, include, "-c", str(source), "-o", objects[-1]])

    made = parts / name
    _call([*COMPILER, "-pthread", *objects, "-o", str(made)])
    made.replace(target)

    for left in parts.iterdir():
        left.unlink()
    parts.rmdir()
    return target


def build() -> None:
    """Compile everything, so that no measurement waits for a compiler."""
    for name in PROGRAMS:
        program(name)
    _floor_module()


def run(name: str, *arguments: object) -> list[Line]:
    """Run a program and return its lines."""
    answer = _call([str(program(name)), *(str(each) for each in arguments)])
    return [json.loads(line) for line in answer.splitlines()]


def floor(runs: int) -> list[Line]:
    """Return what each part of a call from Python costs, measured in a fresh process."""
    answer = _call([sys.executable, "-m", "benchmarks.limits", str(_floor_module()), str(runs)])
    return [json.loads(line) for line in answer.splitlines()]


def _floor_module() -> Path:
    if importlib.util.find_spec("Cython") is None:
        raise LimitError("the floor of a Python call needs cython")
    source = HERE / "floor.pyx"
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    target = BUILD / _digest([source], [sys.version, *release_flags()]) / f"floor{suffix}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        translated = target.with_name("floor.c")
        _call([sys.executable, "-m", "cython", "-3", str(source), "-o", str(translated)])
        include = f"-I{sysconfig.get_path('include')}"
        made = target.with_suffix(".made")
        _call([*COMPILER, *release_flags(), include, "-shared", str(translated), "-o", str(made)])
        made.replace(target)
    return target


def _digest(files: Iterable[Path], flags: Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join([*COMPILER, *flags]).encode())
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _call(command: Sequence[str]) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise LimitError(
            f"{Path(command[0]).name} failed ({done.returncode}): {done.stderr[-2000:]}"
        )
    return done.stdout
