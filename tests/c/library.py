"""The C core as one shared library, with declarations taken from its own headers.

The headers are run through the preprocessor with empty stand-ins for those of the system; what
cffi cannot parse and no test calls (inline functions, static assertions, attributes) is cut out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import cffi

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "csrc"
BUILD = ROOT / "build" / "tests-c"

COMPILER = shlex.split(os.environ.get("CC", "cc"))
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
FLAGS = ("-std=c11", "-O2", "-g", "-D_GNU_SOURCE", "-UNDEBUG", "-fPIC", "-pthread", *WARNINGS)
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")

_SYSTEM_INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
_CONSTANT = re.compile(
    r"^#define\s+(RMQ_\w+)\s+(0x[0-9A-Fa-f]+|\d+)[uUlL]*\s*(?:/[/*].*)?$", re.MULTILINE
)
_ATOMIC_POINTER = re.compile(r"_Atomic\(([^()]*)\)")
_INLINE_HEAD = re.compile(r"static inline [^;{]*\{")
_ASSERTION = re.compile(r"_Static_assert\s*\([^;]*;")
_OPAQUE_TYPES = ("pthread_mutex_t", "pthread_cond_t", "pthread_t", "sem_t")


def is_sanitized() -> bool:
    """Tell whether RMQ_SANITIZE asks for the build with ASan and UBSan."""
    return os.environ.get("RMQ_SANITIZE", "0") not in ("", "0")


def build(extra: Sequence[Path] = (), options: Sequence[str] = ()) -> Path:
    """Return the shared library of all of csrc, compiled unless these sources already were.

    *extra* are more C files, *options* more words for the linker.
    """
    flags = [*FLAGS, *options, *(SANITIZERS if is_sanitized() else ())]
    digest = hashlib.sha256(" ".join([*COMPILER, *flags]).encode())
    for path in [*sorted(SOURCES.glob("*.[ch]")), *extra]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    library = BUILD / f"{digest.hexdigest()[:24]}.so"
    if not library.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        # Another run may build the same: each has its own place, and the last rename wins.
        with tempfile.TemporaryDirectory(dir=BUILD) as directory:
            made = Path(directory) / library.name
            sources = [str(path) for path in [*sorted(SOURCES.glob("*.c")), *extra]]
            _run([*COMPILER, *flags, "-shared", f"-I{SOURCES}", "-o", str(made), *sources])
            made.replace(library)
    return library


def declarations() -> str:
    """Return what the headers of csrc declare, in the C that cffi understands."""
    headers = sorted(SOURCES.glob("*.h"))
    texts = [path.read_text() for path in headers]
    constants = [
        f"#define {name} {value}" for text in texts for name, value in _CONSTANT.findall(text)
    ]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for include in {found for text in texts for found in _SYSTEM_INCLUDE.findall(text)}:
            (directory / include).parent.mkdir(parents=True, exist_ok=True)
            (directory / include).write_text("")
        unit = directory / "all.c"
        unit.write_text("".join(f'#include "{path.name}"\n' for path in headers))
        text = _run(
            [
                *(*COMPILER, "-E", "-P", "-nostdinc", "-D__attribute__(x)=", "-D_GNU_SOURCE"),
                *(f"-I{SOURCES}", f"-I{directory}", str(unit)),
            ]
        )
    text = _ATOMIC_POINTER.sub(r"\1", text).replace("_Atomic ", "")
    text = _ASSERTION.sub("", _without_inline_functions(text))
    return "\n".join([*constants, _opaque_types(), text])


def load(
    extra: Sequence[Path] = (), options: Sequence[str] = (), declared: str = ""
) -> tuple[cffi.FFI, object]:
    """Return the foreign function interface and the library of the core.

    *extra* and *options* are those of `build`; *declared* says what the extra files bring.
    """
    ffi = cffi.FFI()
    ffi.cdef(declarations() + declared)
    return ffi, ffi.dlopen(str(build(extra, options)))


def _without_inline_functions(text: str) -> str:
    kept = []
    while found := _INLINE_HEAD.search(text):
        kept.append(text[: found.start()])
        depth, at = 1, found.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        text = text[at:]
    return "".join([*kept, text])


def _opaque_types() -> str:
    """Return stand-ins of the right size for the system's types that structs hold by value."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "sizes"
        prints = "".join(f'printf("%zu\\n", sizeof({name}));' for name in _OPAQUE_TYPES)
        names = ("pthread.h", "semaphore.h", "stdio.h")
        includes = "".join(f"#include <{name}>\n" for name in names)
        source = f"{includes}int main(void) {{ {prints} }}\n"
        program.with_suffix(".c").write_text(source)
        _run([*COMPILER, "-o", str(program), str(program.with_suffix(".c"))])
        sizes = [int(line) for line in _run([str(program)]).split()]
    return "\n".join(
        f"typedef struct {{ int64_t opaque[{size // 8}]; }} {name};"
        for name, size in zip(_OPAQUE_TYPES, sizes, strict=True)
    )


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stderr}")
    return done.stdout
