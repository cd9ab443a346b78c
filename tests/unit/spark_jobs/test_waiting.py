"""What ends or holds a job back while it waits for a core of a cluster."""

import json
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL
from include.tiering.configs.spark_cluster import LONGEST_WAIT_SECONDS, Application, SparkCluster
from include.tiering.errors import MetadataUnavailableError
from include.tiering.runs.contract import ALL_TOPICS, LIVE_BATCH_MS, NoWork
from spark_jobs import batch, copying, expiration
from spark_jobs.cluster_share import HeldBackError, NoCoreError, _ExecutorWatch, place_in_cluster
from spark_jobs.shared import SURPLUS_EXIT_CODE, run_in_session
from spark_jobs.task_settings import TaskSettings
from spark_jobs.waiting import ALL_PAUSED, SURPLUS_SECONDS, Look, Lookout, WaitOverError, looking, unseen
from tests.unit.spark_jobs.test_cluster_share import FULL, Clock, _cluster, _context


class Work:
    """A pool with live batches, pauses, and a clock that the test moves."""

    def __init__(self, slots: int | None = 4, *live: str) -> None:
        self.slots, self.live, self.paused, self.now = slots, list(live), frozenset[str](), 0.0
        self.is_down = False

    def pool_size(self, pool: str) -> int | None:
        assert pool == COPIER_POOL
        if self.is_down:
            raise MetadataUnavailableError("connection refused")
        return self.slots

    def live_batches(self, _: str) -> list[str]:
        return self.live

    def paused_topics(self) -> frozenset[str]:
        return self.paused

    def monotonic(self) -> float:
        return self.now


def _lookout(
    work: Any, *, pool: str | None = COPIER_POOL, no_work: NoWork | None = None, pauses: bool = True
) -> Lookout:
    return Lookout(
        work,
        work,
        batch_id="r/1",
        pool=pool,
        surplus_exit_code=SURPLUS_EXIT_CODE,
        no_work=lambda: no_work,
        obeys_pauses=pauses,
    )


def test_a_pool_without_slots_ends_the_wait_at_once() -> None:
    with pytest.raises(WaitOverError, match="its pool was made smaller") as over:
        _lookout(Work(0)).look()
    assert over.value.exit_code == SURPLUS_EXIT_CODE


def test_a_pool_that_others_fill_ends_the_wait_unless_one_of_them_was_killed() -> None:
    work = Work(2, "r/0", "r/2")
    lookout = _lookout(work)
    assert lookout.look() is None
    work.now = LIVE_BATCH_MS / 1000
    work.live = ["r/0"]
    assert lookout.look() is None, "the report of a killed batch is no longer live"
    work.live = ["r/0", "r/2"]
    assert lookout.look() is None
    work.now += SURPLUS_SECONDS
    with pytest.raises(WaitOverError, match="its pool was made smaller"):
        lookout.look()
    assert LIVE_BATCH_MS / 1000 < SURPLUS_SECONDS


@pytest.mark.parametrize(("slots", "pool"), [(None, COPIER_POOL), (-1, COPIER_POOL), (0, None), (2, COPIER_POOL)])
def test_a_job_with_a_slot_or_in_no_known_pool_waits_on(slots: int | None, pool: str | None) -> None:
    """The report of an own earlier process, which was killed, takes no slot from its successor."""
    work = Work(slots, "r/0", "r/1")
    lookout = _lookout(work, pool=pool)
    for work.now in (0.0, 10 * SURPLUS_SECONDS):
        assert lookout.look() is None


def test_a_batch_whose_work_others_did_ends_as_done() -> None:
    with pytest.raises(WaitOverError, match="no work left: all that the run has planned") as over:
        _lookout(Work(), no_work=NoWork.DONE).look()
    assert over.value.exit_code == 0


def test_a_pause_of_all_topics_holds_batches_back_and_no_readers() -> None:
    work = Work()
    work.paused = frozenset({"orders"})
    assert _lookout(work).look() is None
    work.paused = frozenset({ALL_TOPICS})
    assert _lookout(work).look() == ALL_PAUSED
    assert _lookout(work, pauses=False).look() is None


