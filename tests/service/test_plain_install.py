"""A plain install has lz4 alone: all servers run, but for the engine that needs libraft. The source
code beside it names the cure where it hides the installed package."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import lz4
import pytest

import rmqstore

_PROGRAM = """
import asyncio, sys
root, packages, directory = sys.argv[1:]
sys.path += [root, packages]
sys.modules["rmqstore._native.raft"] = None

from rmqstore.broker.node import Broker
from rmqstore.config import BrokerConfig, ControllerConfig, NameserverConfig
from rmqstore.controller.server import Controller
from rmqstore.errors import ConfigError
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address

PLACE = {"bind_address": "127.0.0.1", "listen_port": 0}

async def run():
    controller = Controller(ControllerConfig(store_path=f"{directory}/log", **PLACE))
    async with Nameserver(NameserverConfig(**PLACE)) as nameserver, controller:
        broker_config = BrokerConfig().replace(
            root_path=f"{directory}/store", commit_log_file_size_bytes=1 << 20,
            bind_address="127.0.0.1", listen_port=0, ha_listen_port=0, controller_mode_enable=True,
            nameservers=(format_address(nameserver.address),),
            controllers=(format_address(controller.address),),
        )
        async with Broker(broker_config) as broker:
            async for role in broker.role_changes():
                if role.name == "master":
                    break
        print("elected")
    peers = ";".join(f"n{n}-127.0.0.1:{9000 + n}" for n in range(3))
    config = ControllerConfig.from_properties(
        f"controllerDLegerPeers={peers}\\ncontrollerDLegerSelfId=n0\\n"
        f"controllerStorePath={directory}/group"
    )
    try:
        await Controller(config).start()
    except ConfigError as error:
        print(repr(str(error)))

asyncio.run(asyncio.wait_for(run(), 60))
names = {each.partition(".")[0] for each, found in sys.modules.items() if found is not None}
print(*(each for each in names - sys.stdlib_module_names if not each.startswith("_")))
"""


def test_servers_run_with_lz4_and_without_libraft(tmp_path: Path) -> None:
    root = Path(rmqstore.__file__).parents[1]
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "lz4").symlink_to(Path(lz4.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, str(root), str(packages), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    elected, missing, packages_used = done.stdout.splitlines()
    assert elected == "elected"
    assert "apt-get install libraft-dev libuv1-dev" in missing
    assert set(packages_used.split()) <= {"cython_runtime", "lz4", "rmqstore"}


@pytest.mark.parametrize("words", [("-c", "import rmqstore"), ("-m", "rmqstore", "--version")])
def test_source_code_without_its_extension_names_the_cure(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    package = Path(rmqstore.__file__).parent
    left_out = shutil.ignore_patterns("*.so", "*.jar", "__pycache__")
    shutil.copytree(package, tmp_path / "rmqstore", ignore=left_out)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {tmp_path / 'rmqstore' / '_native'} holds source code")
    assert "start Python in another folder" in last
    assert "pip install -e ." in last
