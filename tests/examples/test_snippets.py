"""Each piece of Python in the documents runs alone, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.test_examples import EXPECTED_WARNING, skip_without, skip_without_java
from tests.house import tree

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTS = [
    "README.md",
    *(f"docs/{path.name}" for path in sorted((tree.ROOT / "docs").glob("*.md"))),
]
SNIPPETS = [
    pytest.param(code, id=f"{name}-{number}")
    for name in DOCUMENTS
    for number, code in enumerate(PYTHON.findall(tree.text_of(name)), 1)
]
TIMEOUT_S = 300.0


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippet_runs_alone_in_an_empty_folder(code: str, tmp_path: Path) -> None:
    if "rmqstore.spark" in code or "import spark" in code:
        skip_without("pyspark", "pyarrow")
        skip_without_java()
    told = subprocess.run(
        [sys.executable, "-W", "error", "-W", EXPECTED_WARNING, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr


def test_documents_have_snippets() -> None:
    assert len(SNIPPETS) > 5
