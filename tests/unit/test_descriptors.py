"""The descriptors that connections leave to files."""

from __future__ import annotations

import errno
import pickle
import resource

import pytest

from rmqstore.errors import DiskError
from rmqstore.net import descriptors


@pytest.mark.parametrize(
    ("limit", "usable", "usable_by_others"),
    [(64, 48, 56), (200, 150, 175), (1024, 896, 960), (1 << 20, (1 << 20) - 128, (1 << 20) - 64)],
)
def test_a_quarter_and_at_most_128_descriptors_are_kept_back(
    limit: int, usable: int, usable_by_others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    for is_client, first_refused in ((True, usable), (False, usable_by_others)):
        assert descriptors.refusal(first_refused - 1, is_client=is_client) == ""
        reason = descriptors.refusal(first_refused, is_client=is_client)
        assert f"{first_refused} of {limit} descriptors" in reason
        assert "ulimit -n" in reason


def test_without_a_limit_no_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    infinity = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (infinity, infinity))
    assert descriptors.refusal(1 << 30) == ""


def test_error_of_a_missing_descriptor_names_the_limit_once() -> None:
    error = pickle.loads(pickle.dumps(DiskError(errno.EMFILE, "topics.json: Too many open files")))
    assert str(error).count("ulimit -n") == 1
    assert not error.lacks_space
    assert "ulimit" not in str(DiskError(errno.ENOSPC, "topics.json: No space left on device"))
    assert DiskError(errno.ENOSPC, "").lacks_space
