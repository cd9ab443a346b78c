"""Which segments a sample chooses, each reason alone and exactly at the bounds of its age."""

from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.model.segments import Verdict
from include.tiering.verification.plan import (
    ABOUT_TO_EXPIRE,
    RollingSample,
    VerificationReason,
    VerificationSample,
    reason_of,
)
from tests.doubles.segments import partition_of, segment_of

NOW_MS, MAX_AGE_MS = 1_000_000, 1_000
EXPIRING_MS = round(MAX_AGE_MS * ABOUT_TO_EXPIRE)
SEGMENT = segment_of(partition_of("orders"), 1, 0, 9)


def reason(sample: VerificationSample, verdict: Verdict, age_ms: int | None) -> VerificationReason | None:
    verdict_at_ms = None if age_ms is None else NOW_MS - age_ms
    row: Any = SimpleNamespace(verdict=verdict, verdict_at_ms=verdict_at_ms, metadata=SEGMENT)
    return reason_of(row, sample, now_ms=NOW_MS, max_age_ms=MAX_AGE_MS)


@pytest.mark.parametrize("verdict", Verdict)
def test_a_sample_of_which_nothing_is_said_chooses_nothing(verdict: Verdict) -> None:
    for age_ms in (None, 0, MAX_AGE_MS, NOW_MS):
        assert reason(VerificationSample(), verdict, age_ms) is None
        assert reason(VerificationSample(everything=True), verdict, age_ms) is VerificationReason.ASKED


@pytest.mark.parametrize(
    ("verdict", "age_ms", "expected"),
    [
        (Verdict.NONE, None, VerificationReason.NEVER),
        (Verdict.FAILED, 0, VerificationReason.FAILED),
        (Verdict.EXPIRED, 0, VerificationReason.EXPIRED),
        (Verdict.PASSED, EXPIRING_MS - 1, None),
        (Verdict.PASSED, EXPIRING_MS, VerificationReason.EXPIRING),
        (Verdict.PASSED, None, None),
    ],
)
def test_what_is_due(verdict: Verdict, age_ms: int | None, expected: VerificationReason | None) -> None:
    assert reason(VerificationSample(due=True), verdict, age_ms) is expected
    failed = VerificationReason.FAILED if verdict is Verdict.FAILED else None
    assert reason(VerificationSample(failed=True), verdict, age_ms) is failed


@pytest.mark.parametrize(("age_ms", "is_old"), [(None, True), (99, False), (100, True), (101, True)])
@pytest.mark.parametrize("verdict", Verdict)
def test_an_age_is_inclusive(verdict: Verdict, age_ms: int | None, is_old: bool) -> None:
    found = reason(VerificationSample(older_than_ms=100), verdict, age_ms)
    assert found is (VerificationReason.OLD if is_old else None)


@pytest.mark.parametrize("holds", [False, True])
def test_a_rolling_sample_chooses_what_it_holds(holds: bool) -> None:
    rolling: Any = SimpleNamespace(holds=lambda segment_id: holds and segment_id == SEGMENT.remote_log_segment_id)
    found = reason(VerificationSample(rolling_sample=rolling), Verdict.PASSED, 0)
    assert found is (VerificationReason.SHARE if holds else None)


@pytest.mark.parametrize(("share", "is_one"), [(0.0, False), (1e-9, True), (1.0, True), (1.000_001, False)])
def test_a_share_is_above_nothing_and_at_most_all(share: float, is_one: bool) -> None:
    if is_one:
        RollingSample.of(share, 7)
    else:
        with pytest.raises(ValueError, match="share"):
            RollingSample.of(share, 7)
