"""All three pools resized in a real scheduler while their batches run: up, down, to 0 and back.

Copies and deletions are held by a pause of all topics, which their batches wait out in their slots; so it is seen which
batches a pool lets run, however fast the machine is. Verifications read on in a pause: a low fetch quota holds them.
A size run is one piece of work. It ends without a result when its pool has no slot for it, and begins anew afterwards.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from include.tiering.app import App
from include.tiering.configs.airflow_api import AirflowApi
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL
from include.tiering.model.segments import Verdict
from include.tiering.runs.deletion_run import DeletionOutcome
from local.runs import errors_of, trigger, wait_for_dag, wait_for_run
from tests.doubles.airflow_home import COPY, EXPIRATION, SIZES, WAIT_SECONDS, RunningPlatform, running_platform
from tests.doubles.broker_data import broker_data
from tests.doubles.many_segments import known_partitions
from tests.doubles.patience import eventually

pytestmark = pytest.mark.timeout(7_200)

QUALITY: Final = "tiering_quality"
COPY_QUOTA, FETCH_QUOTA = "tiering.copy.total.max.bytes.per.second", "tiering.fetch.total.max.bytes.per.second"
CRAWL, RUN = 2_000, 100_000_000
BATCHES: Final = 5
EXPIRED: Final = ("orders", "payments.v1-eu", "retained", "trimmed")
"""Topics of five partitions, all of whose segments are to go."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlatform]:
    settings = f"""
    tiering.copier.max.batches = {BATCHES}
    tiering.expiration.max.batches = {BATCHES}
    tiering.expiration.min.bytes = 0  # no topic is too small for the deletion limit
    """
    brokers = broker_data("public") / "stopped"
    with running_platform(tmp_path_factory.mktemp("platform"), brokers, settings) as started:
        wait_for_dag(started.api, QUALITY, seconds=WAIT_SECONDS)
        # A copy would wake it while its pool is looked at.
        started.api.patch(f"/dags/{SIZES}", {"is_paused": True})
        started.api.patch(f"/dags/{QUALITY}", {"is_paused": False})
        yield started


@pytest.fixture
def app(running: RunningPlatform) -> Iterator[App]:
    with running.library() as opened:
        yield opened


class Watched:
    """The batches of one task of one run, in Airflow and as the platform's database has them."""

    def __init__(self, running: RunningPlatform, app: App, pool: str, dag_id: str, task_id: str) -> None:
        self._running = running
        self._api: AirflowApi = running.api
        self._app = app
        self._pool = pool
        self._dag_id = dag_id
        self._task_id = task_id
        self.run_id = ""

    def begin(self, conf: dict[str, Any]) -> None:
        self.run_id = trigger(self._api, self._dag_id, conf)

    def resize(self, slots: int) -> None:
        """As on Airflow's admin page."""
        described = self._api.get(f"/pools/{self._pool}")["description"]
        body = {"pool": self._pool, "slots": slots, "include_deferred": False, "description": described}
        self._api.patch(f"/pools/{self._pool}", body)

    def states(self, task_id: str | None = None) -> list[str]:
        tasks = self._api.get(f"/dags/{self._dag_id}/dagRuns/{self.run_id}/taskInstances")["task_instances"]
        return sorted(str(one["state"]) for one in tasks if one["task_id"] == (task_id or self._task_id))

    def live(self) -> int:
        return len(self._app.adapters.stores.work.live_batches(self._pool))

    def require(self, what: str, *, live: int, **states: int) -> None:
        """Wait until so many batches are live, and so many tasks are in each of these states of Airflow."""

        def holds() -> bool:
            now = self.states()
            return self.live() == live and {state: now.count(state) for state in states} == states

        until(holds, f"{self._dag_id}: {what}; live {live}, {states}")

    def require_in_pools_command(self, slots: int, live: int) -> None:
        """`./tiering pools` shows the same."""

        def holds() -> bool:
            shown = json.loads(self._running.command("pools", "-o", "json"))
            (pool,) = (one for one in shown["pools"] if one["name"] == self._pool)
            return (pool["slots"], len(pool["live_batches"])) == (slots, live)

        until(holds, f"./tiering pools shows {slots} slots and {live} live batches of {self._pool}")

    def require_success(self) -> None:
        run = wait_for_run(self._api, self._dag_id, self.run_id, seconds=WAIT_SECONDS, on_change=print)
        assert run.state == "success", list(errors_of(self._running.layout.airflow_home / "logs", run))
        until(lambda: self.live() == 0, "no batch is live after its run")

    def up_down_to_nothing_and_back(self) -> None:
        """1, 3, 1, 0, 2 slots for `BATCHES` batches that wait in their slots, each of which is surplus only once."""
        self.require("one begins", live=1, running=1, scheduled=BATCHES - 1)
        self.resize(3)
        self.require("two more begin", live=3, running=3, scheduled=BATCHES - 3)
        self.resize(1)
        self.require("two are surplus and end", live=1, running=1, success=2, scheduled=BATCHES - 3)
        self.resize(0)
        self.require("none has a slot", live=0, running=0, success=3, scheduled=BATCHES - 3)
        self.require_in_pools_command(slots=0, live=0)
        self.resize(2)
        self.require("the last two begin", live=2, running=2, success=3, scheduled=0)
        self.require_in_pools_command(slots=2, live=2)


