"""The interfaces of a machine: which address a broker finds, in network namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.house import tree
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("ip")),
    reason="needs root, unshare and ip: a network namespace",
)

ASK = "from rmqstore.net.own_address import own_address; print(*own_address())"
LAN = "link add eth0 type veth peer name p0; link set p0 up; {address} dev eth0; link set eth0 up"
LAN_192 = LAN.format(address="addr add 192.168.1.5/24")
LAN_6 = LAN.format(address="addr add fd00::5/64 nodad")
PORT = (
    "link add port type veth peer name far; link set port master {0}; link set port up; "
    "link set far up"
)
_NOT_MADE = 77


def bridge(name: str, address: str) -> str:
    """A bridge that is up, with a port that is up."""
    make = f"link add {name} type bridge; addr add {address} dev {name}; link set {name} up"
    return f"{make}; {PORT.format(name)}"


@pytest.mark.parametrize(
    ("commands", "wanted"),
    [
        (f"{bridge('docker0', '172.17.0.1/16')}; {LAN_192}", "192.168.1.5 eth0 True"),
        (f"{LAN_192}; {bridge('br-1a2b3c', '172.18.0.1/16')}", "192.168.1.5 eth0 True"),
        (
            f"tuntap add dev tun0 mode tun; addr add 10.8.0.2 peer 10.8.0.1 dev tun0; "
            f"link set tun0 up; {LAN_192}",
            "192.168.1.5 eth0 True",
        ),
        (
            f"link add dummy0 type dummy; addr add 10.7.0.1/32 dev dummy0; link set dummy0 up; "
            f"{LAN_192}",
            "192.168.1.5 eth0 True",
        ),
        (
            f"link add eth1 type veth peer name p1; addr add 10.9.9.9/24 dev eth1; {LAN_192}",
            "192.168.1.5 eth0 True",
        ),
        (LAN_6, "fd00::5 eth0 True"),
        (f"{bridge('docker0', '172.17.0.1/16')}; {LAN_6}", "fd00::5 eth0 True"),
        (bridge("br0", "10.0.0.5/24"), "10.0.0.5 br0 False"),
        ("link set lo up", "127.0.0.1 lo False"),
    ],
    ids=[
        "bridge before the LAN",
        "bridge after the LAN",
        "tunnel",
        "dummy",
        "card that is down",
        "IPv6 only",
        "IPv6 and a bridge",
        "bridge only",
        "nothing",
    ],
)
def test_address_that_other_machines_reach_is_found(commands: str, wanted: str) -> None:
    steps = " && ".join(f"ip {each.strip()}" for each in commands.split(";"))
    script = f"{{ {steps}; }} || exit {_NOT_MADE}; exec {sys.executable} -c '{ASK}'"
    answer = subprocess.run(
        ["unshare", "-n", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
    )
    if answer.returncode == _NOT_MADE:
        pytest.skip(f"needs a kernel with such interfaces: {answer.stderr.strip()}")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == wanted
