"""The slave of auto-switch HA: handshake, cut to the consistent point, transfer.

Rules: those of RocketMQ's AutoSwitchHAClient. The wire is the same. The six cases of where a
slave's log (minimum - maximum) lies against its master's, of RocketMQ's design of 5.0:

    1-1        halts; where it may begin anew, or is empty, begins at the master's first byte
    1-2, 2-2   follows
    1-3, 2-3   cuts its log to the consistent point, then follows
    3-3        halts and touches nothing; RocketMQ deletes the log (H14)

It also halts before it cuts below the promised offset: what a master of this library confirmed, no
election takes away that follows the rules, so that master, or the one before it, has lost messages.
A RocketMQ master promises nothing: it confirms its own end unless allAckInSyncStateSet is on, and
no frame says which. Below its confirm offset the slave halts only where the master's log is shorter
in an epoch that both share: that master has lost messages and is master still.

Of the master's epoch list, entries after the end of the master's log are dropped, and so are those
that bytes prove false: a fork found by comparing (`protocol.slave`) lowers the point to the
beginning of the epoch that both sides claimed to share. Epochs of the reply up to this log's end
are taken over at once, because the first one may never be announced.

A master whose last epoch is older than the highest one known here, from an order, this log or
another master, was replaced: it gets no acknowledgement. The epoch of a master that is followed is
saved before the first acknowledgement or cut. One number with two starts was given to two masters:
nothing is cut, and unless the bytes show that only the start was moved, the slave halts.

A slave offers checks (csrc/format/ha_frame.h). Its acknowledgements then name the last epoch that
it has stored, and one goes out also where only that is news. RocketMQ's master does not see the
offer; releases of this library before the checks close on it, so after a few such ends one
connection is made without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rmqstore.epochs import EpochEntry, EpochList, clash_of, common_points, epoch_at
from rmqstore.errors import ArgumentError
from rmqstore.replication.group.epoch_state import EPOCH_JUMP_MAX, known_epoch
from rmqstore.replication.protocol.events import (
    Append,
    Closed,
    Effect,
    Event,
    HaOptions,
    HaState,
    LogView,
    PromiseConfirm,
    Restart,
    SaveEpochs,
    SaveEpochState,
    Send,
    SetConfirm,
)
from rmqstore.replication.protocol.frames import (
    Ack,
    Frame,
    Handshake,
    HandshakeReply,
    Transfer,
    handshake_crc,
)
from rmqstore.replication.protocol.slave import SlaveMachine

__all__ = ["AutoSwitchSlave"]

_TOLD_MAX = 4
_OFFERS_MAX = 3


class AutoSwitchSlave(SlaveMachine):
    """An auto-switch slave whose id is *broker_id*.

    With *learns_while_partial* it is a learner as long as it lacks the beginning of its master's
    log, so that no master proposes it as a member of the sync-state set.
    """

    def __init__(
        self,
        log: LogView,
        *,
        broker_id: int,
        options: HaOptions,
        is_learner: bool = False,
        sync_from_last_file: bool = False,
        learns_while_partial: bool = False,
        may_begin_anew: bool = False,
    ) -> None:
        super().__init__(log, options=options, may_begin_anew=may_begin_anew)
        self._hello = Handshake(
            sync_from_last_file=sync_from_last_file, is_learner=is_learner, broker_id=broker_id
        )
        self._learns_while_partial = learns_while_partial

        self._said = self._hello
        self._refusals = 0
        """Offers of checks, one after another, on which the connection ended."""

        self._theirs = EpochList()
        self._epochs = EpochList()
        self._master_confirm = -1
        self._fork_ceiling: int | None = None
        self._reply_end = 0
        self._cut_at: int | None = None

        self._master_epoch: int | None = None
        """The last epoch of the connected master, None before it is followed."""
        self._far_epoch: int | None = None
        """The last epoch that was named and so high that it must be a mistake."""
        self._clash: tuple[EpochEntry, EpochEntry] | None = None
        """The epoch that this log and the master's begin at different offsets, ours first."""

    def _open(self, now_ms: int) -> list[Effect]:
        self.state = HaState.HANDSHAKE
        self._cut_at = self._master_epoch = self._clash = None
        self._master_confirm = -1
        hello = replace(self._hello, is_learner=self._is_learner)
        if self._asks_from_start or (hello.is_learner and self._log.end_offset > 0):
            # From the first byte means from there, not from the last file; and who holds something
            # already goes on there. One flag must be free for the offer.
            hello = replace(hello, sync_from_last_file=False)
        offers = self._options.checks and self._refusals < _OFFERS_MAX
        if offers and not (hello.sync_from_last_file and hello.is_learner):
            hello = replace(hello, offers_checks=True)
        self._said = hello
        return [Send(hello)]

    def _on(self, event: Event, now_ms: int) -> list[Effect]:
        if isinstance(event, Closed) and self.state is HaState.HANDSHAKE:
            self._refusals = self._refusals + 1 if self._said.offers_checks else 0
        return super()._on(event, now_ms)

    def _take(self, frame: Frame, now_ms: int) -> list[Effect]:
        match frame:
            case HandshakeReply(epoch=epoch) if self._is_asking:
                effects = self._join(frame, now_ms)
                if self.state in (HaState.READY, HaState.SUSPEND):
                    return effects
                return self._know(epoch, effects)
            case Transfer(is_checked=is_checked) if is_checked is not self._is_checked:
                return self._close("a frame in which checks are missing, or too many")
            case Transfer(epoch=epoch) if self.state is HaState.TRANSFER:
                effects = self._far_ahead(epoch) or self._transfer(frame, now_ms)
                if self.state is not HaState.TRANSFER:
                    return effects
                return self._know(epoch, effects)
        return self._close(f"a {type(frame).__name__} came in state {self.state.name}")

    @property
    def _is_learner(self) -> bool:
        """Whether the copy of this slave must not count at the present."""
        log = self._log
        is_partial = self._learns_while_partial and log.epoch_state.is_partial(log.start_offset)
        return self._hello.is_learner or is_partial

    def _change_voice(self) -> list[Effect]:
        """Connect again if the handshake no longer states what holds."""
        if self._said.is_learner == self._is_learner:
            return []
        if self._is_learner:
            return self._close(
                "this log lacks the beginning of its master's: it no longer counts", 0
            )
        return self._close(
            "this log no longer lacks the beginning of its master's: it counts again", 0
        )

    @property
    def _is_asking(self) -> bool:
        return self.state is HaState.HANDSHAKE and self._cut_at is None

    # ---- the master's epoch

    def _know(self, epoch: int, effects: list[Effect]) -> list[Effect]:
        """Record an epoch of the connected master, before *effects*."""
        self._master_epoch = epoch if self._master_epoch is None else max(self._master_epoch, epoch)
        if epoch <= known_epoch(self._log):
            return effects
        saved = next((each for each in effects if isinstance(each, SaveEpochState)), None)
        state = self._log.epoch_state if saved is None else saved.state
        others = [each for each in effects if each is not saved]
        return [SaveEpochState(state.learn(epoch)), *others]

    def _ordered(self, epoch: int) -> list[Effect]:
        if self._master_epoch is None or self._master_epoch >= epoch:
            return []
        if self._is_unlisted(self._master_epoch):
            return []
        return self._close(f"ordered to epoch {epoch}; {self._replaced(self._master_epoch)}", 0)

    def _is_unlisted(self, epoch: int) -> bool:
        """Return whether the master of the ordered epoch may name *epoch*, an older one.

        RocketMQ does not list an epoch that begins where its last one did, so a master that was
        elected again before it got a byte names the older one. The order is for this address, and
        what this replica holds is not of a later epoch than the one named.
        """
        ours = self._log.epochs
        is_held_later = bool(ours) and ours[-1].epoch > epoch
        is_ordered = self.ordered_epoch == known_epoch(self._log)
        return is_ordered and not self._is_checked and not is_held_later

    def _replaced(self, epoch: int) -> str:
        return (
            f"the master is of epoch {epoch}, and this replica knows epoch "
            f"{known_epoch(self._log)}: that master was replaced, or has not begun its epoch yet; "
            "nothing is acknowledged to it"
        )

    def _far_ahead(self, epoch: int) -> list[Effect]:
        """Leave a master of an epoch so high that it must be a mistake, and halt when it is named
        again; no effects for any other.

        Without checks one such number may be a bit that turned on the way.
        """
        known = known_epoch(self._log)
        if known < 0 or epoch - known <= EPOCH_JUMP_MAX:
            return []
        reason = (
            f"the master is of epoch {epoch}, more than {EPOCH_JUMP_MAX} above epoch {known}, the "
            "highest known here"
        )
        if epoch != self._far_epoch:
            self._far_epoch = epoch
            return self._close(f"{reason}: a mistake, unless a bit turned on the way")
        return self._halt(
            f"{reason}: a mistake, or the master of another group. Nothing was touched; "
            f"if it is right, call become_slave with epoch={epoch} and allow_epoch_jump=True"
        )

    # ---- the handshake's answer

    def _join(self, reply: HandshakeReply, now_ms: int) -> list[Effect]:
        log = self._log
        self._refusals = 0
        self._is_checked = reply.handshake_crc is not None
        if self._is_checked and reply.handshake_crc != handshake_crc(self._said):
            return self._close("the master received another handshake than this slave's")

        try:
            theirs = EpochList(reply.entries)
        except ArgumentError as error:
            return self._close(f"the master's {error}")

        if reply.end_offset < 0 or reply.epoch != (theirs.last.epoch if theirs.last else -1):
            return self._close(
                f"the master reports that its log ends at {reply.end_offset} and its last epoch is "
                f"{reply.epoch}; its epoch list ends with {theirs.last}"
            )

        if reply.epoch < known_epoch(log) and not self._is_unlisted(reply.epoch):
            return self._close(self._replaced(reply.epoch))
        if refusal := self._far_ahead(reply.epoch):
            return refusal

        ours = EpochList(tuple(log.epochs)).restored(log_end=log.end_offset)
        self._theirs = theirs.restored(log_end=reply.end_offset)
        self._reply_end = reply.end_offset

        if log.start_offset > reply.end_offset:
            return self._halt(
                f"this log begins at {log.start_offset}, its master's ends at {reply.end_offset}: "
                "the master has lost data, or is not the master of this log. Nothing was touched; "
                "make the right replica master, or empty this one"
            )

        if log.start_offset == log.end_offset:
            # Nothing is held, so nothing can differ. The first bytes name their epoch.
            self._epochs = EpochList()
            return self._follow(now_ms, master_end=reply.end_offset)
        return self._meet(ours, now_ms)

    def _meet(self, ours: EpochList, now_ms: int) -> list[Effect]:
        """Find the consistent point, cut there, follow."""
        log, theirs, ceiling = self._log, self._theirs, self._fork_ceiling

        if not ours.entries:
            return self._meet_without_epochs(now_ms)
        self._clash = clash_of(ours.entries, theirs.entries)
        if self._clash is not None:
            return self._meet_clash(self._clash, ours, now_ms)

        points = common_points(
            ours.entries, theirs.entries, our_end=log.end_offset, their_end=self._reply_end
        )
        known = False

        for found in points:
            known = True
            point = found if ceiling is None else min(found, ceiling)
            if point < log.start_offset:
                return self._halt(
                    f"this log and its master's part at {point}, before {log.start_offset} where "
                    "this one begins: nothing of it is the master's; empty this replica"
                )

            if self._has_lost(point, ours):
                self._same_until = point
                confirmed = max(log.promised_offset, log.confirm_offset)
                return self._halt(
                    f"this log holds confirmed messages up to {confirmed}, its master only those "
                    f"before {point}, and no election explains that: the master has lost them, or "
                    "was elected without asking enough replicas. Nothing was touched; promote this "
                    "replica, or one that holds them, else empty this one"
                )

            if point < log.end_offset and not log.is_border(point):
                # Bytes that were equal up to here would make this a border in both logs.
                continue

            size = log.whole_end - point
            if size > self._options.cut_bytes_max:
                return self._halt(
                    f"this log and its master part at {point}: {size} bytes would be cut, more "
                    f"than the {self._options.cut_bytes_max} of cut_bytes_max that are copied "
                    "first. Nothing was touched; raise cut_bytes_max, or empty this replica"
                )

            # An epoch that began at the end and wrote nothing goes too, unless the master has it.
            self._epochs = ours.truncate_to(point)
            if point == log.end_offset:
                return self._resume(now_ms)
            self._cut_at = point
            return self._cut(point)

        if not known and theirs.entries and theirs.entries[0].start_offset > log.start_offset:
            # The master has deleted its first epochs, and perhaps all that lies where this log
            # does: then its first byte tells so. Bytes that both hold are compared, not cut.
            self._asks_from_start = True
            self._epochs = ours
            return self._resume(now_ms)

        what = "no common point is a record's beginning" if known else "no epoch in common"
        return self._close(
            f"{what} with the master: this log has {_format_epochs(ours)}, "
            f"the master has {_format_epochs(theirs)}"
        )

    def _has_lost(self, point: int, ours: EpochList) -> bool:
        """Return whether a cut at *point* would follow a master that lost what was confirmed.

        A master never has less than its slaves within one epoch; where another was elected, a later
        epoch begins at the point. What was promised is lost in either case.
        """
        if point < self._log.promised_offset:
            return True
        is_shorter = point == self._reply_end and self._theirs.last in ours.entries
        return is_shorter and point < self._log.confirm_offset

    def _meet_clash(
        self, clash: tuple[EpochEntry, EpochEntry], ours: EpochList, now_ms: int
    ) -> list[Effect]:
        """Handle an epoch that begins at different offsets in the two logs.

        A RocketMQ master that restarts in its epoch moves the start to the end of its log. If the
        master holds what this log holds of that epoch, it is the same master: its list is taken.
        """
        log, first = self._log, self._theirs.entries[0]
        kept = tuple(
            each
            for each in ours.entries
            if each.epoch < first.epoch and each.start_offset <= first.start_offset
        )
        has_list = bool(kept) or first.start_offset <= log.end_offset
        is_comparable = clash[0].start_offset < log.end_offset <= self._reply_end
        if not (has_list and is_comparable and self._options.overlap_bytes):
            return self._halt(_told_clash(clash))
        self._epochs = EpochList(kept)
        return self._resume(now_ms)

    def _meet_without_epochs(self, now_ms: int) -> list[Effect]:
        """Handle a log whose list was lost, or that was written under classic HA (H6)."""
        log = self._log
        if log.end_offset > self._reply_end or self._options.overlap_bytes == 0:
            return self._halt(
                f"this log ends at {log.end_offset}, its master's at {self._reply_end}, and it has "
                "no epoch list to decide whether they are the same; empty this replica, or give it "
                "back its epochFileCheckpoint"
            )
        self._epochs = EpochList()
        return self._resume(now_ms)

    def _log_grew(self, now_ms: int) -> list[Effect]:
        if self._cut_at is None:
            return self._change_voice() or super()._log_grew(now_ms)
        cut_at, self._cut_at = self._cut_at, None
        self._fork_ceiling = None
        if self._log.end_offset != cut_at:
            return self._close(f"cut at {cut_at}, the log ends at {self._log.end_offset}")
        return self._resume(now_ms)

    def _tick(self, now_ms: int) -> list[Effect]:
        is_following = self.state is HaState.TRANSFER
        return (self._change_voice() if is_following else []) or super()._tick(now_ms)

    def _resume(self, now_ms: int) -> list[Effect]:
        """Take over the master's later epochs up to this log's end, and say where to begin."""
        # One list at the end: a master may name hundreds of thousands.
        entries = list(self._epochs.entries)
        for entry in self._theirs.entries:
            last = entries[-1] if entries else None
            if entry.start_offset > self._log.end_offset:
                break
            # The master may claim another beginning for an epoch of this log.
            if last is None or (
                entry.epoch > last.epoch and entry.start_offset >= last.start_offset
            ):
                entries.append(entry)
        self._epochs = EpochList(tuple(entries))
        effects = self._follow(now_ms, master_end=self._reply_end)
        # What is not compared yet must not look as if it were the master's after a crash.
        return (self._save(self._epochs) if self.is_verified else []) + effects

    # ---- transfer

    def _transfer(self, frame: Transfer, now_ms: int) -> list[Effect]:
        end = frame.offset + len(frame.body)
        log = self._log
        has_body = bool(frame.body)
        restarts = False

        if self._shows_beginning(frame.offset, has_body=has_body):
            if not has_body and frame.offset > self._reply_end:
                return self._gap(frame.offset)
            restarts = self._gives_up(has_body=has_body)
            if not restarts:
                return self._begin_anew(frame.offset, frame.body, now_ms)

        if restarts or (has_body and log.start_offset == log.end_offset):
            self._epochs = self._theirs_at(frame.offset)
        if not self._learn(frame.epoch, frame.epoch_start, end=end):
            return self._close(
                f"the master labels bytes {frame.offset} to {end} with epoch {frame.epoch} from "
                f"{frame.epoch_start} on, which contradicts {_format_epochs(self._epochs)}"
            )

        self._master_confirm = max(self._master_confirm, frame.confirm_offset)
        if not has_body:
            effects = self._heartbeat(frame.offset, now_ms)
        else:
            effects = self._receive(frame.offset, frame.body, now_ms)

        if self.state is not HaState.TRANSFER:
            return effects
        effects = self._with_epochs(effects)
        if restarts:
            return effects

        saved = next((each for each in effects if isinstance(each, SaveEpochs)), None)
        if saved is not None and not any(isinstance(each, Append) for each in effects):
            effects += self._name_epoch(saved.entries, now_ms)
        return effects + self._confirmed()

    def _name_epoch(self, saved: Sequence[EpochEntry], now_ms: int) -> list[Effect]:
        if not self._is_checked or self.reported_offset < 0:
            return []
        if _last_epoch(saved, self.reported_offset) == self.reported_epoch:
            return []
        self._wrote_ms = now_ms
        self.reported_epoch = _last_epoch(saved, self.reported_offset)
        return [Send(Ack(self.reported_offset, self.reported_epoch))]

    def _theirs_at(self, offset: int) -> EpochList:
        """Return the master's epoch at *offset*, with those that began where it does and wrote
        nothing: another replica may know only these."""
        first = epoch_at(self._theirs.entries, offset)
        if first is None:
            return EpochList()
        return self._theirs.trim_before(first.start_offset).restored(log_end=first.start_offset)

    def _learn(self, epoch: int, start_offset: int, *, end: int) -> bool:
        """Take the label of a frame that ends at *end* into the list; return whether it fits."""
        if epoch < 0 or not 0 <= start_offset <= max(end, 0):
            return False
        last = self._epochs.last
        if last is not None and (epoch, start_offset) == (last.epoch, last.start_offset):
            return True
        entry = EpochEntry(epoch, start_offset)
        if last is None or (entry.epoch > last.epoch and entry.start_offset >= last.start_offset):
            self._epochs = self._epochs.append(entry)
            return True
        return entry in self._epochs.entries or entry in self._theirs.entries

    def _with_epochs(self, effects: list[Effect]) -> list[Effect]:
        """Put the list where it belongs: before the bytes that an epoch begins with, behind those
        that the one before ends with, and behind a new beginning of the log."""
        log = self._log

        if self._epochs.entries == tuple(log.epochs):
            return effects

        append = next((each for each in effects if isinstance(each, Append)), None)
        restarts = any(isinstance(each, Restart) for each in effects)
        holds_bytes = append is not None or restarts or log.start_offset < log.end_offset
        if not holds_bytes or not self.is_verified:
            return effects

        if append is None:
            saved = self._save(self._epochs)
            if restarts:
                return effects + saved
            return saved + [self._renamed(each) for each in effects]

        at = effects.index(append)
        before = self._epochs.restored(log_end=append.offset)
        behind = [] if before == self._epochs else [SaveEpochs(self._epochs.entries)]
        return [*effects[:at], *self._save(before), append, *behind, *effects[at + 1 :]]

    def _renamed(self, effect: Effect) -> Effect:
        """Let an acknowledgement that is sent after a save name the epoch that is stored by then:
        an epoch that the save drops would be later than the epoch of the next acknowledgement."""
        if not isinstance(effect, Send) or not isinstance(effect.frame, Ack):
            return effect
        offset, epoch = effect.frame.offset, effect.frame.epoch
        if epoch is None or epoch < 0:
            return effect
        self.reported_epoch = _last_epoch(self._epochs.entries, offset)
        return Send(Ack(offset, self.reported_epoch))

    def _begins_late(self, offset: int) -> bool:
        # Without the flag it sends its first byte. An epoch list that begins before it makes a
        # whole copy look partial, never a partial one whole.
        first = self._theirs.entries[0].start_offset if self._theirs.entries else 0
        return self._said.sync_from_last_file and offset > first

    @property
    def _shared_confirm(self) -> int:
        """The master's confirm offset as far as this log is known to be the master's."""
        return min(self._master_confirm, self.shared_end)

    def _confirmed(self) -> list[Effect]:
        confirm = self._shared_confirm
        raised = [SetConfirm(confirm)] if confirm > self._log.confirm_offset else []
        return [*self._promised(), *raised]

    def _promised(self) -> list[Effect]:
        log = self._log
        if self.state is not HaState.TRANSFER:
            return []
        is_promise = self._is_checked and log.is_gated
        # A confirm offset that is not a promise becomes one when the master has confirmed as much.
        if is_promise == log.is_promised or (
            is_promise and self._shared_confirm < log.confirm_offset
        ):
            return []
        return [PromiseConfirm(is_promise)]

    def _received_confirm(self, offset: int) -> None:
        self._master_confirm = max(self._master_confirm, offset)

    def _may_receive(self) -> bool:
        # Bytes go under the label that is saved last.
        return bool(self._log.epochs) and self._epochs.last == self._log.epochs[-1]

    def _label(self) -> EpochEntry | None:
        return self._epochs.last

    def _forked(self, offset: int) -> list[Effect]:
        if self._clash is not None:
            return self._halt(_told_clash(self._clash))
        entry = epoch_at(self._log.epochs, offset)
        has_common = not set(self._theirs.entries).isdisjoint(self._log.epochs)
        if entry is None or entry.start_offset <= self._log.start_offset or not has_common:
            return self._halt(
                f"bytes from {offset} on are not those of the master, and no epoch shows where "
                "the logs parted; compare them with rmqstore diff, then empty this replica"
            )
        self._fork_ceiling = entry.start_offset
        return self._close(
            f"bytes from {offset} on are not those of the master, whatever both epoch lists say; "
            f"cutting to {entry.start_offset}",
            0,
        )

    def _stored_epoch(self, offset: int) -> int:
        if offset == 0 and self._master_epoch is not None:
            # An empty log stores no epochs, and has nothing to lose.
            return self._master_epoch
        return _last_epoch(self._log.epochs, offset)

    def _report_frame(self, offset: int, *, first: bool) -> Ack:
        if not self._is_checked:
            return Ack(offset)
        self.reported_epoch = -1 if first else _last_epoch(self._log.epochs, offset)
        return Ack(offset, self.reported_epoch)


def _last_epoch(entries: Sequence[EpochEntry], offset: int) -> int:
    """Return the last of *entries* that begins at *offset* or before, -1 for none."""
    entry = epoch_at(entries, offset)
    return -1 if entry is None else entry.epoch


def _told_clash(clash: tuple[EpochEntry, EpochEntry]) -> str:
    ours, theirs = clash
    return (
        f"epoch {ours.epoch} begins at {ours.start_offset} in this log and at "
        f"{theirs.start_offset} in its master's: two masters were given one number. Nothing was "
        "touched; find the right log with rmqstore diff, make its replica master in a later epoch, "
        "and empty the other one"
    )


def _format_epochs(epochs: EpochList) -> str:
    """Return the last epochs for a message; a peer may send very many."""
    last = [f"{each.epoch} from {each.start_offset}" for each in epochs.entries[-_TOLD_MAX:]]
    more = len(epochs.entries) - len(last)
    return ", ".join(([f"{more} epochs"] if more else []) + last) or "no epochs"
