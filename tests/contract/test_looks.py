"""What every implementation of `RemoteLogMetadata` makes of looks at one segment."""

from dataclasses import replace

import pytest

from include.tiering.model.ownership import Fence
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition, Verdict
from include.tiering.segments import sql_verdicts
from include.tiering.segments.contract import Judgement, Look, QualityResult, RemoteLogMetadata
from tests.doubles.databases import AdjustableNow
from tests.doubles.segments import DELETE_STARTED, FINISHED, finish, segment_of, update_of


@pytest.fixture
def segment_id(metadata: RemoteLogMetadata, partition: TopicIdPartition, fence: Fence) -> RemoteLogSegmentId:
    return finish(metadata, segment_of(partition, 1, 0, 99), fence).remote_log_segment_id


def look(metadata: RemoteLogMetadata, segment_id: RemoteLogSegmentId, *broken: str, unjudged: str = "") -> Look:
    """One that begins now. A rule whose name begins with W is a warning."""
    results = tuple(
        QualityResult(segment_id, rule, "warning" if rule[0] == "W" else "critical", False, f"why {rule}")
        for rule in broken
    )
    return Look(segment_id, results, frozenset(unjudged.split()), before=metadata.segment(segment_id))


def broken(metadata: RemoteLogMetadata, segment_id: RemoteLogSegmentId) -> list[str]:
    return [result.rule for result in metadata.quality_results(segment_id) if not result.passed]


def verdict(metadata: RemoteLogMetadata, segment_id: RemoteLogSegmentId) -> Verdict:
    return metadata.segment(segment_id).verdict


def test_a_look_that_finds_nothing_passes_the_segment(metadata, now, segment_id):
    assert metadata.record_look(look(metadata, segment_id)) == Judgement(Verdict.PASSED, ())
    row = metadata.segment(segment_id)
    assert (row.verdict, row.verdict_detail, row.verdict_at_ms) == (Verdict.PASSED, "", now.now_ms)
    assert metadata.quality_results(segment_id) == []


def test_a_critical_rule_fails_it_and_stops_the_partition(metadata, partition, segment_id):
    found = look(metadata, segment_id, "Q2", "W1", "Q1")
    in_order = tuple(sorted(found.broken, key=lambda one: one.rule))
    assert metadata.record_look(found) == Judgement(Verdict.FAILED, in_order)
    assert metadata.quality_results(segment_id) == list(in_order)
    row = metadata.segment(segment_id)
    assert (row.verdict, row.verdict_detail) == (Verdict.FAILED, "Q1: why Q1; Q2: why Q2")
    assert "Q1: why Q1" in metadata.stopped_reason(partition)


def test_a_warning_does_not(metadata, partition, segment_id):
    assert metadata.record_look(look(metadata, segment_id, "W1")).verdict is Verdict.PASSED
    assert broken(metadata, segment_id) == ["W1"]
    assert metadata.stopped_reason(partition) is None


def test_a_later_look_acquits_of_what_it_judges(metadata, partition, segment_id):
    metadata.record_look(look(metadata, segment_id, "Q1", "Q2", "W1"))
    still = metadata.record_look(look(metadata, segment_id, unjudged="Q2"))
    assert (still.verdict, [one.rule for one in still.broken]) == (Verdict.FAILED, ["Q2"])
    assert [(one.rule, one.passed, one.message) for one in metadata.quality_results(segment_id)] == [
        ("Q1", True, ""),
        ("Q2", False, "why Q2"),
        ("W1", True, ""),
    ]
    assert metadata.record_look(look(metadata, segment_id)) == Judgement(Verdict.PASSED, ())
    assert metadata.stopped_reason(partition) is None