def test_an_unreachable_database_holds_nobody_back() -> None:
    work = Work(0)
    work.is_down = True
    assert _lookout(work).look() is None


def test_the_library_is_opened_by_the_first_look_and_closed_after_the_wait() -> None:
    events: list[str] = []
    answers = [MetadataUnavailableError("not yet"), None]

    @contextmanager
    def open_app() -> Iterator[Any]:
        if (error := answers.pop(0)) is not None:
            raise error
        events.append("opened")
        work = Work()
        yield SimpleNamespace(adapters=SimpleNamespace(stores=SimpleNamespace(work=work), clock=work))
        events.append("closed")

    with looking(open_app, batch_id="r/1", pool=COPIER_POOL, surplus_exit_code=0) as look:
        assert (look(), events) == (None, [])
        assert (look(), look(), events) == (None, None, ["opened"])
    assert events == ["opened", "closed"]


def _sees(look: Look) -> Callable[[], AbstractContextManager[Look]]:
    @contextmanager
    def found() -> Iterator[Look]:
        yield look

    return found


def test_a_job_that_is_not_wanted_any_more_leaves_its_place_in_the_cluster() -> None:
    clock = Clock(FULL)

    def look() -> None:
        if len(clock.waits) == 3:
            raise WaitOverError("its pool was made smaller", SURPLUS_EXIT_CODE)

    with pytest.raises(WaitOverError), place_in_cluster(_context(), clock.surroundings(), _sees(look)):
        raise AssertionError("it began")
    assert len(clock.waits) == 3


def test_a_waiting_job_takes_no_core_in_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    free = _cluster(COPIER_POOL, "other", COPIER_POOL)
    clock = Clock(FULL, free)
    paused = lambda: ALL_PAUSED if len(clock.waits) < 5 else None  # noqa: E731
    with place_in_cluster(_context(), clock.surroundings(), _sees(paused)):
        assert len(clock.waits) == 5
    assert [record.message for record in caplog.records if "takes no core" in record.message] == [
        f"app-2 takes no core: {ALL_PAUSED}"
    ]


def test_a_pause_is_no_endless_wait() -> None:
    clock = Clock(FULL)
    with (
        pytest.raises(NoCoreError, match="all topics are paused"),
        place_in_cluster(_context(), clock.surroundings(), _sees(lambda: ALL_PAUSED)),
    ):
        raise AssertionError("it began")
    assert sum(clock.waits) == LONGEST_WAIT_SECONDS


def test_a_job_that_need_not_wait_does_not_look() -> None:
    with place_in_cluster(_context(), Clock(_cluster("other", "other", COPIER_POOL)).surroundings(), _sees(_never)):
        pass


def _without_an_executor(look: Look) -> Any:
    """Run the work of a job that has its place, and whose executor does not come."""
    context, cancelled = _context(), threading.Event()
    context.cancelAllJobs = cancelled.set
    without = SparkCluster(4, (Application("app-2", COPIER_POOL, 0),))
    clock = Clock(_cluster(EXPIRATION_POOL, READER_POOL, COPIER_POOL), without)
    with place_in_cluster(context, clock.surroundings(), _sees(look)):
        assert cancelled.wait(60)
        # `attempt` makes an outcome of the error with which Spark ends cancelled work.


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.cluster_share._EXECUTOR_POLL_SECONDS", 0.01)


@pytest.mark.usefixtures("quick_polls")
def test_a_job_that_is_not_wanted_any_more_waits_for_no_executor() -> None:
    def look() -> None:
        raise WaitOverError("its pool was made smaller", SURPLUS_EXIT_CODE)

    with pytest.raises(WaitOverError, match="made smaller"):
        _without_an_executor(look)


@pytest.mark.usefixtures("quick_polls")
def test_a_job_that_waits_for_its_executor_asks_for_none_in_a_pause() -> None:
    with pytest.raises(HeldBackError, match="all topics are paused"):
        _without_an_executor(lambda: ALL_PAUSED)


