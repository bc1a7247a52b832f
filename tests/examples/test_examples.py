"""Each example runs by itself, as a user would run it, and says what it promises."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest

from rmqstore.errors import MissingExtraError
from rmqstore.spark import java_home
from tests.golden import GoldenCases
from tests.house import tree
from tests.support.programs import run_program

EXAMPLES = sorted((tree.ROOT / "examples").glob("*.py"))
TIMEOUT_S = 400.0

# What each must have printed; the assertions in the examples check the rest.
SAID = {
    "01_open_put_get.py": ["queue_offset=0", "nearest is 0"],
    "02_iterate_and_views.py": ["1 views of records open"],
    "03_batches_and_durability.py": [
        "the limit is 4194304",
        "MESSAGE_ILLEGAL, stored: False, retriable: False",
        "IN_SYNC_REPLICAS_NOT_ENOUGH, stored: False, retriable: True",
    ],
    "04_asyncio.py": ["20 orders put and consumed"],
    "05_columns.py": ["queue_offset: int64 not null"],
    "06_read_a_brokers_directory.py": ["300 records, 286698 bytes", "read-only"],
    "07_survive_a_kill.py": ["is the writer: True", "was_closed=False", "acknowledged up to"],
    "08_spark_audit.py": ["10000 messages of 2 topics", "sound: 10000 records", "CRC"],
    "09_pandas.py": ["132604 bytes in 1000 messages"],
    "10_polars.py": ["250 orders from us, 74700 cents"],
    "11_duckdb.py": ["250 orders from us, 74700 cents"],
    "12_simulate.py": ["none of them lost", "quiet: 1 epoch", "3 replicas hold the same last"],
    "13_replicate.py": [
        "2 copies, confirmed up to",
        "('TRANSFER', 0)",
        "the master is at 127.0.0.1:",
        "stored: True, retriable: True",
        "epoch 2: [b'paid', b'shipped']",
    ],
    "14_replicas_on_a_loop.py": ["master of epoch 2", "10 replicas, one loop"],
}
NEEDS = {
    "05_columns.py": ("pyarrow",),
    "08_spark_audit.py": ("pyspark", "pyarrow"),
    "09_pandas.py": ("pandas", "pyarrow"),
    "10_polars.py": ("polars",),
    "11_duckdb.py": ("duckdb", "pyarrow"),
}
NOTEBOOK = tree.ROOT / "examples" / "spark.ipynb"
# PySpark says of each pandas from 3.0 on that it may not work.
EXPECTED_WARNING = "ignore:PySpark does not yet fully support pandas:FutureWarning"

RUN_NOTEBOOK = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
probe = nbformat.v4.new_code_cell("import sys; print(sys.executable)")
notebook.cells.append(probe)
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
assert probe.outputs[0].text.strip() == sys.executable, probe.outputs
for cell in notebook.cells:
    for output in cell.get("outputs", ()):
        print(output.get("text") or output.get("data", {}).get("text/plain", ""))
"""


def _run(example: Path, cwd: Path, *arguments: str) -> str:
    answer = run_program(
        [sys.executable, "-W", "error", "-W", EXPECTED_WARNING, str(example), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(tree.ROOT), "TMPDIR": str(cwd)},
        timeout=TIMEOUT_S,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def _skip_without(*packages: str) -> None:
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        pytest.skip(f"the example needs {' and '.join(missing)}")


def _skip_without_java() -> None:
    try:
        java_home()
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs_says_what_it_should_and_leaves_nothing(example: Path, tmp_path: Path) -> None:
    _skip_without(*NEEDS.get(example.name, ()))
    if example.name == "08_spark_audit.py":
        _skip_without_java()
    said = _run(example, tmp_path)
    assert [text for text in SAID[example.name] if text not in said] == []
    assert list(tmp_path.iterdir()) == []


def test_the_notebook_runs_and_is_kept_without_outputs(tmp_path: Path) -> None:
    _skip_without("pyspark", "pyarrow", "nbclient", "nbformat", "ipykernel")
    _skip_without_java()

    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    kept = [name for cell in cells for name in ("outputs", "execution_count") if cell.get(name)]
    assert kept == []

    answer = run_program(
        [sys.executable, "-c", RUN_NOTEBOOK, str(NOTEBOOK)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(tree.ROOT),
            # Neither settings nor kernels of the user who runs the tests are used.
            **{name: str(tmp_path) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "TMPDIR")},
            **{name: str(tmp_path) for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")},
        },
        timeout=TIMEOUT_S,
    )

    assert answer.returncode == 0, answer.stderr
    assert "'us': (750, " in answer.stdout
    assert "5000 messages of 2 topics" in answer.stdout


@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_a_directory_of_either_release_is_read_and_left_as_it_was(
    release: str, tmp_path: Path, golden_cases: GoldenCases
) -> None:
    case = golden_cases.copy(release, "many-queues", into=tmp_path)
    before = _contents(case.root)
    said = _run(tree.ROOT / "examples" / "06_read_a_brokers_directory.py", tmp_path, str(case.root))
    assert f"{len(case.manifest)} records" in said
    assert _contents(case.root) == before


def _contents(root: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def test_examples_are_numbered_without_a_gap() -> None:
    numbers = [int(example.name[:2]) for example in EXAMPLES]
    assert numbers == list(range(1, len(EXAMPLES) + 1))


def test_readme_names_every_example() -> None:
    named = set(re.findall(r"examples/(\w+\.(?:py|ipynb))", tree.text_of("README.md")))
    assert named == {example.name for example in [*EXAMPLES, NOTEBOOK]}


def test_readme_names_commands_that_exist(tmp_path: Path) -> None:
    if importlib.util.find_spec("typer") is None:
        pytest.skip("the command line needs typer")
    usage = _run(Path("-m"), tmp_path, "rmqstore", "--help")
    readme = tree.text_of("README.md")
    named = set(re.findall(r"^rmqstore (\w+)", readme, re.MULTILINE))
    listed = {
        word
        for line in re.findall(r"# .*then (.*)$", readme, re.MULTILINE)
        for word in re.findall(r"\w+", line)
        if word != "and"
    }
    commands = set(re.findall(r"^\W*([a-z]+)  ", usage, re.MULTILINE))
    assert named
    assert listed
    assert named | listed <= commands
