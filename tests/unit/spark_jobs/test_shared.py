"""What the jobs share: partitions of work, one attempt, the watch over the driver, measured segments."""

import dataclasses
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.clock import SystemClock
from include.tiering.configs.pools import READER_POOL
from include.tiering.errors import MetadataUnavailableError, SettingError
from include.tiering.model.segments import Depth, RemoteLogSegmentId
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.contract import BatchProgress
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.verify_planned import ToMeasure
from spark_jobs import shared
from spark_jobs.batch import require_single_attempt
from spark_jobs.shared import ORPHANED_EXIT_CODE, SURPLUS_EXIT_CODE, ParentWatch, PoolSlot
from spark_jobs.verification_measures import measure_from_json, measure_to_json, spread
from tests.doubles.patience import PATIENCE_SECONDS
from tests.doubles.segments import partition_of, uuid

# The watch sees a lost parent and a lost grandparent, waits out the grace, and leaves everybody else alone.


class Family:
    def __init__(self) -> None:
        self.ids = (20, 10)
        self.left_with: list[int] = []
        self.has_left = threading.Event()

    def ancestors(self) -> tuple[int, ...]:
        return self.ids

    def leave(self, code: int) -> None:
        self.left_with.append(code)
        self.has_left.set()


def test_nothing_happens_while_the_parents_live() -> None:
    family = Family()
    with ParentWatch(read_ancestors=family.ancestors, leave=family.leave) as watch:
        assert watch.parents_alive()
    assert family.left_with == []


def test_a_lost_parent_ends_the_process() -> None:
    family = Family()
    with ParentWatch(read_ancestors=family.ancestors, leave=family.leave) as watch:
        family.ids = (1, 0)
        assert not watch.parents_alive()
        assert family.has_left.wait(PATIENCE_SECONDS)
    assert family.left_with == [ORPHANED_EXIT_CODE]


def test_a_lost_grandparent_ends_the_process() -> None:
    family = Family()
    with ParentWatch(read_ancestors=family.ancestors, leave=family.leave):
        family.ids = (20, 1)
        assert family.has_left.wait(PATIENCE_SECONDS)


def test_work_that_stops_by_itself_within_the_grace_is_not_cut() -> None:
    family = Family()
    with ParentWatch(read_ancestors=family.ancestors, leave=family.leave, grace_seconds=60):
        family.ids = (1, 0)
    assert family.left_with == []


# Spark may run the one task of a job once, or the job refuses.

_RIGHT = {"spark.task.maxFailures": "1", "spark.master": "local[2]"}


@pytest.mark.parametrize(
    "conf",
    [
        _RIGHT,
        {**_RIGHT, "spark.speculation": "false"},
        {**_RIGHT, "spark.master": "local[2,1]"},
        {**_RIGHT, "spark.master": "local[*]"},
        {**_RIGHT, "spark.master": "spark://127.0.0.1:7077"},
        {"spark.task.maxFailures": "1"},
    ],
)
def test_one_attempt_is_accepted(conf: dict[str, str]) -> None:
    require_single_attempt(conf.get)


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({**_RIGHT, "spark.speculation": "true"}, "spark.speculation"),
        ({"spark.master": "local[2]"}, "4 \\(Spark's default\\)"),
        ({**_RIGHT, "spark.task.maxFailures": "2"}, "spark.task.maxFailures is 2"),
        ({**_RIGHT, "spark.master": "local[2, 4]"}, "allows 4 attempts"),
        ({**_RIGHT, "spark.master": "local[*,2]"}, "allows 2 attempts"),
    ],
)
def test_more_than_one_attempt_is_refused_by_name(conf: dict[str, str], named: str) -> None:
    with pytest.raises(SettingError, match=named):
        require_single_attempt(conf.get)


# Shares of a group: everything once, evenly by bytes, in order.


def to_measure(number: int, planned_bytes: int) -> ToMeasure:
    return ToMeasure(RemoteLogSegmentId(partition_of(), uuid(number)), None, Depth.DEEP, planned_bytes)


@given(st.lists(st.integers(1, 10**9), max_size=60), st.integers(1, 12))
def test_everything_is_in_one_share_and_no_share_carries_much_more(sizes: list[int], tasks: int) -> None:
    wanted = [to_measure(*numbered) for numbered in enumerate(sizes)]
    shares = spread(wanted, tasks)
    assert sorted((one for share in shares for one in share), key=wanted.index) == wanted
    assert len(shares) == min(tasks, len(wanted))
    for share in shares:
        assert [wanted.index(one) for one in share] == sorted(wanted.index(one) for one in share)
    loads = [sum(one.planned_bytes for one in share) for share in shares]
    if len(wanted) >= tasks:
        assert max(loads) - min(loads) <= max(sizes)


