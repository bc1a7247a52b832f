"""The tests of this folder once more, with the core built for ASan and UBSan."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.c.library import ROOT, address_sanitizer, is_sanitized
from tests.support.programs import run_program

HERE = Path(__file__).parent
BUILT_ALONE = ("test_pump.py", "test_raft.py", "test_stress.py")
"""They make programs of their own for each sanitizer, which bear no other one beside them."""


@pytest.mark.skipif(is_sanitized(), reason="this run is the sanitized one")
def test_every_c_test_passes_under_address_and_undefined_behaviour_sanitizers() -> None:
    asan = address_sanitizer()
    if asan is None:
        pytest.skip("the compiler has no libasan.so; install its sanitizer runtime")

    environment = {
        **os.environ,
        "RMQ_SANITIZE": "1",
        "LD_PRELOAD": asan,
        # The interpreter itself lets go of little; the stress test looks for leaks of the core.
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
    }

    others = [path for path in sorted(HERE.glob("test_*.py")) if path.name not in BUILT_ALONE]
    done = run_program(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *map(str, others)],
        cwd=ROOT,
        env=environment,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
