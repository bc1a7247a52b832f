"""What processes and links of a group of brokers suffer within a block."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from tests.support.linked_broker import LinkedBroker
from tests.support.our_group import OurGroup
from tests.support.our_server import OurServer

__all__ = ["FAULTS", "Fault"]

Process = LinkedBroker | OurServer


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that lasts for a block; messages are acknowledged in it where *serves*."""

    begin: Callable[[OurGroup], AbstractContextManager[None]]
    serves: bool = True


@contextmanager
def _killed(process: Process) -> Iterator[None]:
    process.kill()
    try:
        yield
    finally:
        process.start()


@contextmanager
def _paused(process: Process) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextmanager
def _cut(broker: LinkedBroker, cut: Callable[[LinkedBroker], None]) -> Iterator[None]:
    cut(broker)
    try:
        yield
    finally:
        broker.mend()


@contextmanager
def _leader_and_master_killed(group: OurGroup) -> Iterator[None]:
    leader, master = group.leader(), group.master()
    with ExitStack() as stack:
        # The leader cannot be found again before both are back.
        stack.enter_context(_killed(leader))
        stack.enter_context(_killed(master))
        yield


@contextmanager
def _master_and_slave_apart(group: OurGroup) -> Iterator[None]:
    slave = group.slave()
    with _cut(group.master(), lambda master: master.cut_from(slave)):
        yield


FAULTS: Mapping[str, Fault] = {
    "master killed": Fault(lambda group: _killed(group.master())),
    "master paused": Fault(lambda group: _paused(group.master())),
    "slave killed": Fault(lambda group: _killed(group.slave())),
    "slave paused": Fault(lambda group: _paused(group.slave())),
    "leader killed": Fault(lambda group: _killed(group.leader())),
    "leader paused": Fault(lambda group: _paused(group.leader())),
    "nameserver killed": Fault(lambda group: _killed(group.nameserver)),
    "nameserver paused": Fault(lambda group: _paused(group.nameserver)),
    "master cut off": Fault(lambda group: _cut(group.master(), LinkedBroker.cut)),
    "leader and master killed": Fault(_leader_and_master_killed),
    "follower killed": Fault(lambda group: _killed(group.follower())),
    "follower paused": Fault(lambda group: _paused(group.follower())),
    "slave cut off": Fault(lambda group: _cut(group.slave(), LinkedBroker.cut)),
    "master cut off from servers": Fault(
        lambda group: _cut(group.master(), LinkedBroker.cut_servers)
    ),
    "slave cut off from servers": Fault(
        lambda group: _cut(group.slave(), LinkedBroker.cut_servers)
    ),
    "master cut off from a slave": Fault(_master_and_slave_apart),
    "master cut off from slaves": Fault(
        lambda group: _cut(group.master(), LinkedBroker.cut_brokers), serves=False
    ),
}
"""The first ten are those of a short run, half of them for each kind of acknowledgement."""
