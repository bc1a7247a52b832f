"""The driver itself: what ends a target is written down, and runs can be repeated."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.c import library
from tests.fuzz import build

# Breaks in one way for each first byte.
TARGET = """
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
int LLVMFuzzerInitialize(int *argc, char ***argv) { (void)argc; (void)argv; return 0; }
uint8_t *fuzz_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    return size ? memcpy(copy, data, size) : copy;
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    volatile int number = INT32_MAX;
    if (size > 0 && data[0] == 'A')
        abort();
    if (size > 0 && data[0] == 'U')
        number = number + data[0];
    return size > 0 && data[0] == 'R' ? ((const volatile uint8_t *)data)[size] & 0 : 0;
}
"""
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not build.has_sanitizers():
        pytest.skip("the compiler has no runtime of its sanitizers; install libasan and libubsan")
    source = tmp_path_factory.mktemp("driver") / "target.c"
    source.write_text(TARGET)
    program = source.with_suffix("")
    command = [*library.COMPILER, *library.FLAGS, *library.SANITIZERS, f"-I{library.SOURCES}"]
    subprocess.run(
        [*command, f"-I{build.HERE}", "-o", program, source, build.HERE / "driver.c"], check=True
    )
    return program


def run(driver: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [driver, *arguments],
        env={**os.environ, "FUZZ_TARGET": "broken"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("first", ["A", "U", "R"], ids=["abort", "overflow", "read-behind"])
def test_the_input_that_ends_a_target_is_written_down(
    driver: Path, tmp_path: Path, first: str
) -> None:
    given = tmp_path / "given"
    given.write_text(f"{first}bc")
    (tmp_path / "findings").mkdir()
    done = run(driver, "-findings", tmp_path / "findings", given)
    assert done.returncode != 0
    (found,) = (tmp_path / "findings").iterdir()
    assert found.name.startswith("broken-")
    assert found.read_text() == f"{first}bc"
    assert str(found) in done.stderr


def test_a_run_finds_what_a_mutation_away_breaks_and_the_same_seed_finds_it_again(
    driver: Path, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.write_text("Cbc")
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        options = ("-mutate", "-runs", "100000", "-seed", "7", "-findings", tmp_path / name)
        assert run(driver, *options, given).returncode != 0
        found.append([path.read_bytes() for path in (tmp_path / name).iterdir()])
    assert found[0] == found[1]
    assert len(found[0]) == 1


def test_sound_inputs_are_counted(driver: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_text("xyz")
    done = run(driver, given, given)
    assert (done.returncode, done.stdout) == (0, "2 inputs replayed\n")
