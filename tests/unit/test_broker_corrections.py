"""The offsets that a group is corrected to (spec/broker.md 26, QUERY_CORRECTION_OFFSET)."""

from __future__ import annotations

import pytest

from rmqstore.broker.operations.progress import corrected

NONE = (1 << 63) - 1


@pytest.mark.parametrize(
    ("offsets", "compared", "starts", "expected"),
    [
        ([{0: 5, 1: 9}, {0: 3}], {}, {0: 0, 1: 0}, {0: 3, 1: 9}),
        ([{0: 5}, {0: 3}], {0: 4}, {0: 0}, {0: 3}),
        ([{0: 5}, {0: 4}], {0: 2}, {0: 0}, {0: NONE}),
        ([{0: 5}, {0: 1}], {0: 9}, {0: 2}, {0: 5}),
        ([], {0: 9}, {}, {}),
    ],
    ids=["smallest of each queue", "compared", "compared is behind", "expired", "no other group"],
)
def test_correction_is_the_smallest_offset_that_the_queue_still_has(
    offsets: list[dict[int, int]],
    compared: dict[int, int],
    starts: dict[int, int],
    expected: dict[int, int],
) -> None:
    assert corrected(offsets, compared, starts) == expected
