"""Every input of the corpus, and a number of inputs made from it, under ASan and UBSan."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.fuzz import build
from tests.support.effort import rounds

TIMEOUT_S = 600
CORPUS_SIZE_MAX = 300 * 1024
DEFECTS = sorted(build.CORPUS.glob("*/defect-*"))


@pytest.fixture(scope="module")
def program() -> Path:
    if not build.has_sanitizers():
        pytest.skip("the compiler has no runtime of its sanitizers; install libasan and libubsan")
    return build.replayer()


@pytest.mark.parametrize("target", build.TARGETS)
def test_no_input_of_the_corpus_or_made_from_it_breaks_the_target(
    target: str, program: Path, tmp_path: Path
) -> None:
    inputs = [str(path) for path in sorted((build.CORPUS / target).iterdir())]
    slow = target in {"append_raw", "directory"}
    runs = rounds(200 if slow else 1000, 20_000 if slow else 1_000_000)

    command = [str(program), "-mutate", "-runs", str(runs), "-seed", "1"]
    done = subprocess.run(
        [*command, "-findings", str(tmp_path), *inputs],
        env={**os.environ, "FUZZ_TARGET": target},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 0, (
        f"{done.stderr[-4000:]}\nreplay it: python -m tests.fuzz replay {target} {tmp_path}/*"
    )
    assert done.stdout.splitlines()[0] == f"{len(inputs)} inputs replayed"
    assert done.stdout.splitlines()[1].startswith(f"{runs} inputs made")


@pytest.mark.parametrize(
    "path", DEFECTS, ids=lambda path: f"{path.parent.name}-{path.name.removeprefix('defect-')}"
)
def test_an_input_that_once_broke_its_target_does_so_no_more(path: Path, program: Path) -> None:
    done = subprocess.run(
        [str(program), str(path)],
        env={**os.environ, "FUZZ_TARGET": path.parent.name},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1 inputs replayed\n"), done.stderr[-4000:]


def test_a_name_of_no_target_is_refused(program: Path) -> None:
    done = subprocess.run(
        [str(program)],
        env={**os.environ, "FUZZ_TARGET": "none"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2
    assert all(target in done.stderr for target in build.TARGETS)


def test_the_corpus_has_inputs_for_every_target_and_stays_small() -> None:
    files = [path for path in build.CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == set(build.TARGETS)
    assert sum(path.stat().st_size for path in files) <= CORPUS_SIZE_MAX
