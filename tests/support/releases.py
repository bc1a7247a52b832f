"""Releases of RocketMQ that a test runs with: one where they behave alike, all in `make soak`.

Frames, logs and both protocols of replication are the same in all releases, and each is run live in
`make test`. So a case whose outcome does not depend on the release runs with one of them, cases
beside it with another one.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.golden import RELEASES
from tests.support.effort import is_long

OLD, NEW = RELEASES
BEFORE = "4.9.8"
"""A release whose clients alone are run."""


def with_release(release: str, *, fixture: str = "java_release") -> pytest.MarkDecorator:
    """Return a mark that runs a test with *release*, and in its long form with all of them."""
    chosen = RELEASES if is_long() else (release,)
    params = [pytest.param(each, marks=pytest.mark.java) for each in chosen]
    return pytest.mark.parametrize(fixture, params, indirect=True)


def with_releases(
    name: str, cases: Mapping[str, str | tuple[object, ...]], *, fixture: str = "java_release"
) -> pytest.MarkDecorator:
    """Return a mark that runs a test with each value of its argument *name*.

    *cases* has by the id of a value the release that runs it, or the value and the releases. In its
    long form a test runs each value with all of them.
    """
    params = []
    for key, case in cases.items():
        value, *chosen = case if isinstance(case, tuple) else (key, case)
        for each in RELEASES if is_long() else chosen:
            params.append(pytest.param(each, value, id=f"{each}-{key}", marks=pytest.mark.java))
    return pytest.mark.parametrize((fixture, name), params, indirect=[fixture], scope="session")