@pytest.mark.parametrize("before", [(), ("Q1",)], ids=["never-judged", "failed-before"])
@pytest.mark.parametrize("convicts_first", [True, False])
def test_of_two_looks_at_once_the_one_that_convicts_is_heard(metadata, segment_id, before, convicts_first):
    """The clock stands still meanwhile, and what one finds may be what was found before."""
    if before:
        metadata.record_look(look(metadata, segment_id, *before))
    acquits, convicts = look(metadata, segment_id), look(metadata, segment_id, "Q1")
    for one in (convicts, acquits) if convicts_first else (acquits, convicts):
        metadata.record_look(one)
    assert verdict(metadata, segment_id) is Verdict.FAILED
    assert broken(metadata, segment_id) == ["Q1"]
    assert metadata.record_look(look(metadata, segment_id)).verdict is Verdict.PASSED


def test_of_what_was_found_before_it_began_a_look_acquits_all_the_same(metadata, segment_id):
    metadata.record_look(look(metadata, segment_id, "Q1"))
    acquits = look(metadata, segment_id)
    metadata.record_look(look(metadata, segment_id, "Q2", unjudged="Q1"))
    metadata.record_look(acquits)
    assert verdict(metadata, segment_id) is Verdict.FAILED
    assert broken(metadata, segment_id) == ["Q2"]


def test_repeating_a_call_changes_nothing(metadata, segment_id):
    metadata.record_look(look(metadata, segment_id, "Q1"))
    for one in (look(metadata, segment_id), look(metadata, segment_id, "Q2")):
        assert metadata.record_look(one) == metadata.record_look(one)


def test_a_look_without_a_row_of_before_acquits_of_nothing_and_passes_nothing(metadata, segment_id):
    by_neighbours = look(metadata, segment_id, "W1")
    judgement = metadata.record_look(Look(segment_id, by_neighbours.broken))
    assert (judgement.verdict, broken(metadata, segment_id)) == (Verdict.NONE, ["W1"])
    metadata.record_look(look(metadata, segment_id, "Q1", unjudged="W1"))
    assert metadata.record_look(Look(segment_id)).verdict is Verdict.FAILED
    assert broken(metadata, segment_id) == ["Q1", "W1"]


def test_verdicts_of_a_segment_ascend_in_time_though_the_clock_is_set_back(metadata, now: AdjustableNow, segment_id):
    metadata.record_look(look(metadata, segment_id, "Q1"))
    first = metadata.segment(segment_id).verdict_at_ms
    now.now_ms -= 60_000
    acquits = look(metadata, segment_id)
    metadata.record_look(look(metadata, segment_id, "Q1"))
    assert metadata.segment(segment_id).verdict_at_ms == first + 1
    assert metadata.record_look(acquits).verdict is Verdict.FAILED


def test_what_a_deep_look_passed_stays_so_until_it_fails(metadata, now, segment_id):
    def deep_passed_at(*broken: str, is_deep: bool) -> int | None:
        now.advance(1)
        metadata.record_look(replace(look(metadata, segment_id, *broken), is_deep=is_deep))
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
    convicts, passes = look(metadata, segment_id, "Q1"), look(metadata, segment_id)
    segment = metadata.segment(segment_id).metadata
    metadata.update_segment(update_of(segment, DELETE_STARTED), expected=FINISHED, fence=fence)
    assert metadata.record_look(convicts) is None
    assert metadata.record_look(passes) is None
    assert verdict(metadata, segment_id) is Verdict.NONE
    assert metadata.quality_results(segment_id) == []
    assert metadata.record_look(Look(segment_of(partition, 2, 0, 99).remote_log_segment_id)) is None


def test_rules_and_verdict_are_stored_together_or_not_at_all(metadata, segment_id, monkeypatch):
    def dies(*_: object, **__: object) -> None:
        raise InterruptedError

    metadata.record_look(look(metadata, segment_id))
    convicts = look(metadata, segment_id, "Q1")
    monkeypatch.setattr(sql_verdicts, "store_verdict", dies)
    with pytest.raises(InterruptedError):
        metadata.record_look(convicts)
    assert verdict(metadata, segment_id) is Verdict.PASSED
    assert metadata.quality_results(segment_id) == []