def test_a_job_that_had_an_executor_looks_no_more() -> None:
    """Its work does, and ends in its own way."""
    clusters = [SparkCluster(4, (Application("app-2", COPIER_POOL, cores),)) for cores in (1, 0)]
    watch = _ExecutorWatch(_context(), lambda: clusters.pop(0), lambda: 0.0, unseen)
    assert watch.why_give_up(_never) is None
    assert watch.why_give_up(_never) is None
    assert clusters == []


def test_a_batch_that_a_pause_held_back_is_attempted_when_the_pause_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[bool] = []

    @contextmanager
    def place(_: Any, *, looking: Any, was_held_back: bool) -> Iterator[None]:
        places.append(was_held_back)
        yield
        if len(places) < 3:
            raise HeldBackError(ALL_PAUSED)

    monkeypatch.setattr(batch, "place_in_cluster", place)
    monkeypatch.setattr(batch, "attempt", lambda *_: {"exit_code": 0})
    context = SparkContext.__new__(SparkContext)
    assert batch._attempt_with_a_core(context, lambda: "", unseen) == {"exit_code": 0}
    assert places == [False, True, True]


def test_a_job_that_was_held_back_looks_before_it_begins() -> None:
    clock = Clock(_cluster("other", "other", COPIER_POOL))
    paused = lambda: ALL_PAUSED if len(clock.waits) < 5 else None  # noqa: E731
    with place_in_cluster(_context(), clock.surroundings(), _sees(paused), was_held_back=True):
        assert len(clock.waits) == 5


def _never() -> None:
    raise AssertionError("it looked")


@contextmanager
def _waits(
    _: Any, *, looking: Callable[[], AbstractContextManager[Look]], was_held_back: bool = False
) -> Iterator[None]:
    """What `place_in_cluster` does for a job that has to wait: it looks."""
    with looking() as look:
        look()
    yield


def _app_of(work: Work, no_work: NoWork | None = None) -> Any:
    @contextmanager
    def open_app(_: TaskSettings) -> Iterator[Any]:
        service = SimpleNamespace(why_no_work=lambda *_: no_work)
        stores = SimpleNamespace(stores=SimpleNamespace(work=work), clock=work)
        yield SimpleNamespace(adapters=stores, copying=service, expiration=service)

    return open_app


@pytest.mark.parametrize("job", [copying, expiration])
@pytest.mark.parametrize(
    ("slots", "no_work", "ended"),
    [(0, None, "its pool was made smaller"), (4, NoWork.DONE, f"no work left: {NoWork.DONE}")],
)
def test_a_batch_that_is_not_wanted_ends_as_done_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    job: Any,
    slots: int,
    no_work: NoWork | None,
    ended: str,
) -> None:
    context = SparkContext.__new__(SparkContext)
    monkeypatch.setattr(SparkContext, "stop", lambda _: None)
    monkeypatch.setattr(batch, "_begin", lambda *_: context)
    monkeypatch.setattr(batch, "place_in_cluster", _waits)
    monkeypatch.setattr(batch, "attempt", lambda *_: pytest.fail("it began"))
    monkeypatch.setattr(TaskSettings, "open_app", _app_of(Work(slots), no_work))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.delenv("TIERING_CONFIG", raising=False)
    assert job.main(["--run-id", "r", "--batch-id", "r/1", "--pool", COPIER_POOL]) == 0
    assert json.loads(capsys.readouterr().out)["ended"] == ended


def test_a_reading_job_without_a_slot_says_so_to_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(sparkContext=None, stop=lambda: None)
    builder: Any = SimpleNamespace(appName=lambda _: builder, config=lambda **_: builder, getOrCreate=lambda: session)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", builder)
    monkeypatch.setattr("spark_jobs.cluster_share.place_in_cluster", _waits)
    monkeypatch.setattr(TaskSettings, "open_app", _app_of(Work(0)))
    monkeypatch.delenv("TIERING_CONFIG", raising=False)
    options = Namespace(config=None, batch_id="sizes-1", pool=COPIER_POOL)
    outcome = run_in_session("sizes", lambda _: pytest.fail("it began"), options)
    assert outcome == {"exit_code": SURPLUS_EXIT_CODE, "ended": "its pool was made smaller"}
