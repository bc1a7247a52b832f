"""The extension modules, the jar for Spark, and their compiler flags; everything else is in
pyproject.toml."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from glob import glob
from importlib.util import find_spec
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

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
JNI_SOURCES = sorted(glob("csrc/jni/*.c"))
CORE_SOURCES = sorted({*glob("csrc/*/*.c")} - {*RAFT_SOURCES, *JNI_SOURCES})
# What reads a segment, without a store.
SEGMENT_SOURCES = sorted(
    {*glob("csrc/base/*.c"), *glob("csrc/format/*.c"), *glob("csrc/columns/*.c")}
    - {"csrc/columns/arrow_stream.c"}
)
JAR = "rmqstore/spark/jvm/rmqstore-spark.jar"
JAVA_RELEASE = "17"
PROVIDER = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
HEADERS = glob("csrc/**/*.h", recursive=True)


def has_raft() -> bool:
    """Return whether the sources of the engine compile with the libraft that is installed."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    words = [*compiler, "-fsyntax-only", "-w", *FLAGS, "-Icsrc", *RAFT_SOURCES]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def jdk() -> Path | None:
    """Return the home of a JDK with the headers of JNI, None without one."""
    given = os.environ.get("JAVA_HOME")
    javac = f"{given}/bin/javac"
    found = javac if given and os.path.exists(javac) else shutil.which("javac")
    home = Path(found).resolve().parents[1] if found else None
    return home if home is not None and (home / "include" / "jni.h").exists() else None


def spark_jars() -> Path | None:
    """Return the folder of pyspark's jars, None where it is not installed."""
    spec = find_spec("pyspark")
    folders = (spec.submodule_search_locations if spec else None) or []
    jars = [Path(folder) / "jars" for folder in folders]
    return next((folder for folder in jars if folder.is_dir()), None)


class BuildExtensionsAndJar(build_ext):
    """Builds the extensions, then the jar of the reader in Spark's own virtual machine."""

    def run(self) -> None:
        super().run()
        home, jars = jdk(), spark_jars()
        target = Path(JAR if self.inplace else os.path.join(self.build_lib, JAR))
        if home is None or jars is None:
            # One of other sources would not fit the package.
            target.unlink(missing_ok=True)
            lacking = "a JDK of 17 or newer" if home is None else "the package pyspark"
            print(
                f"rmqstore: without the reader in Spark's JVM, which needs {lacking}; "
                "Spark reads by Python",
                file=sys.stderr,
            )
            return
        self._build_jar(home, jars, target)

    def _build_jar(self, home: Path, jars: Path, target: Path) -> None:
        work = Path(self.build_temp) / "spark"
        classes = work / "classes"
        shutil.rmtree(classes, ignore_errors=True)
        classes.mkdir(parents=True)
        sources = sorted(glob("rmqstore/spark/jvm/java/**/*.java", recursive=True))
        javac = [str(home / "bin" / "javac"), "--release", JAVA_RELEASE, "-Werror", "-Xlint:all"]
        # The manifests of some jars name others that pyspark does not bring.
        javac += ["-Xlint:-path", "-cp", f"{jars}/*", "-d", str(classes), *sources]
        subprocess.run(javac, check=True)

        release = self.distribution.get_version()
        objects = self.compiler.compile(
            [*SEGMENT_SOURCES, *JNI_SOURCES],
            output_dir=str(work),
            macros=[("RMQ_JNI_VERSION", release)],
            include_dirs=["csrc", str(home / "include"), str(home / "include" / "linux")],
            extra_postargs=[*FLAGS, "-fPIC"],
        )
        library = work / "librmqstore_spark.so"
        self.compiler.link_shared_object(
            objects, str(library), extra_postargs=["-pthread", "-Wl,--no-undefined"]
        )

        target.parent.mkdir(parents=True, exist_ok=True)
        package = "org/rmqstore/spark"
        made = work / target.name
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as jar:
            for each in sorted(classes.rglob("*.class")):
                jar.write(each, each.relative_to(classes))
            jar.write(library, f"native/{java_platform(home)}/{library.name}")
            jar.writestr(f"{package}/release.txt", release)
            jar.writestr(PROVIDER, package.replace("/", ".") + ".RmqStoreProvider\n")
        # Whole or not at all: a session may be reading the one before.
        new = target.with_suffix(".new")
        shutil.copyfile(made, new)
        new.replace(target)


def java_platform(home: Path) -> str:
    """Return what Java calls this system and its processor."""
    words = [str(home / "bin" / "java"), "-XshowSettings:properties", "-version"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    name, arch = (re.search(rf"{each} = (.+)", told) for each in (r"os\.name", r"os\.arch"))
    if name is None or arch is None:
        raise SystemExit(f"{words[0]} does not tell its platform")
    return f"{name[1].strip().lower()}-{arch[1].strip()}"


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
    cmdclass={"build_ext": BuildExtensionsAndJar},
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",
        # No doctests in the extension; the stub need not name their table.
        compiler_directives={"language_level": 3, "autotestdict": False},
    ),
)
