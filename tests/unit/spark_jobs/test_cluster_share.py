"""When a job of a standalone cluster may begin."""

import json
import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.configs import spark_cluster
from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL, UNLIMITED_SLOTS
from include.tiering.configs.spark_cluster import (
    LONGEST_WAIT_SECONDS,
    MASTER_URL_KEY,
    PLATFORM_KEY,
    POOL_KEY,
    POOLS_KEY,
    Application,
    SparkCluster,
    application_name,
    cluster_shares,
    jobs_ahead,
    read_cluster,
)
from spark_jobs.cluster_share import NoCoreError, Surroundings, _ExecutorWatch, place_in_cluster
from spark_jobs.waiting import unseen

SLOTS = {COPIER_POOL: 4, EXPIRATION_POOL: 4, READER_POOL: 4}


def _shares(copier: int, expiration: int, reader: int, cores: int) -> list[int]:
    return list(cluster_shares({COPIER_POOL: copier, EXPIRATION_POOL: expiration, READER_POOL: reader}, cores).values())


@pytest.mark.parametrize(
    ("slots", "cores", "shares"),
    [
        ((4, 2, 2), 8, [4, 2, 2]),
        ((4, 2, 2), 12, [4, 2, 6]),  # what no slot needs is for those that spread
        ((4, 4, 4), 4, [2, 1, 1]),
        ((10, 2, 2), 8, [5, 2, 1]),
        ((UNLIMITED_SLOTS, 1, 1), 8, [6, 1, 1]),
        ((-1, 1, 1), 8, [6, 1, 1]),
        ((0, 2, 2), 4, [1, 2, 1]),
        ((4, 4, 4), 2, [1, 1, 1]),  # too small for three pools
        ((4, 4, 4), 0, [1, 1, 1]),
    ],
)
def test_each_pool_has_a_share_of_the_cluster(slots: tuple[int, int, int], cores: int, shares: list[int]) -> None:
    assert _shares(*slots, cores) == shares


@pytest.mark.parametrize("cores", range(3, 40))
def test_shares_never_exceed_a_cluster_that_has_a_core_for_each_pool(cores: int) -> None:
    for slots in ((1, 1, 1), (4, 4, 4), (10, 2, 1), (0, 0, 5), (100, 1, 30)):
        shares = _shares(*slots, cores)
        assert min(shares) >= 1
        assert sum(shares) <= cores


def test_a_cluster_of_any_size_is_divided_at_once() -> None:
    assert _shares(4, 2, 2, 10**12) == [4, 2, 10**12 - 6]


def _cluster(*pools: str, cores: int = 4, foreign_cores: int = 0) -> SparkCluster:
    apps = [Application(f"app-{number}", pool, 1) for number, pool in enumerate(pools)]
    return SparkCluster(cores, (*apps, *([Application("app-x", None, foreign_cores)] if foreign_cores else ())))


def test_a_job_waits_for_earlier_jobs_of_its_own_pool_only() -> None:
    cluster = _cluster(COPIER_POOL, COPIER_POOL, COPIER_POOL, EXPIRATION_POOL, READER_POOL)
    ahead = {app.app_id: jobs_ahead(cluster, app.app_id, app.pool or "", SLOTS, 1) for app in cluster.applications}
    assert ahead == {"app-0": 0, "app-1": 0, "app-2": 1, "app-3": 0, "app-4": 0}


def test_an_old_application_without_a_core_is_dead() -> None:
    """A driver whose host went down while it waited: the master keeps it for ever."""
    slots = {COPIER_POOL: 1, EXPIRATION_POOL: 1, READER_POOL: 1}

    def ahead(cores: int, age_seconds: float) -> int:
        first = Application("app-0", COPIER_POOL, cores, age_seconds)
        return jobs_ahead(
            SparkCluster(3, (first, Application("app-1", COPIER_POOL, 0))), "app-1", COPIER_POOL, slots, 1
        )

    assert ahead(0, LONGEST_WAIT_SECONDS) == 1, "it may live, and wait for its place"
    assert ahead(1, 100 * LONGEST_WAIT_SECONDS) == 1, "it works"
    assert ahead(0, 2 * LONGEST_WAIT_SECONDS) == 0


def test_cores_of_other_applications_are_not_shared_out() -> None:
    pools = (COPIER_POOL, COPIER_POOL)
    assert jobs_ahead(_cluster(*pools, cores=6, foreign_cores=2), "app-1", COPIER_POOL, SLOTS, 1) == 0
    assert jobs_ahead(_cluster(*pools, cores=6, foreign_cores=3), "app-1", COPIER_POOL, SLOTS, 1) == 1


