"""When a job of a standalone cluster may begin."""

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL, UNLIMITED_SLOTS
from include.tiering.configs.spark_cluster import (
    MASTER_URL_KEY,
    POOL_KEY,
    POOLS_KEY,
    Application,
    SparkCluster,
    cluster_shares,
    jobs_ahead,
    read_cluster,
)
from spark_jobs.cluster_share import prepare

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


def _cluster(*names: str, cores: int = 4, foreign_cores: int = 0) -> SparkCluster:
    apps = [Application(f"app-{number}", name, 1) for number, name in enumerate(names)]
    return SparkCluster(cores, (*apps, *([Application("app-x", "someone's", foreign_cores)] if foreign_cores else ())))


def test_a_job_waits_for_earlier_jobs_of_its_own_pool_only() -> None:
    cluster = _cluster("tiering.copy a", "tiering.copy b", "tiering.copy c", "tiering.expire d", "tiering.audit")
    ahead = {app.app_id: jobs_ahead(cluster, app.app_id, app.pool or "", SLOTS, 1) for app in cluster.applications}
    assert ahead == {"app-0": 0, "app-1": 0, "app-2": 1, "app-3": 0, "app-4": 0}
    assert jobs_ahead(cluster, "not listed yet", COPIER_POOL, SLOTS, 1) == 2
    assert jobs_ahead(cluster, "not listed yet", EXPIRATION_POOL, SLOTS, 1) == 1


def test_cores_of_other_applications_are_not_shared_out() -> None:
    names = ("tiering.copy a", "tiering.copy b")
    assert jobs_ahead(_cluster(*names, cores=6, foreign_cores=2), "app-1", COPIER_POOL, SLOTS, 1) == 0
    assert jobs_ahead(_cluster(*names, cores=6, foreign_cores=3), "app-1", COPIER_POOL, SLOTS, 1) == 1


def test_jobs_that_spread_count_with_all_their_cores() -> None:
    slots = {COPIER_POOL: 1, EXPIRATION_POOL: 1, READER_POOL: 2}
    cluster = _cluster("tiering.audit", "tiering.verify r", cores=6)
    assert jobs_ahead(cluster, "app-1", READER_POOL, slots, 2) == 0
    assert jobs_ahead(cluster, "app-1", READER_POOL, slots, 4) == 1
    assert jobs_ahead(cluster, "app-0", READER_POOL, slots, 40) == 0, "the first one runs, whatever it asks for"


def test_what_a_master_answers() -> None:
    document = {
        "workers": [{"state": "ALIVE", "cores": 2}, {"state": "DEAD", "cores": 2}],
        "activeapps": [
            {"id": "app-2", "starttime": 5, "name": "tiering.copy r/1", "cores": 1, "state": "RUNNING"},
            {"id": "app-1", "starttime": 4, "name": "theirs", "cores": 1, "state": "WAITING"},
        ],
    }
    cluster = SparkCluster.of_json(document)
    assert (cluster.cores, cluster.free_for_us) == (2, 1)
    assert [(app.app_id, app.pool) for app in cluster.applications] == [("app-1", None), ("app-2", COPIER_POOL)]


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\n\r\n<html>", b"HTTP/1.1 200 OK\r\n\r\n[1]", b"nonsense\r\n\r\n", b""]
)
def test_an_answer_of_something_else_is_no_figure(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises((OSError, ValueError)):
            read_cluster(f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()


def _context(**conf: str) -> Any:
    values = {
        "spark.master": "spark://master:7077",
        POOL_KEY: COPIER_POOL,
        MASTER_URL_KEY: "http://master:8080",
        POOLS_KEY: ",".join(f"{name}={slots}" for name, slots in SLOTS.items()),
        **conf,
    }
    return SimpleNamespace(
        applicationId="app-2", getConf=lambda: SimpleNamespace(get=values.get, getAll=lambda: list(values.items()))
    )


def test_a_job_begins_when_an_earlier_one_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    full = _cluster("tiering.copy a", "tiering.copy b", "tiering.copy c")
    answers = [full, full, SparkCluster(4, full.applications[1:])]
    waits: list[float] = []
    prepare(_context(), read=lambda _: answers.pop(0), sleep=waits.append)
    assert not answers
    assert len(waits) == 2
    said = [record.message for record in caplog.records if "waits for a core" in record.message]
    assert said == ["app-2 waits for a core of remote_log_copier (share 2 of 4): 1 before it"]


def test_a_master_that_does_not_answer_holds_no_job_back(caplog: pytest.LogCaptureFixture) -> None:
    def refused(_: str) -> SparkCluster:
        raise OSError("connection refused")

    waits: list[float] = []
    prepare(_context(), read=refused, sleep=waits.append)
    assert len(waits) == 4
    assert "begins without a look at its share of the cluster: connection refused" in caplog.text
