"""Every golden case, unpacked once and shared by the tests that only read it."""

import pytest

from tests.golden import NAMES, RELEASES, GoldenCases
from tests.reference import log
from tests.reference.walked import Walked


@pytest.fixture(
    scope="session",
    params=[(release, name) for release in RELEASES for name in NAMES],
    ids=lambda case: "-".join(case),
)
def case(
    request: pytest.FixtureRequest,
    golden_cases: GoldenCases,
    tmp_path_factory: pytest.TempPathFactory,
) -> Walked:
    release, name = request.param
    golden = golden_cases.copy(release, name, into=tmp_path_factory.mktemp("reference"))
    return Walked(golden, [found for _, found in log.walk(golden.root / "commitlog")])