def test_the_pool_of_copies(running: RunningPlatform, app: App) -> None:
    copies = Watched(running, app, COPIER_POOL, COPY, "copy")
    copies.resize(1)
    app.configs.alter(ALL_BROKERS, {COPY_QUOTA: str(CRAWL)}, author="test")
    copies.begin({})
    until(lambda: copies.states("plan") == ["success"], "the copies are planned")
    running.command("pause")
    copies.up_down_to_nothing_and_back()
    assert app.adapters.stores.work.has_work(copies.run_id)
    app.configs.alter(ALL_BROKERS, {COPY_QUOTA: str(RUN)}, author="test")
    running.command("resume")
    copies.require_success()
    assert not app.adapters.stores.work.has_work(copies.run_id)
    assert _stored_segments(app) == _eligible_segments()


def test_the_pool_of_verifications_and_size_runs(running: RunningPlatform, app: App) -> None:
    verifications = Watched(running, app, READER_POOL, QUALITY, "verify")
    verifications.resize(1)
    app.configs.alter(ALL_BROKERS, {FETCH_QUOTA: str(CRAWL)}, author="test")
    verifications.begin({"which": "all", "depth": "deep"})
    until(lambda: verifications.states("plan") == ["success"], "the verification is planned")
    until(lambda: len(verifications.states()) >= 3, "it is divided into at least three batches")
    batches = len(verifications.states())
    verifications.require("one begins", live=1, running=1, scheduled=batches - 1)
    verifications.resize(2)
    verifications.require("one more begins", live=2, running=2, scheduled=batches - 2)
    verifications.resize(0)
    # A batch ends after the group of segments that it reads; whoever waited for a slot goes on waiting.
    app.configs.alter(ALL_BROKERS, {FETCH_QUOTA: str(RUN)}, author="test")
    verifications.require("none has a slot", live=0, running=0, failed=0)
    assert verifications.states().count("scheduled") >= batches - 2
    assert verifications.states("summary") in ([], ["None"])
    verifications.require_in_pools_command(slots=0, live=0)
    verifications.resize(1)
    verifications.require_success()
    totals = app.adapters.stores.metadata.verdict_totals()
    assert {total.verdict: total.segments for total in totals if total.segments} == {
        Verdict.PASSED: _eligible_segments()
    }

    sizes = Watched(running, app, READER_POOL, SIZES, "sizes")
    running.api.patch(f"/dags/{SIZES}", {"is_paused": False})
    sizes.resize(0)
    sizes.begin({"from_storage": "listing"})
    sizes.require("it waits for a slot, which is no failure", live=0, scheduled=1)
    sizes.resize(1)
    until(lambda: sizes.states() == ["running"], "it has a slot")
    # It takes seconds to begin, and finds the pool without a slot when it reports itself.
    sizes.resize(0)
    sizes.require("it ends without a result, and waits again", live=0, scheduled=1)
    (report,) = app.adapters.stores.work.progress(f"sizes-{sizes.run_id}")
    assert (report.pool, report.finished) == (READER_POOL, True)
    summary = running.layout.work_dir / "sizes" / "summary.json"
    assert not summary.exists()
    sizes.resize(1)
    sizes.require_success()
    counted = json.loads(summary.read_text())
    assert (counted["segments"], counted["differences"]) == (_eligible_segments(), [])


def test_the_pool_of_deletions(running: RunningPlatform, app: App) -> None:
    deletions = Watched(running, app, EXPIRATION_POOL, EXPIRATION, "delete")
    deletions.resize(1)
    for topic in EXPIRED:
        app.configs.alter(ConfigEntity(EntityType.TOPICS, topic), {"retention.bytes": "0"}, author="test")
    deletions.begin({})
    until(lambda: deletions.states("approval") == ["awaiting_input"], "a person is asked")
    planned = app.adapters.stores.deletions.items(f"expire-{deletions.run_id}")
    assert {item.planned.segment_id.topic_id_partition.topic for item in planned} == set(EXPIRED)
    assert len({item.planned.segment_id.topic_id_partition for item in planned}) == BATCHES
    until(lambda: running.may_answer(deletions.run_id), "the scheduler sees the end of the process that asked")
    running.command("pause")
    question = f"/dags/{EXPIRATION}/dagRuns/{deletions.run_id}/taskInstances/approval/-1/hitlDetails"
    running.api.patch(question, {"chosen_options": ["Approve"], "params_input": {}})
    deletions.up_down_to_nothing_and_back()
    assert _stored_segments(app) == _eligible_segments()
    running.command("resume")
    deletions.require_success()
    items = app.adapters.stores.deletions.items(f"expire-{deletions.run_id}")
    assert {item.outcome for item in items} == {DeletionOutcome.DELETED}
    assert _stored_segments(app) == _eligible_segments() - len(items)


def until(holds: Callable[[], bool], what: str) -> None:
    eventually(holds, what, seconds=WAIT_SECONDS, pause_seconds=0.5)


def _stored_segments(app: App) -> int:
    return sum(size.segments for size in app.sizes.partition_sizes())


def _eligible_segments() -> int:
    return sum(len(partition.eligible) for partition in known_partitions("public").values())
