"""Codes are part of the interface: this table is not made from the code."""

import pytest

from include.tiering.audit.plan_removals import Spared
from include.tiering.copying.plan import HeldBack, LeftBecause
from include.tiering.expiration.plan import Waits
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.reasons import Reason, reason_members
from include.tiering.model.recovered_log import Obstacle
from include.tiering.operations.doctor import Cause
from include.tiering.operations.readiness import NotReady
from include.tiering.verification.plan import VerificationReason

CODES: dict[type[Reason], str] = {
    IneligibleReason: "internal-topic compacted broker-tiered topic-unknown topic-removed topic-contradicted not-leader"
    " ambiguous-replica being-deleted being-moved offsets-unknown stale-log-dir high-watermark-above-log-end"
    " recovery-point-above-log-end log-start-above-log-end checkpoint-older-than-log active below-log-start"
    " above-high-watermark above-last-stable-offset not-flushed past-retention old-magic no-leader-epoch"
    " no-producer-snapshot corrupt after-corrupt compacted-segment",
    HeldBack: "not-ready no-leader-replica stopped lost failed-again store-in-doubt hole log-divergence byte-limit"
    " not-eligible damaged compacted not-ours past-retention",
    LeftBecause: "failed throttled copied held paused ended unknown",
    NotReady: "metadata-incomplete cluster-metadata no-leader-replica not-ours deleted unread stopped undecided paused",
    Waits: "not-ready not-ours stopped name-taken topic-deleted",
    Obstacle: "same-offsets covered falling-epochs odd-epochs overlap gap below-log-start before-history left-history"
    " later-history",
    Spared: "young age-unknown known accepted complete no-segment",
    Cause: "not-found not-included handover platform not-ready open-transaction not-eligible held-back topic-quota"
    " being-copied waits-for-a-run nothing-rolled up-to-date deleted",
    VerificationReason: "never-verified failed-before expired expiring older-than-asked rolling-sample asked",
}


@pytest.mark.parametrize("reasons", CODES, ids=lambda reasons: reasons.__name__)
def test_the_codes_stay(reasons: type[Reason]) -> None:
    assert [reason.code for reason in reasons] == CODES[reasons].split()
    assert [reasons.of(code) for code in CODES[reasons].split()] == list(reasons)


@pytest.mark.parametrize("reasons", CODES, ids=lambda reasons: reasons.__name__)
def test_a_person_reads_the_message(reasons: type[Reason]) -> None:
    for reason in reasons:
        assert f"{reason}" == str(reason) == reason.message
    assert len({reason.message for reason in reasons}) == len(list(reasons))


def test_which_reasons_need_a_person() -> None:
    assert {reason for reason in HeldBack if not reason.retriable} == {
        HeldBack.OUT_OF_SIGHT,
        HeldBack.STOPPED,
        HeldBack.LOST,
        HeldBack.FAILED_AGAIN,
        HeldBack.STORE_IN_DOUBT,
        HeldBack.HOLE,
        HeldBack.DIVERGENCE,
        HeldBack.DAMAGED,
        HeldBack.COMPACTED,
    }
    assert {reason for reason in NotReady if not reason.retriable} == {
        NotReady.NOT_OURS,
        NotReady.DELETED,
        NotReady.STOPPED,
        NotReady.UNDECIDED,
    }


def test_what_a_document_says_of_a_reason() -> None:
    assert reason_members(NotReady.PAUSED) == {"reason": "paused", "reason_message": "paused"}
    assert reason_members(None) == {"reason": None, "reason_message": None}
    with pytest.raises(ValueError, match="NotReady has no code 'other'"):
        NotReady.of("other")
