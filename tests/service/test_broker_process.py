"""`rmqstore serve broker` and `serve standalone` as processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import rmqstore
from rmqstore.cli.errors import ExitCode
from tests.service.server_processes import errors_until_signal, first_line, refusal, serving
from tests.support.brokers import broker_config


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_broker_serves_until_a_signal_and_closes_its_store(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "broker.conf"
    config = broker_config(tmp_path / "store")
    path.write_text(config.to_properties() + "sendMessageThreadPoolNums=16\n")
    address, errors = errors_until_signal(number, "broker", "-c", str(path))
    assert f"[broker broker-a {address}] started as master" in errors
    assert f"[broker broker-a {address}] closed" in errors
    assert "1 key of the configuration has no effect here: sendMessageThreadPoolNums" in errors
    assert not (tmp_path / "store" / "abort").exists()
    rmqstore.open(tmp_path / "store").close()


def test_broker_with_a_wrong_file_or_without_a_directory_does_not_start(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerNam=b\n")
    assert "did you mean brokerName" in refusal("broker", "-c", str(path))
    assert "storePathRootDir is not set" in refusal("broker", "--port", "0")


def test_broker_whose_store_is_taken_names_the_process(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(broker_config(tmp_path / "store").to_properties())
    with rmqstore.open(tmp_path / "store"):
        errors = refusal("broker", "-c", str(path), status=ExitCode.FAILED)
    assert str(os.getpid()) in errors


def test_standalone_needs_no_file_and_prints_both_addresses(tmp_path: Path) -> None:
    place = tmp_path / "data"
    ports = ("--port", "0", "--broker-port", "0")
    with serving("standalone", str(place), *ports) as process:
        words = first_line(process).split()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert words[:4] == ["rmqstore", "standalone", "serves", "at"]
    nameserver, broker = words[4].rstrip(","), words[-1]
    assert f"[namesrv {nameserver}] broker " in errors
    assert f"at {broker} registered" in errors
    assert (place / "store" / "commitlog").is_dir()
    assert not (place / "store" / "abort").exists()
