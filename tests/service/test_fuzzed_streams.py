"""Recorded streams with some of their bytes changed, to both sides: nothing dies, nothing lies."""

from __future__ import annotations

import os
import random
import zlib
from pathlib import Path

import pytest

import rmqstore
from rmqstore.replication import HaOptions, Slave
from tests.golden.wire import NAMES, Stream, every_stream
from tests.service.test_bad_input import ANONYMOUS_BYTES_MAX, BOTH, anonymous_bytes, besieged
from tests.service.wire import HOST, Protocol, calling, listening
from tests.support.effort import rounds
from tests.support.waiting import wait_until

SEED = int(os.environ.get("RMQ_SEED", "6"))
OPTIONS = HaOptions(heartbeat_ms=1000, reconnect_ms=1)
WORD = {"autoswitch": "auto-switch", "classic": "classic"}
EPOCH_MAX = 2**31 - 1
INTERESTING = (0, 1, 2, 3, 0x7F, 0x80, 0xFF)


def recorded(protocol: Protocol, side: str) -> list[Stream]:
    assert NAMES
    return [each for each in every_stream() if each.speaker == f"{WORD[protocol]} {side}"]


def mutated(choice: random.Random, data: bytes) -> bytes:
    """Return *data* with bytes changed, cut out, said twice, or cut off."""
    found = bytearray(data)
    for _ in range(choice.randrange(1, 5)):
        at = choice.randrange(len(found) + 1)
        # Heads stand at the beginning, and that is where most rules are.
        at = min(at, choice.choice((8, 16, 60, len(found))))
        end = min(at + choice.randrange(1, 20), len(found))
        match choice.randrange(4):
            case 0:
                found[at:end] = bytes(choice.choice(INTERESTING) for _ in found[at:end])
            case 1:
                del found[at:end]
            case 2:
                found[at:at] = found[at:end]
            case _:
                found[at:] = found[at : choice.randrange(at, len(found) + 1)]
    return bytes(found)


@BOTH
def test_master_takes_no_harm_from_changed_streams_of_slaves(
    protocol: Protocol, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    choice = random.Random(SEED)
    streams = recorded(protocol, "slave")
    # Not to be reached by a good slave and one that is believed.
    with besieged(tmp_path, protocol, caplog, options=OPTIONS, copies=4) as siege:
        before = anonymous_bytes()
        for number in range(rounds(60, 5000)):
            data = mutated(choice, choice.choice(streams).data)
            with calling(siege.master, protocol) as peer:
                peer.say(data)
                peer.say_end()
                peer.hear_end()
            if number % 20 == 0:
                siege.assert_unharmed()
        wait_until(siege.master, lambda: len(siege.master.replicas) == 1, "the end of the last one")
        assert anonymous_bytes() - before < ANONYMOUS_BYTES_MAX


@BOTH
def test_slave_takes_no_harm_from_changed_streams_of_masters(
    protocol: Protocol, tmp_path: Path
) -> None:
    choice = random.Random(SEED)
    streams = recorded(protocol, "master")
    before = anonymous_bytes()

    for number in range(rounds(8, 500)):
        root = tmp_path / f"store-{number}"
        with (
            rmqstore.open(root, commit_log_file_size_bytes=16384) as store,
            listening(protocol) as master,
            Slave(
                store, master=(HOST, master.address[1]), protocol=protocol, options=OPTIONS
            ) as slave,
        ):
            stream = choice.choice(streams)
            for _ in range(6):
                answer = slave.master_status
                assert answer is not None
                if answer.halted_reason is not None:
                    break
                peer = master.accept()
                peer.say(stream.data if choice.random() < 0.3 else mutated(choice, stream.data))
                peer.say_end()
                peer.hear_end()

            status = slave.status()
            assert (status.role, status.failure) == ("slave", None)
            assert store.confirm_offset <= store.end_offset
            # Whatever came, it can take office, and what it then holds is whole. No CRC covers
            # heads and properties, so what is looked at here is what one does.
            if slave.epoch < EPOCH_MAX:
                slave.become_master(slave.epoch + 1, allow_epoch_jump=True)

            scan = store.scan_log(check_crc=False, on_corrupt="stop")
            for record in scan:
                assert zlib.crc32(record.body) & 0x7FFFFFFF == record.body_crc
            assert scan.error is None or slave.role == "slave"

    assert anonymous_bytes() - before < ANONYMOUS_BYTES_MAX
