"""What every implementation of `RemoteLogMetadata` makes of verifications of one segment."""

from dataclasses import replace

import pytest

from include.tiering.model.ownership import Fence
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition, Verdict
from include.tiering.segments import sql_verdicts
from include.tiering.segments.contract import QualityResult, RecordedVerdict, RemoteLogMetadata, Verification
from tests.doubles.databases import AdjustableNow
from tests.doubles.segments import DELETE_STARTED, FINISHED, finish, segment_of, update_of


@pytest.fixture
def segment_id(metadata: RemoteLogMetadata, partition: TopicIdPartition, fence: Fence) -> RemoteLogSegmentId:
    return finish(metadata, segment_of(partition, 1, 0, 99), fence).remote_log_segment_id


def verification(
    metadata: RemoteLogMetadata, segment_id: RemoteLogSegmentId, *broken: str, unevaluated: str = ""
) -> Verification:
    """One that begins now. A rule whose name begins with W is a warning."""
    results = tuple(
        QualityResult(segment_id, rule, "warning" if rule[0] == "W" else "critical", False, f"why {rule}")
        for rule in broken
    )
    return Verification(segment_id, results, frozenset(unevaluated.split()), before=metadata.segment(segment_id))


def broken(metadata: RemoteLogMetadata, segment_id: RemoteLogSegmentId) -> list[str]:
    return [result.rule for result in metadata.quality_results(segment_id) if not result.passed]


def verdict(metadata: RemoteLogMetadata, segment_id: RemoteLogSegmentId) -> Verdict:
    return metadata.segment(segment_id).verdict


def test_a_verification_that_finds_nothing_passes_the_segment(metadata, now, segment_id):
    assert metadata.record_verification(verification(metadata, segment_id)) == RecordedVerdict(Verdict.PASSED, ())
    row = metadata.segment(segment_id)
    assert (row.verdict, row.verdict_detail, row.verdict_at_ms) == (Verdict.PASSED, "", now.now_ms)
    assert metadata.quality_results(segment_id) == []


def test_a_critical_rule_fails_it_and_stops_the_partition(metadata, partition, segment_id):
    found = verification(metadata, segment_id, "Q2", "W1", "Q1")
    in_order = tuple(sorted(found.broken, key=lambda one: one.rule))
    assert metadata.record_verification(found) == RecordedVerdict(Verdict.FAILED, in_order)
    assert metadata.quality_results(segment_id) == list(in_order)
    row = metadata.segment(segment_id)
    assert (row.verdict, row.verdict_detail) == (Verdict.FAILED, "Q1: why Q1; Q2: why Q2")
    assert "Q1: why Q1" in metadata.stopped_reason(partition)


def test_a_warning_does_not(metadata, partition, segment_id):
    assert metadata.record_verification(verification(metadata, segment_id, "W1")).verdict is Verdict.PASSED
    assert broken(metadata, segment_id) == ["W1"]
    assert metadata.stopped_reason(partition) is None


def test_a_later_verification_clears_the_rules_that_it_evaluates(metadata, partition, segment_id):
    metadata.record_verification(verification(metadata, segment_id, "Q1", "Q2", "W1"))
    still = metadata.record_verification(verification(metadata, segment_id, unevaluated="Q2"))
    assert (still.verdict, [one.rule for one in still.broken]) == (Verdict.FAILED, ["Q2"])
    assert [(one.rule, one.passed, one.message) for one in metadata.quality_results(segment_id)] == [
        ("Q1", True, ""),
        ("Q2", False, "why Q2"),
        ("W1", True, ""),
    ]
    assert metadata.record_verification(verification(metadata, segment_id)) == RecordedVerdict(Verdict.PASSED, ())
    assert metadata.stopped_reason(partition) is None


@pytest.mark.parametrize("before", [(), ("Q1",)], ids=["never-verified", "failed-before"])
@pytest.mark.parametrize("fails_first", [True, False])
def test_of_two_verifications_at_once_the_failed_one_counts(metadata, segment_id, before, fails_first):
    """The clock stands still meanwhile, and what one finds may be what was found before."""
    if before:
        metadata.record_verification(verification(metadata, segment_id, *before))
    clears, fails = verification(metadata, segment_id), verification(metadata, segment_id, "Q1")
    for one in (fails, clears) if fails_first else (clears, fails):
        metadata.record_verification(one)
    assert verdict(metadata, segment_id) is Verdict.FAILED
    assert broken(metadata, segment_id) == ["Q1"]
    assert metadata.record_verification(verification(metadata, segment_id)).verdict is Verdict.PASSED