def test_jobs_that_spread_count_with_all_their_cores() -> None:
    slots = {COPIER_POOL: 1, EXPIRATION_POOL: 1, READER_POOL: 2}
    cluster = _cluster(READER_POOL, READER_POOL, cores=6)
    assert jobs_ahead(cluster, "app-1", READER_POOL, slots, 2) == 0
    assert jobs_ahead(cluster, "app-1", READER_POOL, slots, 4) == 1
    assert jobs_ahead(cluster, "app-0", READER_POOL, slots, 40) == 0, "the first one runs, whatever it asks for"


PLATFORM = "Nk018hRAQFytWskYqtQduw"


def _document(*names: str, **changed: Any) -> dict[str, Any]:
    apps = [
        {"id": f"app-{n}", "starttime": n, "name": name, "cores": 1, "duration": 90_000} for n, name in enumerate(names)
    ]
    workers = [{"state": "ALIVE", "cores": 2, "memory": 900}, {"state": "DEAD", "cores": 2, "memory": 9000}]
    return {"status": "ALIVE", "workers": workers, "activeapps": apps[::-1], **changed}


def test_what_a_master_answers() -> None:
    names = [f"{application_name(kind, PLATFORM)} r/1" for kind in ("copy", "expire", "verify", "audit")]
    cluster = SparkCluster.of_json(_document("theirs", *names), PLATFORM)
    assert (cluster.free_for_us, cluster.worker_mib) == (1, 900)
    assert cluster.applications[1] == Application("app-1", COPIER_POOL, 1, 90.0)
    pools = [app.pool for app in cluster.applications]
    assert pools == [None, COPIER_POOL, EXPIRATION_POOL, READER_POOL, READER_POOL]


def test_only_known_jobs_of_the_same_platform_are_ours() -> None:
    others = (
        "tiering.copy by hand",
        f"{application_name('copy', 'another')} r/1",
        f"{application_name('copies', PLATFORM)} r/1",
        f"{application_name('copy', PLATFORM)}x",
        f"{application_name('copy', 'a copy')} r/1",
    )
    assert {app.pool for app in SparkCluster.of_json(_document(*others), PLATFORM).applications} == {None}
    named = application_name("copy", "a, b")
    assert [app.pool for app in SparkCluster.of_json(_document(f"{named} r"), "a, b").applications] == [COPIER_POOL]


@pytest.mark.parametrize(
    "number", ["Infinity", "1e999", "NaN", "-1", "1.5", "10000000000000000", '"2"', "true", "null", "1" * 5000]
)
@pytest.mark.parametrize("field", ["worker", "cores", "starttime", "duration"])
def test_a_number_out_of_range_is_no_figure(number: str, field: str) -> None:
    document = _document("theirs")
    (document["workers"][0] if field == "worker" else document["activeapps"][0])[
        "cores" if field == "worker" else field
    ] = "HERE"
    text = json.dumps(document).replace('"HERE"', number)
    with pytest.raises((KeyError, TypeError, ValueError)):
        SparkCluster.of_json(json.loads(text), PLATFORM)


def test_a_cluster_has_at_most_a_million_cores() -> None:
    for cores in ([1_000_001], [600_000, 600_000]):
        workers = [{"state": "ALIVE", "cores": each, "memory": 1} for each in cores]
        with pytest.raises(ValueError, match="1000000"):
            SparkCluster.of_json(_document(workers=workers), PLATFORM)


def _serve(answer: Callable[[socket.socket], None]) -> tuple[str, threading.Thread, socket.socket]:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            answer(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    return f"http://127.0.0.1:{server.getsockname()[1]}/", thread, server


def _json(document: dict[str, Any]) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(document).encode())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\n\r\n[1]",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"",
    ],
)
def test_an_answer_of_something_else_is_no_figure(answer: bytes) -> None:
    url, thread, server = _serve(lambda connection: connection.sendall(answer))
    with server, pytest.raises((OSError, ValueError)):
        read_cluster(url, PLATFORM)
    thread.join()


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_server_that_sends_byte_after_byte_does_not_hold_the_reader(
    monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(spark_cluster, "_DEADLINE_SECONDS", 0.3)
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        try:
            connection.sendall(begin)
            while not over.wait(0.05):
                connection.sendall(b" ")
        except OSError:
            return

    url, thread, server = _serve(drip)
    give_up = threading.Timer(20, over.set)
    give_up.start()
    began = time.monotonic()
    with server, pytest.raises((OSError, ValueError)):
        read_cluster(url, PLATFORM)
    ended_by_the_reader = not over.is_set()
    over.set()
    give_up.cancel()
    thread.join()
    assert ended_by_the_reader, time.monotonic() - began


def test_the_active_master_of_several_is_found() -> None:
    standby, first, one = _serve(_json(_document(status="STANDBY")))
    active, second, two = _serve(_json(_document("theirs")))
    with one, two:
        assert read_cluster(f"http://127.0.0.1:1,{standby},{active}", PLATFORM).cores == 2
    for thread in (first, second):
        thread.join()


class Clock:
    """A clock that only waits move, and what `place_in_cluster` needs besides."""

    def __init__(self, *answers: SparkCluster | OSError) -> None:
        self.answers = list(answers)
        self.waits: list[float] = []

    def read(self, _: str, platform: str) -> SparkCluster:
        assert platform == PLATFORM
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer

    def surroundings(self) -> Surroundings:
        return Surroundings(self.read, self.waits.append, lambda: sum(self.waits))


def _context(*, stopped: bool = False, executor_memory: str = "512m") -> Any:
    values = {
        "spark.master": "spark://master:7077",
        POOL_KEY: COPIER_POOL,
        MASTER_URL_KEY: "http://master:8080",
        PLATFORM_KEY: PLATFORM,
        POOLS_KEY: ",".join(f"{name}={slots}" for name, slots in SLOTS.items()),
        "spark.executor.memory": executor_memory,
    }
    return SimpleNamespace(
        applicationId="app-2",
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: stopped)),
        getConf=lambda: SimpleNamespace(get=lambda key, other=None: values.get(key, other), getAll=values.items),
        statusTracker=lambda: SimpleNamespace(getActiveJobsIds=lambda: [0]),
    )


