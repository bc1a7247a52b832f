"""What a build of the package does about the jar: in the wheel, or left out with a line."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("setuptools", reason="builds the package: pip install setuptools cython")
pytest.importorskip("Cython", reason="builds the package: pip install setuptools cython")

from rmqstore.spark.jvm import jar_path
from tests.support.spark_session import REPOSITORY

JAR = "rmqstore/spark/jvm/rmqstore-spark.jar"
needs_a_jar = pytest.mark.skipif(
    jar_path() is None, reason="the jar was not built: needs a JDK and pyspark"
)

BUILD = """
import json, os, runpy, shutil, sys
import Cython.Build, setuptools
target, jar, lacking = json.loads(sys.argv[1])
made = {}
setup, setuptools.setup = setuptools.setup, made.update
Cython.Build.cythonize = lambda extensions, **_: extensions
runpy.run_path("setup.py")

class WithoutCompiling(made["cmdclass"]["build_ext"]):
    def build_extensions(self):
        pass

    def _build_jar(self, home, jars, target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(jar, target)

if lacking == "pyspark":
    sys.modules["pyspark"] = None
elif lacking:
    os.environ.update(PATH=target, JAVA_HOME=target)
stale = os.path.join(target, "build", "lib", "rmqstore", "spark", "jvm", "rmqstore-spark.jar")
os.makedirs(os.path.dirname(stale))
open(stale, "w").close()

build = os.path.join(target, "build")
made["cmdclass"] = {"build_ext": WithoutCompiling}
made["options"] = {
    "egg_info": {"egg_base": target},
    "build": {"build_base": build, "build_lib": os.path.join(build, "lib")},
    "bdist_wheel": {"dist_dir": target, "bdist_dir": os.path.join(target, "wheel")},
}
setup(script_args=["--quiet", "bdist_wheel"], **made)
"""


def _built(folder: Path, lacking: str = "") -> tuple[zipfile.ZipFile, str]:
    """Return the wheel of the tree, with the jar that is there, and what the build printed.

    Its C and Java are not compiled: the build of the extension that runs this test did that.
    """
    done = subprocess.run(
        [sys.executable, "-c", BUILD, json.dumps([str(folder), str(jar_path()), lacking])],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel), done.stderr


@needs_a_jar
def test_a_wheel_has_the_jar_with_its_library_and_service(tmp_path: Path) -> None:
    wheel, printed = _built(tmp_path)
    assert "Spark reads by Python" not in printed
    with wheel, wheel.open(JAR) as packed, zipfile.ZipFile(packed) as jar:
        names = jar.namelist()
        assert len([name for name in names if name.endswith("/librmqstore_spark.so")]) == 1
        (service,) = (name for name in names if name.startswith("META-INF/services/"))
        provider = jar.read(service).decode().strip()
        assert provider.replace(".", "/") + ".class" in names
        release = jar.read("org/rmqstore/spark/release.txt").decode()
    assert release == metadata.version("rmqstore")


@pytest.mark.parametrize(
    ("lacking", "named"),
    [
        ("jdk", "a JDK of 17 or newer"),
        # Without a JDK as well, the line names that.
        pytest.param("pyspark", "the package pyspark", marks=needs_a_jar),
    ],
)
def test_a_build_without_a_jdk_or_pyspark_goes_on_and_says_so_in_one_line(
    lacking: str, named: str, tmp_path: Path
) -> None:
    wheel, printed = _built(tmp_path, lacking)
    with wheel:
        names = wheel.namelist()
    assert "rmqstore/spark/jvm/planner.py" in names
    assert JAR not in names
    lines = [line for line in printed.splitlines() if "Spark" in line]
    assert lines == [
        f"rmqstore: without the reader in Spark's JVM, which needs {named}; Spark reads by Python"
    ]
