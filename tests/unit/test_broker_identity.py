"""The identity of a broker: assignment with lost answers, restarts, files cut at each byte."""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.broker.membership.identity import (
    Application,
    Apply,
    DropApplication,
    GroupName,
    Life,
    RequestNextId,
    SaveApplication,
    SaveIdentity,
    assign,
)
from rmqstore.broker.membership.identity_files import IdentityFiles
from rmqstore.errors import ConfigError, CorruptionError, DiskError
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store import folder
from tests.support.java_rules import JavaRules

GROUP = GroupName("c", "b")
OWN = "10.0.1.1:10911"
NAMES = {"clusterName": "c", "brokerName": "b"}


class Died(Exception):
    """The process ended."""


class Process:
    """A process of a broker: it carries out the steps of `assign` against a controller.

    *at* names an event of the exchange with which something goes wrong, counted from 0.
    """

    def __init__(self, path: Path, rules: JavaRules, address: str = OWN) -> None:
        self.files = IdentityFiles(path, GROUP)
        self.rules = rules
        self.address = address
        self.events = 0
        self.dies_at = self.loses_at = -1
        self.wall_ms = 1000

    def run(self) -> int:
        """Return the id, from the files or the controller."""
        kept = self.files.read()
        if kept.broker_id is not None:
            return kept.broker_id
        steps = assign(self.address, kept.application)
        step = next(steps)
        while True:
            result: tuple[int, int] | bool | None = None
            match step:
                case RequestNextId():
                    answer = self.ask(self.rules.next_broker_id, NAMES)
                    if answer is not None:
                        self.wall_ms += 1
                        result = int(answer.ext_fields["nextBrokerId"]), self.wall_ms
                case SaveApplication(application):
                    self.event()
                    self.files.save_application(application)
                case Apply(application):
                    fields = {"appliedBrokerId": str(application.broker_id)}
                    fields |= NAMES | {"registerCheckCode": application.check_code}
                    answer = self.ask(self.rules.apply, fields)
                    if answer is not None:
                        result = answer.code == ResponseCode.SUCCESS
                case DropApplication():
                    self.event()
                    self.files.drop_application()
                case SaveIdentity(broker_id):
                    self.event()
                    self.files.save_identity(broker_id)
                    self.event()
            try:
                step = steps.send(result)
            except StopIteration as end:
                return int(end.value)

    def event(self) -> bool:
        """Die here if that is due; return whether an answer is lost here."""
        self.events += 1
        if self.events - 1 == self.dies_at:
            raise Died
        return self.events - 1 == self.loses_at

    def ask(self, handler: Callable[[Frame], Frame], fields: dict[str, str]) -> Frame | None:
        if self.event():
            return None  # The request was lost.
        answer = handler(Frame.request(1, fields))
        return None if self.event() else answer


def test_an_undisturbed_broker_gets_the_next_id_and_keeps_it(tmp_path: Path) -> None:
    path, rules = tmp_path / "brokerIdentity", JavaRules()
    assert Process(path, rules).run() == 1
    assert path.read_text() == "c#b#1"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["brokerIdentity"]
    assert Process(path, JavaRules()).run() == 1, "the controller is not asked again"


def test_no_answer_that_is_lost_burns_an_id(tmp_path: Path) -> None:
    for lost in range(6):
        path, rules = tmp_path / str(lost), JavaRules()
        process = Process(path, rules)
        process.loses_at = lost
        assert process.run() == 1
        assert rules.next_id == 2, f"event {lost}"


def test_no_death_of_the_process_burns_an_id(tmp_path: Path) -> None:
    seen = set()
    for death in range(7):
        path, rules = tmp_path / str(death), JavaRules()
        process = Process(path, rules)
        process.dies_at = death
        with pytest.raises(Died):
            process.run()
        seen.add(tuple(sorted(each.name.partition("-")[2] for each in tmp_path.glob(f"{death}*"))))
        assert Process(path, rules).run() == 1
        assert rules.next_id == 2, f"event {death}"
    assert seen == {(), ("temp",), ("",)}, "all states of the files were met"


def test_a_process_that_died_before_the_application_was_removed_keeps_its_id(
    tmp_path: Path,
) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    files.save_application(Application(1, f"{OWN};1"))
    files.path.write_text("c#b#1")
    assert files.read().broker_id == 1


def test_two_brokers_that_apply_for_one_id_get_two(tmp_path: Path) -> None:
    rules = JavaRules()
    first, second = assign("a:1"), assign("b:1")
    next(first), next(second)
    one, two = first.send((1, 5)), second.send((1, 5))
    assert isinstance(one, SaveApplication)
    assert isinstance(two, SaveApplication)
    assert isinstance(first.send(None), Apply)
    assert isinstance(second.send(None), Apply)
    assert first.send(True) == SaveIdentity(1)
    assert second.send(False) == DropApplication()
    assert second.send(None) == RequestNextId()
    assert second.send((2, 5)) == SaveApplication(Application(2, "b:1;51"))
    assert rules.next_id == 1


