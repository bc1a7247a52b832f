"""Masters and slaves over model logs, ready to talk."""

from __future__ import annotations

from dataclasses import replace

from rmqstore.replication.protocol.autoswitch_master import AutoSwitchMaster
from rmqstore.replication.protocol.autoswitch_slave import AutoSwitchSlave
from rmqstore.replication.protocol.classic import ClassicMaster, ClassicSlave
from rmqstore.replication.protocol.events import HaOptions
from rmqstore.replication.protocol.frames import Handshake
from tests.scenarios.ha_model import ModelLog, Play

OPTIONS = HaOptions(overlap_bytes=100)
"""The overlap is one message of the model."""
SIXTEEN = "abcdefghijklmnop"
"""The letters of the longer log of a pair."""
LIKE_JAVA = HaOptions(overlap_bytes=0)
HELLO = Handshake(sync_from_last_file=False, is_learner=False, broker_id=2)


def unconfirmed_log(letters: str) -> ModelLog:
    """Return a log of a message for each letter, written in epoch 1, nothing of it confirmed."""
    return ModelLog().begin(1).put(letters)


def log(letters: str) -> ModelLog:
    """Return a log of a message for each letter, written in epoch 1, all of it confirmed."""
    made = unconfirmed_log(letters)
    made.confirm_offset = made.end_offset
    return made


def switch_pair(
    master: ModelLog, slave: ModelLog, options: HaOptions = OPTIONS, *, begin_anew: bool = False
) -> Play:
    return Play(
        new_master=lambda: AutoSwitchMaster(master, broker_id=1, options=options),
        master_log=master,
        slave=AutoSwitchSlave(slave, broker_id=2, options=options, may_begin_anew=begin_anew),
        slave_log=slave,
    )


def switch_master(log: ModelLog, options: HaOptions = OPTIONS) -> Play:
    return Play(
        new_master=lambda: AutoSwitchMaster(log, broker_id=1, options=options), master_log=log
    ).connect()


def switch_slave(log: ModelLog, options: HaOptions = OPTIONS, *, begin_anew: bool = False) -> Play:
    slave = AutoSwitchSlave(log, broker_id=2, options=options, may_begin_anew=begin_anew)
    return Play(slave=slave, slave_log=log).connect()


def classic_pair(
    master: ModelLog, slave: ModelLog, options: HaOptions = OPTIONS, *, begin_anew: bool = False
) -> Play:
    return Play(
        new_master=lambda: ClassicMaster(master, broker_id=2, options=options),
        master_log=master,
        slave=ClassicSlave(slave, options=options, may_begin_anew=begin_anew),
        slave_log=slave,
    )


def classic_master(log: ModelLog, options: HaOptions = OPTIONS) -> Play:
    return Play(
        new_master=lambda: ClassicMaster(log, broker_id=2, options=options), master_log=log
    ).connect()


def classic_slave(log: ModelLog, options: HaOptions = OPTIONS, *, begin_anew: bool = False) -> Play:
    slave = ClassicSlave(log, options=options, may_begin_anew=begin_anew)
    return Play(slave=slave, slave_log=log).connect()


def limited(bytes_per_second: int) -> HaOptions:
    return replace(OPTIONS, bytes_per_second=bytes_per_second)
