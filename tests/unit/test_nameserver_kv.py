"""The key-value configuration and its file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rmqstore.errors import ConfigError, CorruptionError, DiskError, RemotingFrameError
from rmqstore.nameserver.kv import KvConfig
from rmqstore.nameserver.kv_file import KvFile
from rmqstore.remoting.headers.kv import ORDER_TOPICS


def test_pairs_are_put_replaced_and_deleted_by_namespace() -> None:
    config = KvConfig().put("a", "k", "1").put("b", "k", "2").put("a", "k", "3")
    assert (config.get("a", "k"), config.get("b", "k"), config.get("a", "x")) == ("3", "2", None)
    assert config.pairs("c") is None
    emptied = config.delete("a", "k").delete("a", "k").delete("c", "k")
    assert emptied.pairs("a") == {}
    assert config.get("a", "k") == "3"


def test_the_file_is_the_one_of_rocketmq() -> None:
    config = KvConfig().put(ORDER_TOPICS, "Tö", "broker-a:4")
    encoded = config.encode()
    assert encoded == '{"configTable":{"ORDER_TOPIC_CONFIG":{"Tö":"broker-a:4"}}}'.encode()
    assert KvConfig.decode(encoded) == config
    assert KvConfig.decode(b'{"configTable":{}}') == KvConfig()


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b'{"configTable":[]}', b'{"configTable":{"a":{"k":7}}}', b"{"]
)
def test_other_content_is_refused(content: bytes) -> None:
    with pytest.raises(RemotingFrameError):
        KvConfig.decode(content)


def test_what_was_saved_is_loaded_from_a_new_directory(tmp_path: Path) -> None:
    file = KvFile(tmp_path / "namesrv" / "kvConfig.json")
    assert file.load() == KvConfig()
    config = KvConfig().put("a", "k", "1")
    file.save(config)
    assert file.load() == config
    assert [each.name for each in file.path.parent.iterdir()] == ["kvConfig.json"]


def test_the_copy_of_rocketmq_is_used_where_only_it_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = KvConfig().put("a", "k", "1")
    (tmp_path / "kv.json.bak").write_bytes(config.encode())
    with caplog.at_level(logging.WARNING, "rmqstore"):
        assert KvFile(tmp_path / "kv.json").load() == config
    assert "its copy" in caplog.text


def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    content = KvConfig().put("a", "k", "1").encode()
    for end in range(len(content)):
        path.write_bytes(content[:end])
        with pytest.raises(CorruptionError, match=r"kv\.json .* restore it from a copy"):
            KvFile(path).load()
        assert path.read_bytes() == content[:end]


def test_a_file_that_cannot_be_written_keeps_its_content(tmp_path: Path) -> None:
    file = KvFile(tmp_path / "kv.json")
    file.save(KvConfig().put("a", "k", "1"))
    (tmp_path / "kv.json.tmp").mkdir()
    with pytest.raises(DiskError):
        file.save(KvConfig())
    assert file.load().get("a", "k") == "1"


def test_a_path_whose_directory_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="give another path"):
        KvFile(tmp_path / "file" / "kv.json").save(KvConfig())