FULL = _cluster(COPIER_POOL, COPIER_POOL, COPIER_POOL)


def test_a_job_begins_when_an_earlier_one_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(FULL, FULL, SparkCluster(4, FULL.applications[1:]))
    with place_in_cluster(_context(), clock.surroundings()):
        assert len(clock.waits) == 2
    said = [record.message for record in caplog.records if "waits for a core" in record.message]
    assert said == ["app-2 waits for a core of remote_log_copier (share 2 of 4): 1 before it"]


def test_a_master_that_does_not_answer_holds_no_job_back(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(OSError("connection refused"))
    with place_in_cluster(_context(), clock.surroundings()):
        assert len(clock.waits) == 4
    assert "begins without a look at its share of the cluster: connection refused" in caplog.text


def _refused(context: Any, clock: Clock) -> str:
    with pytest.raises(NoCoreError) as refused, place_in_cluster(context, clock.surroundings()):
        raise AssertionError("it began")
    assert refused.value.retriable
    return str(refused.value)


def test_no_wait_is_endless() -> None:
    clock = Clock(FULL)
    assert "waited 15 minutes for a core of remote_log_copier" in _refused(_context(), clock)
    assert sum(clock.waits) == LONGEST_WAIT_SECONDS


def test_a_job_whose_application_has_ended_waits_no_longer() -> None:
    assert "was stopped while it waited" in _refused(_context(stopped=True), Clock(FULL))
    assert "does not know app-2" in _refused(_context(), Clock(_cluster(COPIER_POOL, EXPIRATION_POOL)))
    returns = Clock(*[_cluster(COPIER_POOL)] * 4, _cluster(EXPIRATION_POOL, READER_POOL, COPIER_POOL))
    with place_in_cluster(_context(), returns.surroundings()):
        assert len(returns.waits) == 4, "a moment without it is none"


def _watch(cores: int, *, has_tasks: bool = True) -> tuple[_ExecutorWatch, list[float]]:
    now = [0.0]
    context = _context(executor_memory="90g")
    context.statusTracker = lambda: SimpleNamespace(getActiveJobsIds=lambda: [0] if has_tasks else [])
    cluster = SparkCluster(4, (Application("app-2", COPIER_POOL, cores),))
    return _ExecutorWatch(context, lambda: cluster, lambda: now[0], unseen), now


def test_a_job_whose_executors_never_come_gives_its_place_back() -> None:
    watch, now = _watch(0)
    assert watch.why_give_up(lambda: None) is None
    now[0] = LONGEST_WAIT_SECONDS
    words = str(watch.why_give_up(lambda: None))
    assert "app-2 had no executor for 15 minutes" in words
    assert "spark.executor.memory=90g" in words


def test_a_job_with_a_core_or_without_tasks_yet_is_left_alone() -> None:
    for watch, now in (_watch(1), _watch(0, has_tasks=False)):
        now[0] = 100 * LONGEST_WAIT_SECONDS
        assert watch.why_give_up(lambda: pytest.fail("it looked")) is None


def test_work_that_was_given_up_ends_with_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.cluster_share._EXECUTOR_POLL_SECONDS", 0.01)
    began = _cluster(EXPIRATION_POOL, READER_POOL, COPIER_POOL)
    without = SparkCluster(4, (Application("app-2", COPIER_POOL, 0),))
    clock, context, cancelled = Clock(began, without), _context(), threading.Event()
    context.cancelAllJobs = cancelled.set

    def work() -> None:
        with place_in_cluster(context, clock.surroundings()):
            clock.waits.append(LONGEST_WAIT_SECONDS)
            assert cancelled.wait(60)
            raise RuntimeError("as Spark does when its jobs are cancelled")

    with pytest.raises(NoCoreError, match="had no executor for 15 minutes"):
        work()
