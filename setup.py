"""The one extension module and its compiler flags; everything else is in pyproject.toml."""

from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

core = Extension(
    "rmqstore._native.core",
    sources=["rmqstore/_native/core.pyx", *sorted(glob("csrc/*/*.c"))],
    depends=sorted(glob("csrc/**/*.h", recursive=True) + glob("rmqstore/_native/*.p[xy][id]")),
    include_dirs=["csrc"],
    # CPython's own flags carry -DNDEBUG; the core keeps its assertions.
    extra_compile_args=[
        "-std=c11",
        "-O2",
        "-g",
        "-fvisibility=hidden",
        "-D_GNU_SOURCE",
        "-UNDEBUG",
        "-pthread",
    ],
    extra_link_args=["-pthread"],
)

setup(
    ext_modules=cythonize(
        [core],
        build_dir="build/cython",
        # No doctests in the extension; the stub need not name their table.
        compiler_directives={"language_level": 3, "autotestdict": False},
    )
)
