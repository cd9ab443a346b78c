"""Faults of indexes that are counted in numbers, and failures that only a deep verification clears."""

import pytest

from include.tiering.model.segments import Depth
from include.tiering.segments.values import CRITICAL, QualityResult
from include.tiering.verification.record_verdicts import only_deep_clears
from include.tiering.verification.rules import RULES
from include.tiering.verification.segment_contents import IndexFaults, time_index_faults
from tests.doubles.segments import partition_of, segment_of

SEGMENT = segment_of(partition_of("orders"), 1, 100, 199)
NEWEST_MS = SEGMENT.max_timestamp_ms


def entries(*found: tuple[int, int]) -> bytes:
    """Of a time index: milliseconds before the newest timestamp, and an offset."""
    return b"".join(
        (NEWEST_MS - before).to_bytes(8) + (offset - 100).to_bytes(4, signed=True) for before, offset in found
    )


@pytest.mark.parametrize(
    ("found", "disorder", "outside"),
    [
        ([(2, 110), (1, 120), (0, 199)], 0, 0),
        ([(2, 110), (1, 110), (0, 110)], 0, 0),
        ([(2, 110), (1, 109), (0, 110)], 1, 0),
        ([(1, 110), (1, 120), (0, 130)], 1, 0),
        ([(1, 110), (2, 120), (0, 130)], 1, 0),
        ([(2, 100), (1, 199)], 0, 0),
        ([(2, 99), (1, 200)], 0, 2),
        ([(2, 110), (-1, 120)], 0, 1),
    ],
)
def test_times_ascend_and_offsets_never_fall(found: list[tuple[int, int]], disorder: int, outside: int) -> None:
    assert time_index_faults(entries(*found), SEGMENT) == IndexFaults(0, disorder, outside)


DEEP = next(rule.rule_id for rule in RULES if Depth.SHALLOW not in rule.depths)
BOTH = next(rule.rule_id for rule in RULES if rule.depths == frozenset(Depth))


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], False),
        ([(DEEP, False)], True),
        ([(DEEP, True)], False),
        ([(BOTH, False)], False),
        ([(BOTH, False), (DEEP, True)], False),
        ([(BOTH, True), (DEEP, False)], True),
    ],
)
def test_only_a_broken_rule_of_deep_measures_needs_a_deep_verification(
    results: list[tuple[str, bool]], expected: bool
) -> None:
    segment_id = SEGMENT.remote_log_segment_id
    given = [QualityResult(segment_id, rule, CRITICAL, passed) for rule, passed in results]
    assert only_deep_clears(given) is expected
