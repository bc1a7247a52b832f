"""Three replicas under load whose processes are killed, stopped, cut off and given other roles.

What was acknowledged is in the log of the master, once and in order; what a reader was given
stays; and once all are back the three logs are the same.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.check import verify
from rmqstore.check.compare import compare
from rmqstore.epochs import EpochEntry, parse_epochs
from rmqstore.store.directory import EPOCH_FILE
from tests.crash.replica_group import PATIENCE_S, Ledger, Office, Replica, Trouble
from tests.crash.replica_node import VARIANTS
from tests.support.agreement import check_agreement
from tests.support.effort import rounds

SEED = int(os.environ.get("RMQ_SEED", "20240229"))
SEEDS = rounds(1, int(os.environ.get("RMQ_SEEDS", "20")))
ROUNDS = rounds(6, 12)
ACKED_A_ROUND = 60


class Group:
    """Three replicas, and what happens to them."""

    def __init__(self, folder: Path, variant: str, seed: int) -> None:
        self.rng = random.Random(f"{variant} {seed}")
        self.variant = variant
        self.ledger = Ledger()
        self.acts: list[str] = []
        self.began = time.monotonic()
        self.stopped: Replica | None = None
        self.replicas = [Replica(folder, number, variant, self.ledger) for number in (1, 2, 3)]
        self.office = Office(
            (1, 2, 3), has_set=variant != "quorum", rng=random.Random(self.rng.random())
        )
        for each in self.replicas:
            each.on_proposal = self.office.decide

    def note(self, text: str) -> None:
        self.acts.append(f"{time.monotonic() - self.began:7.3f} s  {text}")

    @property
    def master(self) -> Replica:
        assert self.office.master is not None
        return self.office.master

    @property
    def slaves(self) -> list[Replica]:
        return [each for each in self.replicas if each is not self.master]

    # ---- roles

    def start(self, replica: Replica) -> None:
        self.note(f"start {replica.broker_id}")
        replica.start(self.rng.getrandbits(32))

    def fence(self) -> None:
        """Keep the present master from getting another acknowledgement."""
        if self.office.master is not None:
            self.office.master.relay.cut()

    def elect(self, asked: list[Replica]) -> tuple[Replica, dict[str, Any]] | None:
        """Choose one of those asked and return what it is to be told, None while too few are
        there."""
        self.office.begin_election()
        chosen = self.choose(asked)
        if chosen is None:
            self.office.elect_nobody()
            return None
        answer = self.office.elect(chosen, is_alone=self.rng.random() < 0.5)
        self.note(f"promote {chosen.broker_id} of {[e.broker_id for e in asked]} {answer}")
        return chosen, answer

    def choose(self, asked: list[Replica]) -> Replica | None:
        """Choose by the documented rule."""
        if self.variant == "all_ack":
            fit = [each for each in asked if each.broker_id in self.office.members]
            return self.rng.choice(fit) if fit else None
        if self.variant == "quorum":
            fit, needed = asked, 2
        else:
            # A put has a copy on two of the members.
            fit = [each for each in asked if each.broker_id in self.office.members]
            needed = max(len(self.office.members) - 1, 1)
        if len(fit) < needed:
            return None
        answer = {each: each.ask("status") for each in fit}
        return max(fit, key=lambda each: (answer[each]["epoch"], answer[each]["end"]))

    def promote(self, asked: list[Replica], *, others_follow: bool = True) -> bool:
        """Give one of those *asked* the master's role, the others of them that of a slave."""
        elected = self.elect(asked)
        if elected is None:
            return False
        chosen, answer = elected
        chosen.relay.mend()
        chosen.ask("master", **answer)
        if others_follow:
            for each in asked:
                if each is not chosen:
                    self.follow(each)
        return True

    def follow(self, replica: Replica) -> None:
        host, port = self.master.relay.address
        replica.ask("slave", host=host, port=port)
        # Not before: while it still is master, somebody who follows it might acknowledge to it.
        replica.relay.mend()

    def running(self) -> list[Replica]:
        return [each for each in self.replicas if each.is_running]

    def heal(self) -> None:
        """Have all three run, one of them as master."""
        for each in self.replicas:
            if not each.is_running:
                self.start(each)
        if self.master.ask("status")["role"] != "master":
            self.fence()
            assert self.promote(self.replicas)
        self.master.relay.mend()
        for each in self.slaves:
            self.follow(each)

    # ---- load

    def wait_acked(self, count: int) -> None:
        """Return when so many more messages were acknowledged."""
        before = len(self.ledger.acked)
        if self.ledger.wait_acked(before + count, PATIENCE_S):
            return
        raise AssertionError(f"{len(self.ledger.acked) - before} acknowledged of {count}")

    def wait_some(self) -> None:
        self.wait_acked(self.rng.choice((1, 3, 10, 40)))

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = {"set": sorted(self.office.members)}
        for each in self.running():
            try:
                found[repr(each)] = each.ask("status")
            except (Trouble, AssertionError) as error:
                found[repr(each)] = str(error)
        return found

    def story(self) -> str:
        """Return all that may tell why something went wrong."""
        parts = [*self.acts, f"wrong: {self.ledger.wrongs[:10]}", f"state: {self.state()}"]
        parts += [f"{each}: {each.story()}" for each in self.replicas]
        return "\n".join(parts)

    def check(self) -> None:
        promised = self.ledger.promised()
        self.ledger.compare(self.master.ask("log"), promised)

    # ---- what happens

    def act(self) -> str:
        act = self.rng.choice(ACTS)
        self.note(f"-- {act.__name__}")
        act(self)
        self.heal()
        self.wait_acked(ACKED_A_ROUND)
        self.check()
        return act.__name__

    def kill_the_master(self) -> None:
        self.master.kill()
        asked = self.running()
        if self.rng.random() < 0.5:
            self.promote(asked)
            self.maybe_wait()

    def kill_a_slave(self) -> None:
        killed = self.rng.choice(self.slaves)
        killed.kill()
        self.maybe_wait()

    def kill_the_master_and_a_slave(self) -> None:
        doomed = [self.master, self.rng.choice(self.slaves)]
        self.rng.shuffle(doomed)
        for each in doomed:
            each.kill()
        if self.rng.random() < 0.5:
            self.start(doomed[0])
            self.promote(self.running())

    def stop_a_slave(self) -> None:
        stopped = self.rng.choice(self.slaves)
        stopped.signal(signal.SIGSTOP)
        try:
            self.wait_acked(self.rng.choice((50, 300)))
        finally:
            stopped.signal(signal.SIGCONT)

    def stop_the_master(self) -> None:
        old, slaves = self.master, self.slaves
        old.signal(signal.SIGSTOP)
        self.stopped = old
        try:
            if self.variant != "all_ack" or self.rng.random() < 0.5:
                self.fence()
            if self.promote(slaves, others_follow=self.rng.random() < 0.7):
                self.wait_after_promotion()
        finally:
            self.stopped = None
            old.signal(signal.SIGCONT)
        self.look(self.rng.randint(0, 3))

    def drop_connections(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self.master.relay.drop()
            self.wait_some()

    def isolate_the_master(self) -> None:
        """It is cut off, goes on, another takes over, and it comes back."""
        slaves = self.slaves
        self.fence()
        if self.promote(slaves):
            self.wait_after_promotion()

    def cut_off_the_master_for_a_while(self) -> None:
        self.fence()
        self.look(self.rng.randint(1, 5))

    def promote_another(self) -> None:
        """All three are asked; the master, which goes on, may be the best one again."""
        asked = self.rng.sample(self.replicas, self.rng.choice((2, 3)))
        self.fence()
        self.promote(asked)

    def change_roles_in_quick_succession(self) -> None:
        for _ in range(self.rng.randint(2, 4)):
            self.fence()
            asked = self.rng.sample(self.replicas, self.rng.choice((2, 3)))
            self.promote(asked, others_follow=self.rng.random() < 0.5)
            if self.rng.random() < 0.3:
                self.look(1)

    def kill_in_the_middle_of_a_role_change(self) -> None:
        self.fence()
        elected = self.elect(self.slaves)
        if elected is None:
            return
        chosen, answer = elected
        chosen.relay.mend()
        chosen.send("master", **answer)
        others = [each for each in self.replicas if each is not chosen]
        host, port = chosen.relay.address
        for each in others:
            each.send("slave", host=host, port=port)
        self.look(self.rng.randint(0, 3))
        self.rng.choice((chosen, *others)).kill()

    def restart_the_master(self) -> None:
        if self.rng.random() < 0.5:
            self.master.ask("rest")
        self.master.stop()

    def restart_a_slave(self) -> None:
        self.rng.choice(self.slaves).stop()
        self.maybe_wait()

    def maybe_wait(self) -> None:
        """Where puts get their copies from those that run, wait for some."""
        can_go_on = self.master.is_running and len(self.running()) >= 2
        if can_go_on and self.rng.random() < 0.5:
            self.wait_some()

    def wait_after_promotion(self) -> None:
        if self.rng.random() < 0.7:
            self.look(self.rng.randint(1, 10))

    def look(self, times: int) -> None:
        """Let some time pass, as long as it takes to ask somebody so often."""
        asked = [each for each in self.running() if each not in (self.master, self.stopped)]
        for _ in range(times):
            for each in asked[:1]:
                each.ask("status")

    # ---- the end

    def settle(self) -> None:
        """Have all hold the same and closed."""
        self.heal()
        for each in self.replicas:
            each.ask("rest")
        if self.office.has_set:
            assert self.office.wait_members({1, 2, 3}), "they do not come to be the set"
        self.master.ask("wait", copies=3)
        end = self.master.ask("status")["end"]
        for each in self.replicas:
            each.ask("wait_confirmed", end=end)
        promised = self.ledger.promised()
        for each in self.replicas:
            self.ledger.compare(each.ask("log"), promised)
        for each in self.rng.sample(self.replicas, 3):
            each.stop()

    def compare(self) -> None:
        """The three directories hold the same log, the same epochs, and queues that fit."""
        logs = [log_of(each.path) for each in self.replicas]
        assert logs[0] == logs[1] == logs[2]

        for name in (EPOCH_FILE, EPOCH_FILE + ".bak"):
            first, *others = (epochs_of(each.path / name) for each in self.replicas)
            assert [first, first] == others, name

        with ExitStack() as stack:
            first_store, *other_stores = (
                stack.enter_context(rmqstore.open(each.path, read_only=True))
                for each in self.replicas
            )
            for other in other_stores:
                found = compare(first_store, other)
                assert found.is_equal, found

        for each in self.replicas:
            errors = each.errors.read_text()
            assert "Traceback" not in errors, errors[-4000:]
            report = verify(each.path)
            assert not report.damage, report.damage
            with rmqstore.open(each.path) as store:
                assert store.recovery.was_closed
                check_agreement(store)

    def close(self) -> None:
        for each in self.replicas:
            each.kill()
            each.relay.close()


def log_of(path: Path) -> bytes:
    """Return the bytes of a log, without the zeros behind it."""
    files = sorted((path / "commitlog").iterdir())
    return b"".join(each.read_bytes() for each in files).rstrip(b"\0")


def epochs_of(path: Path) -> list[EpochEntry]:
    """Return the epochs of a file that have bytes; a slave need not hear of another."""
    entries = parse_epochs(path.read_text("ascii"))
    return [
        entry
        for entry, after in pairwise((*entries, None))
        if entry is not None and (after is None or after.start_offset > entry.start_offset)
    ]


ACTS: tuple[Callable[[Group], None], ...] = (
    Group.kill_the_master,
    Group.kill_the_master,
    Group.kill_a_slave,
    Group.kill_the_master_and_a_slave,
    Group.stop_a_slave,
    Group.stop_the_master,
    Group.drop_connections,
    Group.isolate_the_master,
    Group.cut_off_the_master_for_a_while,
    Group.promote_another,
    Group.change_roles_in_quick_succession,
    Group.kill_in_the_middle_of_a_role_change,
    Group.restart_the_master,
    Group.restart_a_slave,
)


@pytest.mark.parametrize("variant", VARIANTS)
def test_replicas_keep_what_they_promised_whatever_happens_to_their_processes(
    variant: str, tmp_path: Path
) -> None:
    for seed in range(SEED, SEED + SEEDS):
        print(f"RMQ_SEED={seed} variant {variant}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        group = Group(folder, variant, seed)
        acts: Counter[str] = Counter()
        try:
            for each in group.replicas:
                group.start(each)
            assert group.promote(group.replicas)
            group.wait_acked(ACKED_A_ROUND)
            for _ in range(ROUNDS):
                acts[group.act()] += 1
            group.settle()
            group.compare()
            assert not group.ledger.wrongs
            assert len(group.ledger.seen) >= len(group.ledger.acked)
        except Exception as error:
            error.add_note(group.story())
            raise
        finally:
            group.close()
        print(dict(acts), len(group.ledger.acked), "acknowledged")
