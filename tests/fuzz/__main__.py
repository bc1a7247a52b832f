"""Fuzzes for a chosen time, or replays one finding.

    python -m tests.fuzz run [--seconds 600] [--target NAME]... [--driver standalone|libfuzzer]
    python -m tests.fuzz replay NAME FILE...

Inputs that end a target are kept in build/fuzz/findings, with the command that replays each. What
a run learns is kept in build/fuzz/corpus, and the next one goes on from there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import build

FINDINGS = build.BUILD / "findings"
GROWN = build.BUILD / "corpus"
INPUT_SIZE_MAX = 65536
TIME_LIMIT_S = 30


def main() -> int:
    """Return 1 when something was found, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the C core.")
    verbs = parser.add_subparsers(dest="verb", required=True)

    run = verbs.add_parser("run", help="fuzz every target, one after the other")
    run.add_argument("--seconds", type=int, default=600, help="for all targets together")
    run.add_argument("--target", action="append", choices=build.TARGETS, help="only these")
    run.add_argument(
        "--driver", choices=("standalone", "libfuzzer"), help="libfuzzer where clang has it"
    )

    replay = verbs.add_parser("replay", help="run a target on inputs")
    replay.add_argument("target", choices=build.TARGETS)
    replay.add_argument("files", nargs="+", type=Path)
    arguments = parser.parse_args()

    if arguments.verb == "replay":
        return _replay(arguments.target, arguments.files)

    targets = tuple(arguments.target or build.TARGETS)
    return _run(targets, seconds=arguments.seconds, driver=arguments.driver)


def _replay(target: str, files: Sequence[Path]) -> int:
    command = [str(build.replayer()), *(str(path) for path in files)]
    return subprocess.run(command, env=_environment(target), check=False).returncode


def _run(targets: Sequence[str], *, seconds: int, driver: str | None) -> int:
    clang = None if driver == "standalone" else build.find_clang()
    if driver == "libfuzzer" and clang is None:
        print("no clang with libFuzzer was found", file=sys.stderr)
        return 2

    program = build.libfuzzer(clang) if clang else build.standalone()
    each = max(1, seconds // len(targets))
    print(f"{'libFuzzer' if clang else 'driver.c'}, {each} s for each of {len(targets)} targets")

    failed = []
    for target in targets:
        before = _findings(target)
        (GROWN / target).mkdir(parents=True, exist_ok=True)
        FINDINGS.mkdir(parents=True, exist_ok=True)
        options = _libfuzzer_options if clang else _standalone_options
        log = build.BUILD / f"{target}.log"

        with log.open("wb") as output:
            done = subprocess.run(
                [str(program), *options(target, each)],
                env=_environment(target),
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )

        text = log.read_text(errors="replace").rstrip()
        print(f"{target}: {text.splitlines()[-1] if text else ''}", flush=True)
        if done.returncode != 0:
            print(text[-4000:])

        for path in sorted(_findings(target) - before):
            print(
                f"found {path}; replay it:\n  {sys.executable} -m tests.fuzz replay {target} {path}"
            )

        if done.returncode != 0:
            failed.append(target)

    print(f"findings in: {', '.join(failed)}" if failed else "nothing found")
    return 1 if failed else 0


def _findings(target: str) -> set[Path]:
    return set(FINDINGS.glob(f"{target}-*"))


def _inputs(target: str) -> list[str]:
    folders = (build.CORPUS / target, GROWN / target)
    return [str(path) for folder in folders for path in sorted(folder.iterdir())]


def _standalone_options(target: str, seconds: int) -> list[str]:
    folders = ["-findings", str(FINDINGS), "-grow", str(GROWN / target)]
    seed = ["-seed", str(int.from_bytes(os.urandom(4)))]
    return ["-mutate", "-seconds", str(seconds), *seed, *folders, *_inputs(target)]


def _libfuzzer_options(target: str, seconds: int) -> list[str]:
    return [
        f"-max_total_time={seconds}",
        f"-timeout={TIME_LIMIT_S}",
        f"-max_len={INPUT_SIZE_MAX}",
        f"-artifact_prefix={FINDINGS / target}-",
        str(GROWN / target),
        str(build.CORPUS / target),
    ]


def _environment(target: str) -> dict[str, str]:
    # What was freed is kept back for a while; the usual 256 MB of pages take more than 1 GB.
    return {"ASAN_OPTIONS": "quarantine_size_mb=64", **os.environ, "FUZZ_TARGET": target}


if __name__ == "__main__":
    sys.exit(main())
