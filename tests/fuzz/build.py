"""The fuzz targets as one program, built for ASan and UBSan.

The program for the tests stands on the sanitized library that the C tests use too. The one that
runs on for a chosen time is built whole, with a record of the places it reaches: by clang with
libFuzzer where there is one, otherwise by the usual compiler with driver.c.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.c import library

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
BUILD = library.ROOT / "build" / "fuzz"
TARGETS: tuple[str, ...] = tuple(
    re.findall(r"^    X\((\w+)\)", (HERE / "fuzz.h").read_text(), re.MULTILINE)
)

_COVERAGE = "-fsanitize-coverage=trace-pc"
_DRIVER = HERE / "driver.c"
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_CLANG_VERSIONS = range(21, 10, -1)


def replayer() -> Path:
    """Return the program that replays inputs and makes a given number of others."""
    shared = library.build(sanitizers=library.SANITIZERS)
    command = [*library.COMPILER, *library.FLAGS, *library.SANITIZERS, *_includes()]
    link = [str(shared), f"-Wl,-rpath,{shared.parent}"]
    return _cached("replay", [*command, *_names(_sources()), str(_DRIVER), *link], [shared])


def standalone() -> Path:
    """Return the program that mutates towards places it has not reached, made without clang."""
    compiler = [*library.COMPILER, *library.FLAGS, *library.SANITIZERS, *_includes()]
    core = library.core_files("*.c")
    # What keeps the record must not be in it.
    driver = _cached("driver.o", [*compiler, "-c", str(_DRIVER)], [])
    command = [*compiler, _COVERAGE, *_names([*_sources(), *core])]
    return _cached("standalone", [*command, str(driver)], [driver])


def libfuzzer(clang: str) -> Path:
    """Return the program with libFuzzer in it."""
    flags = [flag for flag in library.FLAGS if flag not in library.WARNINGS]
    core = library.core_files("*.c")
    engine = "-fsanitize=fuzzer,address,undefined"
    command = [clang, *flags, engine, _SANITIZERS[1], *_includes()]
    return _cached("libfuzzer", [*command, *_names([*_sources(), *core])], [])


@functools.cache
def has_sanitizers() -> bool:
    """Tell whether programs for ASan and UBSan can be made and run here."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "probe.c"
        source.write_text("int main(void) { return 0; }\n")
        program = str(source.with_suffix(""))
        command = [*library.COMPILER, *library.SANITIZERS, "-o", program, str(source)]
        made = subprocess.run(command, capture_output=True, check=False).returncode == 0
        return made and subprocess.run([program], check=False).returncode == 0


@functools.cache
def find_clang() -> str | None:
    """Return a clang that comes with libFuzzer and runs here, None when there is none."""
    for name in ("clang", *(f"clang-{version}" for version in _CLANG_VERSIONS)):
        found = shutil.which(name)
        if found and _makes_fuzzers(found):
            return found
    return None


def _makes_fuzzers(clang: str) -> bool:
    entry = "int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size)"
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "probe.c"
        source.write_text(f"{entry};\n{entry} {{ return (int)(data[0] * size) & 0; }}\n")
        program = str(source.with_suffix(""))
        command = [clang, "-fsanitize=fuzzer,address", "-o", program, str(source)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _sources() -> list[Path]:
    return [path for path in sorted(HERE.glob("*.c")) if path != _DRIVER]


def _names(paths: Sequence[Path]) -> list[str]:
    return [str(path) for path in paths]


def _includes() -> list[str]:
    return [f"-I{library.SOURCES}", f"-I{HERE}"]


def _cached(name: str, command: Sequence[str], inputs: Sequence[Path]) -> Path:
    """Run a compiler command unless its outcome for these sources is there."""
    digest = hashlib.sha256(" ".join(command).encode())
    sources = [*HERE.glob("*.[ch]"), *library.core_files("*.[ch]"), *inputs]
    for path in sorted(sources):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())

    program = BUILD / f"{digest.hexdigest()[:24]}-{name}"

    if not program.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        # Another run may build the same: each has its own place, and the last rename wins.
        with tempfile.TemporaryDirectory(dir=BUILD) as directory:
            made = Path(directory) / program.name

            done = subprocess.run(
                [*command, "-o", str(made)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError(done.stderr)
            made.replace(program)

    return program
