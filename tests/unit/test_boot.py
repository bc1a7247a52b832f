"""The boot of this machine, by which a replica knows whether the page cache survived."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.net.boot import boot_id

_VARIABLE = "RMQ_BOOT_ID_PATH"


def test_the_boot_is_the_content_of_the_named_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "boot"
    monkeypatch.setenv(_VARIABLE, str(place))
    place.write_text("b-1\n")
    assert boot_id() == "b-1"
    place.write_text("b-2\n")
    assert boot_id() == "b-2"


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_without_a_name_the_process_counts_as_a_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    place = tmp_path / "boot"
    monkeypatch.setenv(_VARIABLE, str(place))
    if content is not None:
        place.write_text(content)
    found = boot_id()
    assert found.startswith("process-")
    assert found == boot_id()


def test_a_long_name_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "boot"
    monkeypatch.setenv(_VARIABLE, str(place))
    place.write_text("x" * 500)
    assert boot_id() == "x" * 64
