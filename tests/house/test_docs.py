"""What the documents say about the tree is true."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.broker.refusals import COMMANDS
from tests.house import tree

# The change log may name what is gone.
DOCUMENTS = [
    name
    for name in tree.files()
    if re.fullmatch(r"(?!CHANGELOG)[A-Z]+\.md|(docs|benchmarks|tests/golden)/.+\.md", name)
]
WRITTEN = ["CHANGELOG.md", *(name for name in DOCUMENTS if "/results/" not in name)]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A path, maybe with a pattern in it: csrc/base/vfs_*.c, csrc/base/{hash,bytes}.h, csrc/*/x.[ch]
PATH = re.compile(
    r"(?<![\w./-])(?:csrc|rmqstore|tests|docs|examples|benchmarks)"
    r"/(?:[\w./*-]|\[\w+\]|\{[\w.,/]+\})+"
)
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
# docs/operations.md, "Fail-over"
SECTION = re.compile(r'(docs/\w+\.md)`?,\s+"([^"{}]+)"')
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ANCHOR = re.compile(r"\]\(((?!\w+:)[^)#\s]*)#([^)\s]+)\)")
FIRST_SCREEN_LINES = 25
COLUMNS_MAX = 120


def _alternatives(path: str) -> Iterator[str]:
    """Yield *path* once for each word of its braces."""
    braces = re.search(r"\{([^}]*)\}", path)
    if braces is None:
        yield path
        return
    for word in braces[1].split(","):
        yield from _alternatives(path[: braces.start()] + word + path[braces.end() :])


def _headings(document: str) -> list[str]:
    return HEADING.findall(re.sub(FENCE, "", tree.text_of(document)))


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_operations_list_every_command_that_a_broker_refuses() -> None:
    title = "### Commands that are not served"
    section = tree.text_of("docs/operations.md").partition(title)[2].partition("\n#")[0]
    numbers: set[int] = set()
    for first, last in re.findall(r"\b(\d{3,6})(?: to (\d{3,6}))?", section):
        numbers.update(range(int(first), int(last or first) + 1))
    assert numbers == set(COMMANDS)


def test_readme_shows_running_code_on_the_first_screen() -> None:
    fence = re.search(r"^```\w+$", tree.text_of("README.md"), re.MULTILINE)
    assert fence is not None
    assert tree.text_of("README.md")[: fence.start()].count("\n") + 1 <= FIRST_SCREEN_LINES


def test_the_first_python_of_the_readme_runs(tmp_path: Path) -> None:
    code = next(body for word, body in FENCE.findall(tree.text_of("README.md")) if word == "python")
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tree.ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_name_files_that_exist(name: str) -> None:
    named = {path for found in PATH.findall(tree.text_of(name)) for path in _alternatives(found)}
    gone = sorted(path for path in named if not any(tree.ROOT.glob(path.rstrip("./"))))
    assert gone == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_link_to_files_that_exist(name: str) -> None:
    folder = (tree.ROOT / name).parent
    links = LINK.findall(tree.text_of(name))
    assert sorted(link for link in links if not (folder / link).exists()) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_link_to_sections_that_exist(name: str) -> None:
    folder = (tree.ROOT / name).parent
    gone = []
    for link, anchor in ANCHOR.findall(tree.text_of(name)):
        target = (folder / link).resolve() if link else tree.ROOT / name
        if target.suffix == ".md":
            headings = _headings(str(target.relative_to(tree.ROOT)))
            if anchor not in map(_anchor, headings):
                gone.append(f"{link}#{anchor}")
    assert gone == []


def test_sections_that_texts_name_exist() -> None:
    gone = [
        f"{name}: {document}, {section}"
        for name in tree.files()
        if name.endswith((".py", ".md", ".c", ".h", ".toml"))
        for document, section in SECTION.findall(tree.text_of(name))
        if not any(heading.startswith(" ".join(section.split())) for heading in _headings(document))
    ]
    assert gone == []


@pytest.mark.parametrize("name", WRITTEN)
def test_lines_of_documents_fit_the_page(name: str) -> None:
    text = re.sub(FENCE, lambda fence: "\n" * fence[0].count("\n"), tree.text_of(name))
    long = [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > COLUMNS_MAX and not line.startswith("|") and " " in line.strip()
    ]
    assert long == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_name_tests_that_exist(name: str) -> None:
    named = set(re.findall(r"(tests/[\w/]+\.py)::(\w+)", tree.text_of(name)))
    gone = [
        f"{file}::{test}"
        for file, test in sorted(named)
        if not (tree.ROOT / file).is_file()
        or not re.search(rf"^(async )?def {test}\(", tree.text_of(file), re.MULTILINE)
    ]
    assert gone == []
