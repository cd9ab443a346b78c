"""A planned run: group by group, wherever the measures come from, and on again after whatever stopped it."""

import dataclasses
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from include.tiering.errors import RemoteStorageUnavailableError, SegmentKeyError, StoreInDoubtError
from include.tiering.model.segments import Depth, RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition, Verdict
from include.tiering.quotas.contract import GoOn, UnlimitedBytes, keep_on
from include.tiering.segments.contract import QualityResult, Verification
from include.tiering.verification import verify_planned as module
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.plan import (
    PlannedVerification,
    PlanShare,
    VerificationOutcome,
    VerificationReason,
    VerificationResult,
    batches_for,
)
from include.tiering.verification.record_verdicts import LossLimits
from include.tiering.verification.rules import Severity
from include.tiering.verification.verify_planned import (
    MeasureAll,
    ToMeasure,
    conclude_missing,
    measure_in_process,
    verify_planned,
)
from include.tiering.verification.verify_segments import LockedSegment, Measurer, VerifyReport
from spark_jobs.verification_measures import measure_from_json, measure_to_json
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_stores import MemoryMetadata, MemoryVerifications
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.quotas import NoQuotas
from tests.doubles.stored_log import CopiedPartition, copied_partition

RUN = "run-1"
PLANNED, PASSED, FAILED, GONE, MISSING, LOCKED = VerificationOutcome


class CountedQuotas(NoQuotas):
    """Counts what is charged."""

    def __init__(self) -> None:
        self.charged_bytes = 0
        self.lock = threading.Lock()

    def fetch(self, broker_id: int, topic: str, client: str | None = None, *, go_on: GoOn = keep_on) -> UnlimitedBytes:
        quotas = self

        class Counted(UnlimitedBytes):
            def take(self, wanted_bytes: int) -> int:
                go_on()
                with quotas.lock:
                    quotas.charged_bytes += wanted_bytes
                return wanted_bytes

        return Counted()


@dataclasses.dataclass
class Scene:
    partition: CopiedPartition
    metadata: MemoryMetadata
    plans: MemoryVerifications
    quotas: CountedQuotas

    def plan(self, depth: Depth = Depth.SHALLOW, numbers: Iterable[int] | None = None) -> None:
        rows = [self.partition.rows[n] for n in (numbers if numbers is not None else range(len(self.partition.rows)))]
        self.plans.save_plan(
            RUN,
            [
                PlannedVerification(
                    row.metadata.remote_log_segment_id,
                    row.metadata.start_offset,
                    depth,
                    VerificationReason.NEVER,
                    1_000,
                )
                for row in rows
            ],
        )

    @property
    def measure_all(self) -> MeasureAll:
        return measure_in_process(Measurer(self.metadata, self.partition.storage, self.quotas))

    def verify(self, measure_all: MeasureAll | None = None, **rest) -> VerifyReport:
        return verify_planned(
            RUN,
            self.plans,
            self.metadata,
            PlainEvaluator(),
            measure_all or self.measure_all,
            clock=ManualClock(),
            **rest,
        )

    def conclude(self, **rest: Any) -> VerifyReport:
        return conclude_missing(
            RUN, self.plans, self.metadata, PlainEvaluator(), self.measure_all, clock=ManualClock(), **rest
        )

    def id_of(self, number: int) -> RemoteLogSegmentId:
        return self.partition.rows[number].metadata.remote_log_segment_id

    def outcomes(self) -> list[VerificationOutcome]:
        totals = self.plans.totals(RUN)
        return [total.outcome for total in totals for _ in range(total.segments)]

    def damage(self, number: int, suffix: str = "log") -> bytes:
        path = self.partition.object_path(self.partition.rows[number], suffix)
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        return content


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    partition = copied_partition(tmp_path)
    return Scene(partition, MemoryMetadata(partition.rows), MemoryVerifications(), CountedQuotas())


