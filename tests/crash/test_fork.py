"""Children that live on while their parent replicates a store, is killed, or closes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from rmqstore.replication import Master
from tests.house import tree
from tests.support.agreement import FILES

HELD = """
def held():
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if name.startswith(("socket:", "anon_inode:")) or name.endswith("/lock"):
            found.append(name)
    return sorted(found)
"""
PARENT = f"""
import os, sys, threading, time
import rmqstore
from rmqstore.replication import HaOptions, Master, Quorum, Slave
from tests.support.agreement import FILES
{HELD}
directory, forks = sys.argv[1], int(sys.argv[2])
options = HaOptions(reconnect_ms=20)
before = held()
a = rmqstore.open(directory + "/a", **FILES)
b = rmqstore.open(directory + "/b", **FILES)
quorum = Quorum(in_sync=2, timeout_ms=40000)
master = Master(a, listen="127.0.0.1:0", quorum=quorum, options=options)
slave = Slave(b, master=master.address, broker_id=2, options=options)
is_over = threading.Event()


def put():
    while not is_over.is_set():
        a.put("orders", bytes(300), copies=2)


putting = threading.Thread(target=put)
putting.start()
lasting = []
for number in range(forks):
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.write(tell, repr([name for name in held() if name not in before]).encode())
        if number == forks - 1:
            os.read(0, 1)  # until the test ends
        os._exit(0)
    os.close(tell)
    print("child", child, os.read(told, 65536).decode(), flush=True)
    os.close(told)
    if number == forks - 1:
        break
    os.waitpid(child, 0)
is_over.set()
putting.join()
assert a.put("orders", b"last", copies=2).copies == 2
print("port", master.address[1], flush=True)
os.read(0, 1)  # until the test ends
"""
CLOSED = """
import os, socket, sys
import rmqstore
from rmqstore.replication import Master
from tests.support.agreement import FILES
ends, lives = os.pipe()
runs, is_run = os.pipe()
with rmqstore.open(sys.argv[1], **FILES) as store:
    with Master(store, listen="127.0.0.1:0") as master:
        port = master.address[1]
        child = os.fork()
        if child == 0:
            os.close(lives)
            os.write(is_run, b"!")
            os.read(ends, 1)
            os._exit(0)
        os.read(runs, 1)
    socket.create_server(("127.0.0.1", port)).close()
    print("free", flush=True)
os.close(lives)
os.waitpid(child, 0)
"""
EXECUTED = f"""
import os, subprocess, sys
import rmqstore
from rmqstore.replication import Master
from tests.support.agreement import FILES
script = '''import os
{HELD}
print(held())'''
with rmqstore.open(sys.argv[1], **FILES) as store, Master(store, listen="127.0.0.1:0"):
    child = subprocess.run([sys.executable, "-c", script], close_fds=False, stdout=subprocess.PIPE)
    print(child.stdout.decode())
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_child_that_lives_on_holds_neither_lock_nor_port_nor_connection_of_its_parent(
    tmp_path: Path,
) -> None:
    with start(PARENT, str(tmp_path), "12") as parent:
        assert parent.stdout is not None
        child = 0
        try:
            for line in parent.stdout:
                what, number, *rest = line.split(maxsplit=2)
                if what == "port":
                    break
                child = int(number)
                assert rest == ["[]\n"], "a child holds these"
            port = int(number)
            with pytest.raises(rmqstore.StoreLockedError):
                rmqstore.open(tmp_path / "a", **FILES)
            parent.kill()
            parent.wait()
            with (
                rmqstore.open(tmp_path / "a", **FILES) as store,
                Master(store, listen=("127.0.0.1", port), epoch=2, others_asked=True),
            ):
                assert store.put("orders", b"again").queue_offset > 0
            os.kill(child, 0)  # It lived all the while.
        finally:
            parent.kill()
            if child:
                os.kill(child, signal.SIGKILL)


def test_port_of_a_master_that_was_closed_is_free_while_a_child_lives(tmp_path: Path) -> None:
    with start(CLOSED, str(tmp_path)) as parent:
        answer, _ = parent.communicate(timeout=60)
    assert (parent.returncode, answer) == (0, "free\n")


def test_executed_child_holds_nothing(tmp_path: Path) -> None:
    with start(EXECUTED, str(tmp_path)) as parent:
        answer, _ = parent.communicate(timeout=60)
    assert parent.returncode == 0
    assert answer.strip() == "[]"
