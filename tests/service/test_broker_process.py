"""`rmqstore serve broker` and `serve standalone` as processes."""

from __future__ import annotations

import os
import re
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.cli.errors import ExitCode
from tests.house import tree
from tests.service.server_processes import errors_until_signal, first_line, refusal, serving
from tests.support.brokers import broker_config
from tests.support.waiting import WAIT_S


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


def test_file_without_a_directory_means_that_of_rocketmq(tmp_path: Path) -> None:
    path = standalone_file(tmp_path, bindAddress="127.0.0.1")
    _, errors = errors_until_signal(
        signal.SIGTERM, "broker", "-c", str(path), environment={"HOME": str(tmp_path)}
    )
    assert f"storePathRootDir is empty: the store is {tmp_path}/store, as in RocketMQ" in errors
    assert (tmp_path / "store" / "commitlog").is_dir()


def test_broker_whose_store_is_taken_names_the_process(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(broker_config(tmp_path / "store").to_properties())
    with rmqstore.open(tmp_path / "store"):
        errors = refusal("broker", "-c", str(path), status=ExitCode.CANNOT_OPEN)
    assert str(os.getpid()) in errors


@pytest.mark.parametrize("server", ["broker", "controller"])
def test_server_whose_directory_is_a_file_names_it(server: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    errors = refusal(server, "--port", "0", "--store", str(path), status=ExitCode.CANNOT_OPEN)
    assert f"{path}" in errors
    assert "not a directory" in errors.lower()


def test_nameserver_that_cannot_read_its_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{")
    config = tmp_path / "namesrv.conf"
    config.write_text(f"kvConfigPath={path}\nlistenPort=0\n")
    errors = refusal("namesrv", "-c", str(config), status=ExitCode.CANNOT_OPEN)
    assert str(path) in errors


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


def standalone_file(root: Path, **changes: Any) -> Path:
    """Return a broker's file below *root* with few keys, so that defaults show."""
    path = root / "broker.conf"
    keys = {"listenPort": 0, "haListenPort": 0, "mappedFileSizeCommitLog": 1 << 20, **changes}
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return path


def standalone_errors(tmp_path: Path, *arguments: str) -> tuple[str, str]:
    """Run `serve standalone` in *tmp_path*; return what it printed and logged."""
    shared = ("standalone", "--port", "0")
    environment = {**os.environ, "PYTHONPATH": str(tree.ROOT)}
    with serving(*shared, *arguments, cwd=tmp_path, env=environment) as process:
        line = first_line(process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    return line, errors


def test_standalone_takes_what_its_file_sets(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        elsewhere = f"127.0.0.1:{silent.getsockname()[1]}"
        path = standalone_file(
            tmp_path,
            storePathRootDir=tmp_path / "mine",
            bindAddress="127.0.0.2",
            namesrvAddr=elsewhere,
            brokerName="from-the-file",
        )
        line, errors = standalone_errors(tmp_path, "-c", str(path))
        silent.settimeout(WAIT_S)
        silent.accept()[0].close()  # The broker has tried to register there as well.
    nameserver, broker = re.findall(r"127\.0\.0\.2:\d+", line)
    assert f"[broker from-the-file {broker}] started as master" in errors
    assert f"[namesrv {nameserver}] broker " in errors
    assert (tmp_path / "mine" / "commitlog").is_dir()
    assert not (tmp_path / "rmqstore-data" / "store").exists()


def test_standalone_fills_in_what_its_file_leaves_out(tmp_path: Path) -> None:
    line, _ = standalone_errors(tmp_path, "-c", str(standalone_file(tmp_path)))
    assert len(re.findall(r"127\.0\.0\.1:\d+", line)) == 2
    assert (tmp_path / "rmqstore-data" / "store" / "commitlog").is_dir()


def test_options_of_standalone_override_its_file(tmp_path: Path) -> None:
    path = standalone_file(tmp_path, storePathRootDir=tmp_path / "mine", bindAddress="127.0.0.2")
    line, _ = standalone_errors(tmp_path, "here", "-c", str(path), "--host", "127.0.0.3")
    assert len(re.findall(r"127\.0\.0\.3:\d+", line)) == 2
    assert (tmp_path / "here" / "store" / "commitlog").is_dir()
    assert not (tmp_path / "mine").exists()


def test_standalone_serves_the_metrics_of_its_broker(tmp_path: Path) -> None:
    arguments = ("--port", "0", "--broker-port", "0", "--metrics-port", "0")
    with serving("standalone", str(tmp_path / "data"), *arguments) as process:
        assert process.stderr is not None
        lines = iter(process.stderr)
        line = next(line for line in lines if "[broker " in line and "metrics are served" in line)
        url = f"http://{line.split()[-1]}/metrics"
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            text = answer.read().decode()
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 0
    assert "rmqstore_role" in text