@pytest.mark.parametrize("depth", Depth)
def test_real_segments_pass_and_what_was_read_is_what_was_charged(scene: Scene, depth: Depth) -> None:
    scene.plan(depth)
    report = scene.verify()
    assert (report.segments, report.failed, report.gone) == (len(scene.partition.rows), (), 0)
    assert scene.outcomes() == [PASSED] * report.segments
    assert {row.verdict for row in scene.metadata.rows.values()} == {Verdict.PASSED}
    assert report.bytes_read == scene.quotas.charged_bytes > 0
    assert sum(total.read_bytes for total in scene.plans.totals(RUN)) == report.bytes_read
    if depth is Depth.DEEP:
        assert report.bytes_read > sum(row.metadata.segment_size_bytes for row in scene.partition.rows)


def test_a_part_of_a_partition_knows_what_comes_before_it(scene: Scene) -> None:
    scene.plan(numbers=[2, 5])
    report = scene.verify()
    assert (report.segments, report.failed) == (2, ())
    assert [row.verdict for row in scene.metadata.rows.values()].count(Verdict.NONE) == len(scene.partition.rows) - 2


def test_a_damaged_segment_fails_and_is_noted(scene: Scene) -> None:
    scene.damage(2)
    scene.plan()
    report = scene.verify()
    assert {finding.segment_id for finding in report.failed} == {str(scene.id_of(2).id)}
    assert [one.segment_id for one in scene.plans.planned(RUN, FAILED)] == [scene.id_of(2)]
    assert scene.metadata.rows[scene.id_of(2)].verdict is Verdict.FAILED


