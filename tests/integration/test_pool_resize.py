"""The copier pool resized 1 -> 4 -> 2 through Airflow's REST API while a run copies: batches follow, and who did it is
written down. Real scheduler, real Spark."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from include.tiering.pools.airflow_api import AirflowApi, Login
from include.tiering.pools.contract import COPIER_POOL
from include.tiering.quota.config_store import ALL_BROKERS
from include.tiering.settings import load_settings
from include.tiering.wiring import Tiering, open_tiering
from local.assembly import assemble
from local.layout import Layout
from local.platform import Platform, stop
from local.ports import free_port
from local.runs import trigger, wait_for_dag, wait_for_run
from local.secrets_store import ADMIN, password_of
from tests.doubles.broker_data import broker_data

COPY = "tiering_copy"
SIZE = "remote.log.manager.copier.thread.pool.size"
QUOTA = "tiering.copy.total.max.bytes.per.second"
CRAWL, WALK, RUN = 2_000, 60_000, 100_000_000
BATCHES = 6


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return Layout.below(tmp_path_factory.mktemp("platform"))


@pytest.fixture(scope="module")
def platform(layout: Layout) -> Iterator[Platform]:
    layout.state.mkdir()
    brokers: Path = broker_data("public") / "stopped"
    tiering = {
        "TIERING_TOPICS__INCLUDE": '["*"]',
        "TIERING_LOG_DIRS": ",".join(f"{n}:{brokers / f'broker-{n}'}" for n in (1, 2)),
        "TIERING_REMOTE_STORAGE__URL": f"file://{layout.remote_storage}",
        "TIERING_METADATA__URL": f"sqlite:///{layout.metadata_database}",
        "TIERING_COPIER__MAX__BATCHES": str(BATCHES),
    }
    made = assemble(layout, tiering, port=free_port(), say=print)
    try:
        made.set_up()
        made.start()
        yield made
    finally:
        stop(layout, print)


@pytest.fixture(scope="module")
def api(platform: Platform, layout: Layout) -> Iterator[AirflowApi]:
    login = Login(ADMIN, password_of(layout, ADMIN))
    with AirflowApi(platform.base_url, login, timeout_seconds=60) as admin:
        wait_for_dag(admin, COPY, seconds=60)
        yield admin


@pytest.fixture
def tiering(platform: Platform) -> Iterator[Tiering]:
    with open_tiering(load_settings(environ=platform.environment)) as opened:
        yield opened


def _copies(api: AirflowApi, run_id: str) -> list[dict[str, Any]]:
    instances = api.get(f"/dags/{COPY}/dagRuns/{run_id}/taskInstances")["task_instances"]
    return [one for one in instances if one["task_id"] == "copy" and one["map_index"] >= 0]


def _in_state(api: AirflowApi, run_id: str, state: str) -> int:
    return sum(one["state"] == state for one in _copies(api, run_id))


def _wait_until(holds: Callable[[], bool], what: str, *, seconds: float = 150.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


def test_batches_follow_the_size_of_their_pool(api: AirflowApi, tiering: Tiering) -> None:
    def resize_in_airflow(slots: int) -> datetime:
        described = api.get(f"/pools/{COPIER_POOL}")["description"]
        body = {"pool": COPIER_POOL, "slots": slots, "include_deferred": False, "description": described}
        api.patch(f"/pools/{COPIER_POOL}", body)
        return datetime.now().astimezone()

    tiering.alter_configs(ALL_BROKERS, {SIZE: "1"}, author="test")
    tiering.alter_configs(ALL_BROKERS, {QUOTA: str(CRAWL)}, author="test")
    run_id = trigger(api, COPY, {})
    _wait_until(lambda: _in_state(api, run_id, "running") == 1, "no batch began")
    _wait_until(lambda: len(tiering.work.live_batches(COPIER_POOL)) == 1, "no job began")
    assert (_in_state(api, run_id, "running"), len(_copies(api, run_id))) == (1, BATCHES)

    grown_at = resize_in_airflow(4)
    _wait_until(lambda: _in_state(api, run_id, "running") == 4, "three more did not begin", seconds=30)
    begun = sorted(datetime.fromisoformat(one["start_date"]) for one in _copies(api, run_id) if one["start_date"])
    assert all((began - grown_at).total_seconds() < 10 for began in begun[1:])
    _wait_until(lambda: len(tiering.work.live_batches(COPIER_POOL)) == 4, "three more jobs did not begin")

    resize_in_airflow(2)
    tiering.alter_configs(ALL_BROKERS, {QUOTA: str(WALK)}, author="test")
    _wait_until(lambda: _in_state(api, run_id, "running") == 2, "the surplus batches did not end")
    assert tiering.work.has_work(run_id)
    # They ended well, after their segment, and their slots stay empty: nobody waiting took them.
    assert _in_state(api, run_id, "success") == 2
    assert len(_copies(api, run_id)) - _in_state(api, run_id, "success") == BATCHES - 2

    tiering.alter_configs(ALL_BROKERS, {QUOTA: str(RUN)}, author="test")
    assert wait_for_run(api, COPY, run_id, seconds=240, on_change=print).state == "success"
    assert not tiering.work.has_work(run_id)
    changes = [one for one in tiering.configs.history() if one.name == SIZE]
    seen = [(one.old_value, one.new_value, one.author) for one in changes]
    assert seen[-2:] == [("1", "4", "admin (Airflow)"), ("4", "2", "admin (Airflow)")]
