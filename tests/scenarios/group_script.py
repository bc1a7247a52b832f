"""Plays a script over a master and its replicas, and over brokers that grant queue locks.

A script is text in blocks: commands, a line `----`, what they print, an empty line. `render` plays
it and returns it with what was really printed. Lines that begin with # are for the reader.

    group mode=set|acting|plain in_sync=2 min=2 all_ack auto gap=100 timeout=3000 total=3
          lease=5000 ungated confirm=0 start=0 end=0        the store, and what it asks for
    master epoch=1 end=0 set=1,2 set_epoch=1                become master, as broker 1
    connect 2 on=7 learner       a handshake of broker 2 on connection 7;  plain: no epochs named
    ack 500 on=7 epoch=1         an acknowledgement; the present epoch is stored, or that one
    sent on=7                    a batch went out;  close on=7
    put NAME 100 copies=2 unreplicated                      admit, append 100 bytes, wait
    put NAME 100 disk            admit, append 100 bytes;  flushed NAME: its sync is over
    at 3000                      the clock, and a tick
    controller set=1,2 epoch=2   the controller's set;  refuse 1, lose 1: answers to a proposal
    lease asked=0                a lease was renewed;  alive 2: as the nameserver counts
    stop                         the role ends
    show                         how things stand

    brokers 3 strict|any lease=60000     tables of so many brokers
    ask NAME client=A broker=1,2         client A asks; the brokers named answer in time
    late NAME broker=3                   broker 3 answers now
    answer NAME                          what the client is told
    restart 2 quiet                      a broker forgets its table
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rmqstore._native.core import Admission
from rmqstore.errors import PutError
from rmqstore.replication.group.group import CloseConnection, Effect, MasterGroup, Propose
from rmqstore.replication.group.queue_lock import LockRequest, LockTable, QueueId, Release
from rmqstore.replication.group.quorum import Lease, Mode, Quorum
from rmqstore.sim.board import Resolution
from tests.scenarios.model_master import ModelMaster

_MODES = {"set": Mode.SYNC_STATE_SET, "acting": Mode.ACTING_MASTER, "plain": Mode.PLAIN}
_QUORUM = {
    "in_sync": "in_sync",
    "min": "min_in_sync",
    "gap": "gap_bytes_max",
    "timeout": "timeout_ms",
    "lag": "lag_ms_max",
    "total": "total",
    "all_ack": "all_ack",
    "auto": "auto_in_sync",
}
QUEUE = QueueId("g", "orders", 0)


def render(text: str) -> str:
    """Return *text* with what its commands print behind each `----`."""
    stage = Stage()
    out: list[str] = []
    is_expectation = False
    pending: list[str] = []

    for line in text.splitlines():
        if is_expectation:
            if line == "":
                is_expectation = False
                out.append("")
            continue

        out.append(line)
        if line == "----":
            is_expectation = True
            for command in pending:
                out.extend(stage.do(command))
            pending = []
        elif line and not line.startswith("#"):
            pending.append(line)

    assert not pending, f"commands without ----: {pending}"
    return "\n".join(out) + "\n"


def ids(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def shown(members: Iterable[int]) -> str:
    return "{" + ",".join(map(str, sorted(members))) + "}"


class Stage:
    """The actors of one script."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.tables: dict[int, LockTable] = {}
        self.requests: dict[str, tuple[str, LockRequest]] = {}

    def do(self, line: str) -> Iterator[str]:
        verb, *words = line.split()
        values = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        action: Callable[[list[str], dict[str, str]], Iterable[str]] = getattr(self, f"do_{verb}")
        for answer in action(plain, values):
            yield f"{verb}: {answer}" if verb == "show" else answer

    def run(self, change: Callable[[MasterGroup, int], list[Effect] | None]) -> Iterator[str]:
        """Let the group change as a decision; say what the board does by its new rule, then what
        the group wants."""
        effects = self.master.change(change)
        yield from self.board_moved()
        for effect in effects:
            match effect:
                case Propose(proposal):
                    change_text = [f"+{each}" for each in sorted(proposal.joined)]
                    change_text += [f"-{each}" for each in sorted(proposal.left)]
                    yield (
                        f"propose #{proposal.number} {shown(proposal.members)} "
                        f"({' '.join(change_text)}) on set epoch {proposal.set_epoch}"
                    )
                case CloseConnection(connection, reason):
                    yield f"close connection {connection}: {reason}"

    def board_moved(self) -> Iterator[str]:
        offset = self.master.confirm_offset
        if offset > self.confirmed:
            self.confirmed = offset
            yield f"confirm {offset}"
        yield from self.resolved(self.master.resolved())

    def resolved(self, resolutions: Iterable[Resolution[str]]) -> Iterator[str]:
        for each in resolutions:
            yield f"{each.token} {each.status}, copies {each.copies}"

    def do_group(self, flags: list[str], values: dict[str, str]) -> Iterable[str]:
        settings = {
            field: name in flags if name in ("all_ack", "auto") else int(values[name])
            for name, field in _QUORUM.items()
            if name in flags or name in values
        }

        self.master: ModelMaster[str] = ModelMaster(
            Quorum(**settings),
            _MODES[values["mode"]],
            lease=Lease(int(values.get("lease", 0))),
            is_gated="ungated" not in flags,
            confirm_offset=int(values.get("confirm", 0)),
            end_offset=int(values.get("end", 0)),
        )

        self.admissions: dict[str, Admission] = {}
        self.confirmed = self.master.confirm_offset
        return [f"confirm {self.confirmed}"]

    def do_master(self, flags: list[str], values: dict[str, str]) -> Iterable[str]:
        self.master.grow(int(values["end"]))
        return self.run(
            lambda group, now_ms: group.become_master(
                int(values["epoch"]),
                end_offset=int(values["end"]),
                now_ms=now_ms,
                members=ids(values.get("set", "")),
                set_epoch=int(values.get("set_epoch", 1)),
            )
        )

    def do_connect(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        return self.run(
            lambda group, now_ms: group.connected(
                int(words[0]),
                connection=int(values["on"]),
                is_learner="learner" in words,
                names_epochs="plain" not in words,
                now_ms=now_ms,
            )
        )

    def do_ack(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        epoch = int(values.get("epoch", self.master.group.epoch))
        return self.run(
            lambda group, now_ms: group.acked(int(values["on"]), int(words[0]), now_ms, epoch=epoch)
        )

    def do_sent(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        self.master.group.sent(int(values["on"]), self.now_ms)
        return []

    def do_close(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        return self.run(lambda group, now_ms: group.disconnected(int(values["on"]), now_ms))

    def do_put(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        name, size = words[0], int(words[1])
        try:
            admission = self.master.admit(
                int(values["copies"]) if "copies" in values else None,
                is_replicated=not {"unreplicated", "disk"} & set(words),
            )
        except PutError as error:
            reason = str(error).removeprefix("store model: ").removesuffix("; nothing was stored")
            yield f"{name} {error.status}, not stored: {reason}"
            return

        needs = f"{admission.copies} {'copy' if admission.copies == 1 else 'copies'}"
        needs += " and every member" if admission.needs_all else ""
        start = self.master.end_offset

        if "disk" in words:
            needs = "a sync"
        yield f"{name} stored at {start} to {start + size}, needs {needs}"

        self.master.grow(start + size)
        self.admissions[name] = admission
        if "disk" not in words:
            self.master.wait(name, admission)

        yield from self.run(lambda group, now_ms: [])

    def do_flushed(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        return [f"{words[0]} {self.admissions[words[0]].acknowledge()}"]

    def do_at(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        self.now_ms = int(words[0])
        if hasattr(self, "master"):
            self.master.now_ms = self.now_ms
            yield from self.run(lambda group, now_ms: group.tick(now_ms))
            yield from self.resolved(self.master.expired())

    def do_controller(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        return self.run(
            lambda group, now_ms: group.confirm_set(
                ids(values["set"]), set_epoch=int(values["epoch"]), now_ms=now_ms
            )
        )

    def do_refuse(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        return self.run(lambda group, now_ms: group.refuse_proposal(int(words[0]), now_ms))

    def do_lose(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        return self.run(lambda group, now_ms: group.lose_proposal(int(words[0]), now_ms))

    def do_lease(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        self.master.group.renew_lease(int(values["asked"]))
        return self.run(lambda group, now_ms: [])

    def do_alive(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        self.master.group.policy.alive_replicas = int(words[0])
        return self.run(lambda group, now_ms: [])

    def do_stop(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        self.master.stop()
        return self.resolved(self.master.resolved())

    def do_show(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        held = self.master.group.sync_state_set
        return [
            f"members {shown(held.members)} waited {shown(held.waited)} "
            f"counted {shown(held.counted)}, confirm {self.master.confirm_offset} of "
            f"{self.master.end_offset}, {len(self.master)} waiting"
        ]

    def do_brokers(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        self.lease_ms = int(values.get("lease", 60_000))
        self.is_strict = words[1] == "strict"
        self.tables = {
            each: LockTable(lease_ms=self.lease_ms) for each in range(1, int(words[0]) + 1)
        }
        return []

    def do_ask(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        request = LockRequest(
            [QUEUE],
            total=len(self.tables),
            is_strict=self.is_strict,
            asked_ms=self.now_ms,
            timeout_ms=2000,
            lease_ms=self.lease_ms,
        )
        self.requests[words[0]] = (values["client"], request)
        for broker_id in ids(values["broker"]):
            yield from self.answered(words[0], broker_id)

    def do_late(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        for broker_id in ids(values["broker"]):
            yield from self.answered(words[0], broker_id)

    def answered(self, name: str, broker_id: int) -> Iterator[str]:
        client, request = self.requests[name]
        grants = self.tables[broker_id].lock(client, [QUEUE], now_ms=self.now_ms)
        yield f"{name}: broker {broker_id} {'grants' if grants else 'refuses'}"
        yield from self.released(request.granted(broker_id, grants, now_ms=self.now_ms))

    def released(self, releases: Iterable[Release]) -> Iterator[str]:
        for each in releases:
            self.tables[each.broker_id].release(each.grant)
            yield f"broker {each.broker_id} gets its grant back"

    def do_answer(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        client, request = self.requests[words[0]]
        yield from self.released(request.close())
        if request.locked:
            yield f"{client} holds the queue until {request.held_until_ms}"
        else:
            yield f"{client} does not hold the queue"

    def do_restart(self, words: list[str], values: dict[str, str]) -> Iterable[str]:
        quiet_ms = self.now_ms + self.lease_ms if "quiet" in words else None
        self.tables[int(words[0])] = LockTable(lease_ms=self.lease_ms, quiet_until_ms=quiet_ms)
        return []