def test_a_run_that_was_stopped_goes_on_where_it_was(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_SEGMENTS", 3)
    scene.plan()
    groups = 0

    def dies_in_the_second_group(wanted: Sequence[ToMeasure]) -> Iterable[SegmentMeasure | LockedSegment]:
        nonlocal groups
        groups += 1
        if groups == 2:
            raise RemoteStorageUnavailableError("503 slow down")
        return scene.measure_all(wanted)

    with pytest.raises(RemoteStorageUnavailableError):
        scene.verify(dies_in_the_second_group)
    assert scene.outcomes().count(PASSED) == 3
    report = scene.verify()
    assert report.segments == len(scene.partition.rows) - 3
    assert scene.outcomes() == [PASSED] * len(scene.partition.rows)
    assert scene.verify().segments == 0


def test_verdicts_that_the_plan_missed_are_taken_again(scene: Scene) -> None:
    """The process died between the verdicts of a group and its outcomes."""

    class Dies(MemoryVerifications):
        def record(self, run_id, results) -> None:
            raise KeyboardInterrupt

    scene.plan()
    with pytest.raises(KeyboardInterrupt):
        dataclasses.replace(scene, plans=Dies(scene.plans.plans)).verify()
    assert {row.verdict for row in scene.metadata.rows.values()} == {Verdict.PASSED}
    assert scene.verify().segments == len(scene.partition.rows)
    assert scene.outcomes() == [PASSED] * len(scene.partition.rows)


def test_what_is_deleted_before_it_is_read_is_gone(scene: Scene) -> None:
    scene.plan()
    row = scene.metadata.rows[scene.id_of(1)]
    deleting = dataclasses.replace(row.metadata, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
    scene.metadata.put(dataclasses.replace(row, metadata=deleting))
    report = scene.verify()
    assert (report.segments, report.gone) == (len(scene.partition.rows) - 1, 1)
    assert [one.segment_id for one in scene.plans.planned(RUN, GONE)] == [scene.id_of(1)]


def test_what_is_deleted_while_it_is_read_is_gone_too(scene: Scene) -> None:
    scene.plan()

    def deletes_meanwhile(wanted: Sequence[ToMeasure]) -> Iterable[SegmentMeasure | LockedSegment]:
        scene.partition.object_path(scene.partition.rows[1], "log").unlink()
        measures = list(scene.measure_all(wanted))
        row = scene.metadata.rows[scene.id_of(1)]
        deleting = dataclasses.replace(row.metadata, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
        scene.metadata.put(dataclasses.replace(row, metadata=deleting))
        return measures

    report = scene.verify(deletes_meanwhile)
    assert (report.failed, report.gone) == ((), 1)
    assert [one.segment_id for one in scene.plans.planned(RUN, GONE)] == [scene.id_of(1)]
    assert scene.metadata.rows[scene.id_of(1)].verdict is Verdict.NONE


def test_pages_end_where_groups_do(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_SEGMENTS", 3)
    monkeypatch.setattr(module, "GROUP_SEGMENTS", 2)
    scene.plan(numbers=range(7))
    assert scene.verify().segments == 7
    assert [len(group) for group in scene.plans.records] == [2, 1, 2, 1, 1]


def test_groups_are_bounded_by_bytes_and_hold_at_least_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.plan()
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    for group_bytes, streams, expected in ((1, 1, 1), (1_999, 1, 1), (2_000, 1, 2), (1_000, 3, 3)):
        monkeypatch.setattr(module, "GROUP_BYTES", group_bytes)
        scene.plans.records.clear()
        scene.plans.results.clear()
        calls = 0
        scene.verify(streams=streams, on_group=count)
        sizes = [len(group) for group in scene.plans.records]
        assert sum(sizes) == len(scene.partition.rows)
        assert set(sizes[:-1]) == {expected}
        assert calls == len(sizes)


def test_a_shallow_verification_does_not_clear_what_a_deep_one_failed(scene: Scene) -> None:
    """Two batches' worth of damage that only reading all of the log finds: the store was told the new checksum."""
    row = scene.partition.rows[3]
    path = scene.partition.object_path(row, "log")
    content = path.read_bytes()
    middle = len(content) // 2
    damaged = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    path.write_bytes(damaged)
    scene.metadata.put(dataclasses.replace(row, log_crc32c=google_crc32c.value(damaged)))
    scene.plan(Depth.SHALLOW, numbers=[3])
    assert scene.verify().failed == ()
    scene.plans.results.clear()
    scene.plan(Depth.DEEP, numbers=[3])
    deep = scene.verify()
    assert deep.failed
    scene.plans.results.clear()
    scene.plan(Depth.SHALLOW, numbers=[3])
    shallow = scene.verify()
    assert {one.rule for one in shallow.failed} == {one.rule for one in deep.failed}
    assert scene.metadata.rows[scene.id_of(3)].verdict is Verdict.FAILED
    path.write_bytes(content)
    scene.metadata.put(dataclasses.replace(scene.metadata.rows[scene.id_of(3)], log_crc32c=row.log_crc32c))
    scene.plans.results.clear()
    scene.plan(Depth.DEEP, numbers=[3])
    assert scene.verify().failed == ()
    assert scene.metadata.rows[scene.id_of(3)].verdict is Verdict.PASSED


def test_what_a_deep_verification_fails_while_a_shallow_one_is_under_way_stays_failed(scene: Scene) -> None:
    """The shallow look began when nobody had measured the segment; it ends after the deep one."""
    segment_id = scene.id_of(3)
    broken = QualityResult(segment_id, "Q105", Severity.CRITICAL, passed=False, message="a batch is damaged")

    def measured_while_another_run_fails_it(wanted: Sequence[ToMeasure]) -> Iterable[SegmentMeasure | LockedSegment]:
        yield from scene.measure_all(wanted)
        scene.metadata.record_verification(Verification(segment_id, (broken,)))

    scene.plan(Depth.SHALLOW, numbers=[3])
    report = scene.verify(measured_while_another_run_fails_it)
    assert [one.rule for one in report.failed] == ["Q105"]
    assert scene.metadata.rows[segment_id].verdict is Verdict.FAILED


class TestMissing:
    """Verdicts of what is missing are held until the whole run is known."""

    @pytest.fixture
    def groups_of_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "GROUP_SEGMENTS", 1)
        monkeypatch.setattr(module, "PAGE_SEGMENTS", 1)

    def lose(self, scene: Scene, *numbers: int) -> None:
        for number in numbers:
            scene.partition.object_path(scene.partition.rows[number], "log").unlink()

    @pytest.mark.usefixtures("groups_of_one")
    def test_one_is_recorded_last_and_everything_else_as_it_comes(self, scene: Scene) -> None:
        scene.plan()
        self.lose(scene, 0)
        report = scene.verify()
        recorded = [(one.segment_id, one.outcome) for group in scene.plans.records for one in group]
        assert recorded == [
            *((scene.id_of(number), PASSED) for number in range(1, len(scene.partition.rows))),
            (scene.id_of(0), FAILED),
        ]
        assert (report.segments, report.gone) == (len(scene.partition.rows), 0)
        assert {finding.start_offset for finding in report.failed} == {scene.partition.rows[0].metadata.start_offset}

    @pytest.mark.usefixtures("groups_of_one")
    def test_of_a_run_that_ended_early_nothing_missing_is_recorded(self, scene: Scene) -> None:
        """What is lost is decided when all of the plan was read; the next try reads the missing one again."""
        scene.plan()
        self.lose(scene, 0)
        answers, rest = [True, True, False], len(scene.partition.rows) - 1
        report = scene.verify(may_go_on=lambda: answers.pop(0))
        assert (report.segments, scene.outcomes()) == (1, [PLANNED] * rest + [PASSED])
        assert scene.verify().segments == rest
        assert scene.outcomes() == [PASSED] * rest + [FAILED]

    @pytest.mark.usefixtures("groups_of_one")
    def test_of_an_unbelievable_run_nothing_missing_is_recorded(self, scene: Scene) -> None:
        scene.plan()
        self.lose(scene, 0, 1, 2, 3)
        with pytest.raises(StoreInDoubtError, match=r"4 of 4 segments .*--missing-is-real"):
            scene.verify()
        assert scene.plans.records == []
        assert {row.verdict for row in scene.metadata.rows.values()} == {Verdict.NONE}
        assert scene.outcomes() == [PLANNED] * len(scene.partition.rows)

    def test_a_run_that_goes_on_believes_what_it_found_before(self, scene: Scene) -> None:
        """The missing ones alone are left to the next try: it has looked at others."""
        rows = len(scene.partition.rows)
        scene.plan()
        self.lose(scene, 0, 1)
        with pytest.raises(StoreInDoubtError):
            scene.verify(limits=LossLimits(max_missing_segments=1))
        assert scene.outcomes() == [PLANNED] * rows
        scene.plans.record(RUN, [VerificationResult(scene.id_of(n), PASSED, 0) for n in range(2, rows)])
        report = scene.verify()
        assert (report.segments, scene.outcomes().count(FAILED)) == (2, 2)

    def test_what_failed_before_says_nothing_new(self, scene: Scene) -> None:
        self.lose(scene, 0, 1, 2)
        scene.plan(numbers=[0, 1, 2, 3])
        assert len({finding.segment_id for finding in scene.verify().failed}) == 3
        scene.plan(numbers=[0, 1, 2])
        scene.plans.results.clear()
        assert scene.verify().segments == 3
        assert scene.outcomes() == [FAILED] * 3

    @pytest.mark.usefixtures("groups_of_one")
    def test_what_failed_before_is_asked_for_once_and_only_if_something_is_missing(self, scene: Scene) -> None:
        asked: list[int] = []
        partition = scene.id_of(0).topic_id_partition

        def failed_before() -> dict[TopicIdPartition, int]:
            asked.append(len(scene.outcomes()))
            return {partition: 2}

        limits = LossLimits(failed_before=failed_before)
        scene.plan()
        scene.verify(limits=limits)
        assert asked == []
        scene.plan()
        scene.plans.results.clear()
        self.lose(scene, 0, 1)
        with pytest.raises(StoreInDoubtError, match=r"2 of \d+, and 2 before"):
            scene.verify(limits=limits)
        assert len(asked) == 1
        assert Verdict.FAILED not in {row.verdict for row in scene.metadata.rows.values()}

    def test_a_person_is_asked_once_with_all_numbers(self, scene: Scene) -> None:
        scene.plan()
        self.lose(scene, *range(len(scene.partition.rows)))
        asked: list[str] = []

        def declined(found: str) -> bool:
            asked.append(found)
            return False

        with pytest.raises(StoreInDoubtError):
            scene.verify(limits=LossLimits(confirm=declined))
        total = len(scene.partition.rows)
        assert [found.split(" segments")[0] for found in asked] == [f"{total} of {total}"]
        scene.verify(limits=LossLimits(confirm=lambda _: True))
        assert scene.outcomes() == [FAILED] * total

    def test_what_a_person_confirmed_is_evaluated_in_groups(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A lost store may have had a million segments: too many for one evaluation and one transaction."""
        monkeypatch.setattr(module, "GROUP_SEGMENTS", 2)
        scene.plan()
        total = len(scene.partition.rows)
        self.lose(scene, *range(total))
        evaluated: list[int] = []
        evaluate = PlainEvaluator.evaluate

        def counted(self: PlainEvaluator, measures: Sequence[SegmentMeasure]) -> Any:
            evaluated.append(len(measures))
            return evaluate(self, measures)

        monkeypatch.setattr(PlainEvaluator, "evaluate", counted)
        scene.verify(limits=LossLimits(confirm=lambda _: True))
        assert (sum(evaluated), max(evaluated)) == (total, 2)
        assert scene.outcomes() == [FAILED] * total

    def test_a_measure_that_came_as_json_is_held_as_well(self, scene: Scene) -> None:
        """As Spark's tasks hand them over."""

        def by_tasks(wanted: Sequence[ToMeasure]) -> Iterable[SegmentMeasure | LockedSegment]:
            measures = scene.measure_all(wanted)
            return [measure_from_json(measure_to_json(one)) for one in measures if isinstance(one, SegmentMeasure)]

        scene.plan()
        self.lose(scene, 0, 1, 2, 3)
        with pytest.raises(StoreInDoubtError):
            scene.verify(by_tasks)
        assert {row.verdict for row in scene.metadata.rows.values()} == {Verdict.NONE}


class TestSharedByBatches:
    """Each batch reads a part of the plan; what is missing is decided once, for all of it, when all have ended."""

    BATCHES = 4

    def batch(self, scene: Scene, number: int, **rest: Any) -> VerifyReport:
        return scene.verify(share=PlanShare(number, self.BATCHES), **rest)

    def lose(self, scene: Scene, *numbers: int) -> list[tuple[Path, bytes]]:
        paths = [scene.partition.object_path(scene.partition.rows[number], "log") for number in numbers]
        contents = [(path, path.read_bytes()) for path in paths]
        for path in paths:
            path.unlink()
        return contents

    def verdicts(self, scene: Scene) -> set[Verdict]:
        return {row.verdict for row in scene.metadata.rows.values()}

    def numbers_of(self, scene: Scene, batch: int) -> range:
        return range(*PlanShare(batch, self.BATCHES).bounds(len(scene.partition.rows)))

    def test_together_they_read_all_of_it_once(self, scene: Scene) -> None:
        scene.plan()
        segments = [self.batch(scene, number).segments for number in range(self.BATCHES)]
        assert (sum(segments), max(segments) - min(segments) <= 1) == (len(scene.partition.rows), True)
        assert scene.outcomes() == [PASSED] * len(scene.partition.rows)
        assert (scene.conclude().segments, self.batch(scene, 1).segments) == (0, 0)

    def test_limits_hold_for_all_batches_together(self, scene: Scene) -> None:
        """Each batch misses one segment, which alone would be within the limits."""
        scene.plan()
        lost = [self.numbers_of(scene, batch)[0] for batch in range(self.BATCHES)]
        objects = self.lose(scene, *lost)
        for number in range(self.BATCHES):
            assert self.batch(scene, number, limits=LossLimits(max_missing_segments=3)).failed == ()
        assert Verdict.FAILED not in self.verdicts(scene)
        with pytest.raises(StoreInDoubtError, match=r"4 of \d+ segments .*--missing-is-real"):
            scene.conclude(limits=LossLimits(max_missing_segments=3))
        assert Verdict.FAILED not in self.verdicts(scene)
        assert [one.segment_id for one in scene.plans.planned(RUN, MISSING)] == [scene.id_of(n) for n in lost]
        # The disk is mounted again: what is there now is evaluated, and what is still missing is within the limits.
        for path, content in objects[1:]:
            path.write_bytes(content)
        report = scene.conclude(limits=LossLimits(max_missing_segments=3))
        assert report.segments == self.BATCHES
        assert [one.segment_id for one in scene.plans.planned(RUN, FAILED)] == [scene.id_of(lost[0])]
        assert scene.outcomes().count(PASSED) == len(scene.partition.rows) - 1
        assert scene.conclude().segments == 0

    def test_a_batch_that_misses_too_much_ends_at_once(self, scene: Scene) -> None:
        scene.plan()
        self.lose(scene, *self.numbers_of(scene, 1))
        with pytest.raises(StoreInDoubtError):
            self.batch(scene, 1, limits=LossLimits(max_missing_segments=0))
        assert (set(scene.outcomes()), self.verdicts(scene)) == ({PLANNED}, {Verdict.NONE})

    def test_if_a_batch_did_not_finish_nothing_missing_is_recorded(self, scene: Scene) -> None:
        scene.plan()
        self.lose(scene, self.numbers_of(scene, 0)[0])
        for number in range(self.BATCHES - 1):
            self.batch(scene, number)
        assert scene.conclude().segments == 0
        assert (scene.outcomes().count(MISSING), scene.outcomes().count(FAILED)) == (1, 0)
        assert Verdict.FAILED not in self.verdicts(scene)
        # The last batch was only late.
        self.batch(scene, self.BATCHES - 1)
        assert len({finding.segment_id for finding in scene.conclude().failed}) == 1
        assert (scene.outcomes().count(MISSING), scene.outcomes().count(FAILED)) == (0, 1)

    def test_a_batch_that_may_not_go_on_leaves_its_part(self, scene: Scene) -> None:
        scene.plan()
        assert self.batch(scene, 2, may_go_on=lambda: False).segments == 0
        assert self.batch(scene, 2).segments == len(self.numbers_of(scene, 2))

    def test_a_crash_while_it_is_decided_is_made_up_for(self, scene: Scene) -> None:
        class Dies(MemoryVerifications):
            def record(self, run_id: str, results: Sequence[VerificationResult]) -> None:
                raise KeyboardInterrupt

        scene.plan()
        self.lose(scene, 0)
        for number in range(self.BATCHES):
            self.batch(scene, number)
        dying = dataclasses.replace(scene, plans=Dies(scene.plans.plans, scene.plans.results))
        with pytest.raises(KeyboardInterrupt):
            dying.conclude()
        assert (scene.metadata.rows[scene.id_of(0)].verdict, scene.outcomes().count(MISSING)) == (Verdict.FAILED, 1)
        assert scene.conclude().segments == 1
        assert scene.outcomes().count(FAILED) == 1


@pytest.mark.parametrize(
    ("segments", "read_bytes", "expected"),
    [(0, 0, 1), (1, 0, 1), (16, 0, 1), (17, 0, 2), (1_000, 0, 8), (3, 50 << 30, 3), (100, 5 << 30, 7)],
)
def test_a_plan_has_as_many_batches_as_are_worth_their_start(segments: int, read_bytes: int, expected: int) -> None:
    assert batches_for(segments, read_bytes, at_most=8) == expected


def test_a_segment_that_cannot_be_decrypted_holds_up_no_conclusion(scene: Scene) -> None:
    """A batch notes it as LOCKED and names it; what others miss is decided, and the next plan reads it again."""
    scene.plan()
    scene.partition.object_path(scene.partition.rows[2], "log").unlink()
    locked = str(scene.id_of(1).id)

    def without_one_key(wanted: Sequence[ToMeasure]) -> Iterable[SegmentMeasure | LockedSegment]:
        for measure in scene.measure_all(wanted):
            is_locked = measure.segment_id == locked
            yield LockedSegment(locked, "encrypted for key pair 'nobody'") if is_locked else measure

    with pytest.raises(SegmentKeyError, match="'nobody'"):
        scene.verify(without_one_key, share=PlanShare(0, 1))
    assert [one.segment_id for one in scene.plans.planned(RUN, LOCKED)] == [scene.id_of(1)]
    assert scene.plans.pending(RUN, at_most=1, share=PlanShare(0, 1)) == []
    report = scene.conclude()
    assert {finding.segment_id for finding in report.failed} == {str(scene.id_of(2).id)}
    assert scene.metadata.rows[scene.id_of(1)].verdict is Verdict.NONE
