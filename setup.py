"""The extension modules and their compiler flags; everything else is in pyproject.toml."""

import os
import shlex
import subprocess
import sys
import sysconfig
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

# CPython's own flags carry -DNDEBUG; the core keeps its assertions.
FLAGS = [
    "-std=c11",
    "-O2",
    "-g",
    "-fvisibility=hidden",
    "-D_GNU_SOURCE",
    "-UNDEBUG",
    "-pthread",
]
RAFT_SOURCES = sorted(glob("csrc/raft/*.c"))
CORE_SOURCES = sorted({*glob("csrc/*/*.c")} - {*RAFT_SOURCES})
HEADERS = glob("csrc/**/*.h", recursive=True)


def has_raft() -> bool:
    """Return whether the sources of the engine compile with the libraft that is installed."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    words = [*compiler, "-fsyntax-only", "-w", *FLAGS, "-Icsrc", *RAFT_SOURCES]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


extensions = [
    Extension(
        "rmqstore._native.core",
        sources=["rmqstore/_native/core.pyx", *CORE_SOURCES],
        depends=sorted(HEADERS + glob("rmqstore/_native/*.p[xy][id]")),
        include_dirs=["csrc"],
        extra_compile_args=FLAGS,
        extra_link_args=["-pthread"],
    )
]

if has_raft():
    extensions.append(
        Extension(
            "rmqstore._native.raft",
            sources=["rmqstore/_native/raft.pyx", *RAFT_SOURCES],
            depends=sorted(HEADERS),
            include_dirs=["csrc"],
            libraries=["raft", "uv"],
            extra_compile_args=FLAGS,
            extra_link_args=["-pthread"],
        )
    )
else:
    print(
        "rmqstore: without the engine for groups of controllers, which needs the headers of "
        "libraft 0.15 and libuv (apt-get install libraft-dev libuv1-dev, then build again)",
        file=sys.stderr,
    )

setup(
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",
        # No doctests in the extension; the stub need not name their table.
        compiler_directives={"language_level": 3, "autotestdict": False},
    )
)
