"""The C core and the twins of its file system as one shared library, with declarations taken from
their own headers.

The headers are run through the preprocessor with empty stand-ins for those of the system; what
cffi cannot parse and no test calls (inline functions, static assertions, attributes) is cut out.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import cffi

from tests.support.effort import rounds

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "csrc"
TWINS = Path(__file__).with_name("twins")
BUILD = ROOT / "build" / "tests-c"

COMPILER = shlex.split(os.environ.get("CC", "cc"))
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
FLAGS = ("-std=c11", "-O2", "-g1", "-D_GNU_SOURCE", "-UNDEBUG", "-fPIC", "-pthread", *WARNINGS)
# At -O1 sanitized code compiles in half the time, and its reports name the lines more precisely.
SANITIZERS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# The thread sanitizer does not understand fences; they only spare sleepers a wait of bounded time.
SANITIZED_PROGRAMS = {
    "threads": ("-O1", "-fsanitize=thread", "-Wno-tsan", "-fno-sanitize-recover=all"),
    "memory": SANITIZERS,
}

PROGRAM_S = rounds(300, 3600)
"""The limit of a sanitized program; each gives up by itself what takes longer than it should."""

_SYSTEM_INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
_CONSTANT = re.compile(
    r"^#define\s+(RMQ_\w+)\s+(0x[0-9A-Fa-f]+|\d+)[uUlL]*\s*(?:/[/*].*)?$", re.MULTILINE
)
_ATOMIC_POINTER = re.compile(r"_Atomic\(([^()]*)\)")
_INLINE_HEAD = re.compile(r"static inline [^;{]*\{")
_ASSERTION = re.compile(r"_Static_assert\s*\([^;]*;")
_OPAQUE_TYPES = ("pthread_mutex_t", "pthread_cond_t", "pthread_t", "sem_t")


def core_files(pattern: str) -> list[Path]:
    """Return the files of csrc, but for those that need libraft or a JDK."""
    return sorted(
        path for path in SOURCES.rglob(pattern) if path.parent.name not in ("raft", "jni")
    )


def is_sanitized() -> bool:
    """Tell whether RMQ_SANITIZE asks for the build with ASan and UBSan."""
    return os.environ.get("RMQ_SANITIZE", "0") not in ("", "0")


def address_sanitizer() -> str | None:
    """Return the runtime of ASan, which a program of others has to preload, None without one."""
    words = [*COMPILER, "-print-file-name=libasan.so"]
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return found if os.path.isabs(found) else None


def build(
    extra: Sequence[Path] = (), link: Sequence[str] = (), sanitizers: Sequence[str] | None = None
) -> Path:
    """Return the library of all of csrc and the twins, linked unless these sources already were.

    *extra* are more C files, *link* more words for the linker, *sanitizers* those of the compiler
    in place of what RMQ_SANITIZE asks for.
    """
    return _link(extra, ["-shared", *link], sanitizers, "so")


def program(source: Path, sanitizers: Sequence[str], more: Sequence[Path] = ()) -> Path:
    """Return the program of *source*, *more* and all of csrc and the twins."""
    return _link([source, *more], [], sanitizers, "run")


def raft_files(pattern: str) -> list[Path]:
    """Return the files of csrc that need libraft."""
    return sorted((SOURCES / "raft").glob(pattern))


def has_raft() -> bool:
    """Tell whether csrc/raft compiles with the libraft that is installed."""
    words = [*COMPILER, "-fsyntax-only", "-w", *FLAGS, f"-I{SOURCES}"]
    done = subprocess.run([*words, *map(str, raft_files("*.c"))], capture_output=True, check=False)
    return done.returncode == 0


def raft_program(
    sources: Sequence[Path], sanitizers: Sequence[str], libraries: Sequence[str]
) -> Path:
    """Return the program of *sources*, files of csrc/raft among them, and nothing else of csrc."""
    # The compiler takes an array of one element for less than that under a sanitizer.
    words = [*COMPILER, *FLAGS, *sanitizers, "-Wno-stringop-overread", f"-I{SOURCES}"]
    made = BUILD / f"{_digest([*words, *libraries], [*sources, *raft_files('*.h')])}.run"
    with _lock(made):
        if not made.exists():
            new = made.with_suffix(".new")
            _run([*words, "-o", str(new), *map(str, sources), *libraries])
            new.replace(made)
    return made


def _link(
    extra: Sequence[Path], link: Sequence[str], sanitizers: Sequence[str] | None, suffix: str
) -> Path:
    if sanitizers is None:
        sanitizers = SANITIZERS if is_sanitized() else ()
    core = _objects(sanitizers)
    words = [*COMPILER, *FLAGS, *link, *sanitizers, core.name]
    made = BUILD / f"{_digest(words, extra)}.{suffix}"
    with _lock(made):
        if not made.exists():
            objects = [str(path) for path in sorted(core.iterdir())]
            command = [*COMPILER, *FLAGS, *sanitizers, *link, f"-I{SOURCES}", f"-I{TWINS}"]
            new = made.with_suffix(".new")
            _run([*command, "-o", str(new), *map(str, extra), *objects])
            new.replace(made)
    return made


def _objects(sanitizers: Sequence[str]) -> Path:
    """Return the folder of the compiled core, which all libraries and programs share."""
    flags = [*COMPILER, *FLAGS, *sanitizers]
    sources = [*core_files("*.[ch]"), *sorted(TWINS.glob("*.[ch]"))]
    made = BUILD / f"{_digest(flags, sources)}.objects"
    with _lock(made):
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=BUILD) as directory:
                new = Path(directory) / "objects"
                new.mkdir()
                _compile([path for path in sources if path.suffix == ".c"], new, flags)
                new.replace(made)
    return made


def _compile(sources: Sequence[Path], into: Path, flags: Sequence[str]) -> None:
    """Compile each source on a core of its own: other workers wait for the whole meanwhile."""

    def compile_one(path: Path) -> None:
        compiled = into / f"{path.parent.name}-{path.stem}.o"
        _run([*flags, f"-I{SOURCES}", "-c", "-o", str(compiled), str(path)])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, sources))


def _digest(words: Sequence[str], paths: Sequence[Path]) -> str:
    digest = hashlib.sha256(" ".join(words).encode())
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:24]


@contextmanager
def _lock(made: Path) -> Iterator[None]:
    """Let one process build *made* at a time: others that want the same find it made."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with made.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def declarations() -> str:
    """Return what the headers of csrc and of the twins declare, in the C that cffi understands."""
    headers = [*core_files("*.h"), *sorted(TWINS.glob("*.h"))]
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
        unit.write_text("".join(f'#include "{path}"\n' for path in headers))
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
    extra: Sequence[Path] = (), link: Sequence[str] = (), declared: str = ""
) -> tuple[cffi.FFI, object]:
    """Return the foreign function interface and the library of the core.

    *extra* and *link* are those of `build`; *declared* says what the extra files bring.
    """
    ffi = cffi.FFI()
    ffi.cdef(declarations() + declared)
    return ffi, ffi.dlopen(str(build(extra, link)))


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