# Measures between a task and the driver.


def measure() -> SegmentMeasure:
    """Every number another one, as large as any."""
    numbers: dict[str, Any] = {
        field.name: 2**62 + place
        for place, field in enumerate(dataclasses.fields(SegmentMeasure))
        if field.default is dataclasses.MISSING
    }
    texts = {"topic": "orders \u2028 \x00", "topic_id": "t", "segment_id": "s"}
    return SegmentMeasure(**numbers | texts)


def test_a_measure_comes_back_as_it_was() -> None:
    for sent in (
        measure(),
        dataclasses.replace(measure(), depth=Depth.DEEP, bytes_read=7, remarks=(("a", 'say "b"'), ("c", ""))),
        dataclasses.replace(measure(), log_crc32c=None, missing_offsets=None),
    ):
        assert measure_from_json(measure_to_json(sent)) == sent


# A job of a pool is seen as a live batch while it runs, and ends when its pool has no slot for it.


class ReportedWork:
    """The part of `WorkStore` that a job of a pool uses. `slots`: the pool's size; None: the database is away."""

    def __init__(self, slots: int | None = 1) -> None:
        self.slots = slots
        self.live: dict[str, bool] = {}
        self.was_asked = threading.Event()

    def report_progress(self, progress: BatchProgress) -> None:
        self.live[progress.batch_id] = not progress.finished

    def live_batches(self, pool: str) -> list[str]:
        return [batch for batch, lives in self.live.items() if lives]

    def pool_size(self, pool: str) -> int:
        self.was_asked.set()
        if self.slots is None:
            raise MetadataUnavailableError("away")
        return self.slots

    def paused_topics(self) -> frozenset[str]:
        return frozenset()


class TestPoolSlot:
    @pytest.fixture(autouse=True)
    def polls_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shared, "_POOL_POLL_SECONDS", 0.01)

    def slot(self, work: ReportedWork, pool: str | None = READER_POOL, leaves: Any = None) -> PoolSlot:
        settings = SimpleNamespace(copier=SimpleNamespace(lease_ms=30_000))
        app: Any = SimpleNamespace(
            adapters=SimpleNamespace(stores=SimpleNamespace(work=work), clock=SystemClock()),
            effective_configs=SimpleNamespace(settings=lambda: settings),
        )
        return PoolSlot(app, "sizes-1", "sizes-1", pool, leaves=leaves)

    def test_it_is_a_live_batch_while_it_runs(self) -> None:
        work = ReportedWork()
        with self.slot(work) as slot:
            assert (work.live_batches(READER_POOL), slot.reason_to_end()) == (["sizes-1"], None)
            work.slots = 0
            assert slot.reason_to_end() is BatchEnd.SURPLUS
            work.slots = None
            assert slot.reason_to_end() is None
        assert work.live_batches(READER_POOL) == []

    def test_one_piece_of_work_ends_when_its_pool_is_0(self, capfd: pytest.CaptureFixture[str]) -> None:
        work, family = ReportedWork(0), Family()
        with self.slot(work, leaves=family.leave):
            assert family.has_left.wait(PATIENCE_SECONDS)
            assert work.live_batches(READER_POOL) == []
        assert family.left_with == [SURPLUS_EXIT_CODE]
        assert "its pool was made smaller" in capfd.readouterr().out

    def test_once_it_keeps_results_it_ends_no_more(self) -> None:
        work, family = ReportedWork(1), Family()
        with self.slot(work, leaves=family.leave) as slot:
            assert work.was_asked.wait(PATIENCE_SECONDS)
            slot.keep()
            work.slots = 0
            slot._thread.join(PATIENCE_SECONDS)
            assert not slot._thread.is_alive()
        assert family.left_with == []

    def test_the_first_batches_keep_their_slots(self) -> None:
        work, family = ReportedWork(1), Family()
        with self.slot(work, leaves=family.leave):
            work.live["verify-2/0"] = True
            work.was_asked.clear()
            assert work.was_asked.wait(PATIENCE_SECONDS)
        assert family.left_with == []

    def test_without_a_pool_nothing_is_reported(self) -> None:
        work = ReportedWork(0)
        with self.slot(work, pool=None, leaves=lambda _: None) as slot:
            assert slot.reason_to_end() is None
        assert work.live == {}