def test_a_verification_clears_what_was_found_before_it_began(metadata, segment_id):
    metadata.record_verification(verification(metadata, segment_id, "Q1"))
    clears = verification(metadata, segment_id)
    metadata.record_verification(verification(metadata, segment_id, "Q2", unevaluated="Q1"))
    metadata.record_verification(clears)
    assert verdict(metadata, segment_id) is Verdict.FAILED
    assert broken(metadata, segment_id) == ["Q2"]


def test_repeating_a_call_changes_nothing(metadata, segment_id):
    metadata.record_verification(verification(metadata, segment_id, "Q1"))
    for one in (verification(metadata, segment_id), verification(metadata, segment_id, "Q2")):
        assert metadata.record_verification(one) == metadata.record_verification(one)


def test_a_verification_without_a_row_of_before_clears_nothing_and_passes_nothing(metadata, segment_id):
    by_neighbours = verification(metadata, segment_id, "W1")
    recorded = metadata.record_verification(Verification(segment_id, by_neighbours.broken))
    assert (recorded.verdict, broken(metadata, segment_id)) == (Verdict.NONE, ["W1"])
    metadata.record_verification(verification(metadata, segment_id, "Q1", unevaluated="W1"))
    assert metadata.record_verification(Verification(segment_id)).verdict is Verdict.FAILED
    assert broken(metadata, segment_id) == ["Q1", "W1"]


def test_verdicts_of_a_segment_ascend_in_time_though_the_clock_is_set_back(metadata, now: AdjustableNow, segment_id):
    metadata.record_verification(verification(metadata, segment_id, "Q1"))
    first = metadata.segment(segment_id).verdict_at_ms
    now.now_ms -= 60_000
    clears = verification(metadata, segment_id)
    metadata.record_verification(verification(metadata, segment_id, "Q1"))
    assert metadata.segment(segment_id).verdict_at_ms == first + 1
    assert metadata.record_verification(clears).verdict is Verdict.FAILED


def test_what_a_deep_verification_passed_stays_so_until_it_fails(metadata, now, segment_id):
    def deep_passed_at(*broken: str, is_deep: bool) -> int | None:
        now.advance(1)
        metadata.record_verification(replace(verification(metadata, segment_id, *broken), is_deep=is_deep))
        return metadata.segment(segment_id).deep_passed_at_ms

    assert deep_passed_at(is_deep=False) is None
    first = now.now_ms + 1
    assert deep_passed_at("W1", is_deep=True) == first
    assert deep_passed_at(is_deep=False) == first
    assert deep_passed_at(is_deep=True) == first + 2
    metadata.expire_verdicts(-1, at_most=1)
    assert metadata.segment(segment_id).deep_passed_at_ms == first + 2
    assert deep_passed_at("Q1", is_deep=False) is None
    assert deep_passed_at(is_deep=False) is None


def test_what_is_not_finished_is_left_alone(metadata, partition, fence, segment_id):
    fails, passes = verification(metadata, segment_id, "Q1"), verification(metadata, segment_id)
    segment = metadata.segment(segment_id).metadata
    metadata.update_segment(update_of(segment, DELETE_STARTED), expected=FINISHED, fence=fence)
    assert metadata.record_verification(fails) is None
    assert metadata.record_verification(passes) is None
    assert verdict(metadata, segment_id) is Verdict.NONE
    assert metadata.quality_results(segment_id) == []
    assert metadata.record_verification(Verification(segment_of(partition, 2, 0, 99).remote_log_segment_id)) is None


def test_rules_and_verdict_are_stored_together_or_not_at_all(metadata, segment_id, monkeypatch):
    def dies(*_: object, **__: object) -> None:
        raise InterruptedError

    metadata.record_verification(verification(metadata, segment_id))
    fails = verification(metadata, segment_id, "Q1")
    monkeypatch.setattr(sql_verdicts, "store_verdict", dies)
    with pytest.raises(InterruptedError):
        metadata.record_verification(fails)
    assert verdict(metadata, segment_id) is Verdict.PASSED
    assert metadata.quality_results(segment_id) == []