def test_a_restart_at_another_address_repeats_the_application_as_it_was(tmp_path: Path) -> None:
    path, rules = tmp_path / "id", JavaRules()
    process = Process(path, rules)
    process.dies_at = 4
    with pytest.raises(Died):
        process.run()
    assert Process(path, rules, "10.0.9.9:1").run() == 1
    assert rules.addresses == {1: OWN}, "the registration that follows changes it"


@pytest.mark.parametrize("name", ["", "a#b", "a\nb"])
def test_a_name_that_the_file_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="brokerName"):
        GroupName("c", name)


@pytest.mark.parametrize("text", ["d#b#1", "c#a#1"])
def test_the_identity_of_another_group_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "id"
    path.write_text(text)
    with pytest.raises(ConfigError, match="belongs to broker"):
        IdentityFiles(path, GROUP).read()
    path.unlink()
    path.with_name("id-temp").write_text(f"{text}#{OWN};1")
    with pytest.raises(ConfigError, match="belongs to broker"):
        IdentityFiles(path, GROUP).read()


def test_an_identity_cut_at_each_byte_is_restored_or_refused(tmp_path: Path) -> None:
    group = GroupName("DefaultCluster", "broker-a")
    files = IdentityFiles(tmp_path / "id", group)
    files.save_identity(123)
    files.begin_life(123, former=Life(0, 0), wall_ms=5)
    whole = files.path.read_bytes()
    for size in range(len(whole)):
        files.path.write_bytes(whole[:size])
        kept = files.read()
        assert (kept.broker_id, kept.life) == (123, Life(123, 5))
        assert "it was cut" in kept.restored
    files.path.write_bytes(whole)
    assert files.read().restored == ""


def test_an_identity_of_rocketmq_cut_before_its_id_is_refused(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    for text in ("", "c", "c#", "c#b", "c#b#", "c#b#x", "c#b#0", "c#b#-1", "#b#1", "\0" * 5):
        files.path.write_text(text)
        with pytest.raises(CorruptionError, match="not the identity of a broker"):
            files.read()


def test_an_application_outlives_the_cut_of_the_identity_that_was_written_after_it(
    tmp_path: Path,
) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    application = Application(12, f"{OWN};1700000000000")
    files.save_application(application)
    for text in ("", "c#b", "c#b#"):
        files.path.write_text(text)
        assert files.read().application == application


def test_an_application_cut_at_each_byte_is_none_or_another_one(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    files.save_application(Application(12, f"{OWN};17"))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        application = files.read().application
        assert application in (None, Application(12, f"{OWN};1"))


def test_another_id_than_was_kept_is_refused(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    files.begin_life(12, former=Life(0, 0), wall_ms=5)
    files.path.write_text("c#b#13")
    with pytest.raises(CorruptionError, match="'c#b#12' was written"):
        files.read()


def test_the_life_cut_at_each_byte_leaves_the_identity(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    files.save_identity(12)
    files.begin_life(12, former=Life(0, 0), wall_ms=5)
    path = tmp_path / "id-life"
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        kept = files.read()
        assert (kept.broker_id, kept.life) == (12, Life(0, 0))


def test_each_life_is_above_the_former_one_whatever_the_clock_does(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    files.save_identity(1)
    lives = []
    for wall_ms in (1000, 10, 10, 5000, 4000):
        life = files.begin_life(1, former=files.read().life, wall_ms=wall_ms)
        assert life.former == tuple(lives)
        lives.append(life.number)
        assert files.read().life == life
    assert lives == [1000, 1001, 1002, 5000, 5001]


def test_a_life_names_the_last_lives_before_it(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    files.save_identity(1)
    for wall_ms in range(1, 101):
        files.begin_life(1, former=files.read().life, wall_ms=wall_ms)
    assert files.read().life == Life(1, 100, tuple(range(36, 100)))


def test_a_life_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    files.save_identity(1)
    text = "brokerClusterName=c\nbrokerName=b\nbrokerId=1\nlife=7\n"
    (tmp_path / "id-life").write_text(f"{text}crc={zlib.crc32(text.encode())}\n")
    assert files.read().life == Life(1, 7)
    assert files.begin_life(1, former=files.read().life, wall_ms=5) == Life(1, 8, (7,))


def test_a_missing_identity_means_another_id(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    files.begin_life(12, former=Life(0, 0), wall_ms=5)
    kept = files.read()
    assert (kept.broker_id, kept.life) == (None, Life(12, 5))


def test_a_file_of_another_kind_or_size_is_refused(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    files.path.write_bytes(b"c#b#1" * 1000)
    with pytest.raises(CorruptionError, match="5000 bytes"):
        files.read()
    files.path.unlink()
    files.path.mkdir()
    with pytest.raises(DiskError, match="cannot read"):
        files.read()


def test_a_full_disk_leaves_the_former_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = IdentityFiles(tmp_path / "id", GROUP)
    files.save_identity(12)

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folder, "replace_durably", full)
    with pytest.raises(DiskError, match="cannot write") as caught:
        files.save_identity(13)
    assert caught.value.errno == errno.ENOSPC
    assert files.read().broker_id == 12
