"""What holds for all DAGs: parameters, retries, pools."""

import json
import os
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.pool import Pool
from airflow.sdk import DAG, TriggerRule
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import ParamValidationError
from airflow.utils.session import create_session

from include.tiering import errors
from include.tiering.configs.pools import POOLS
from include.tiering.errors import AirflowApiUnavailableError, MetadataUnavailableError
from plugins.tiering_airflow.errors import NotReadyError, QualityGateError, SparkJobError, SparkJobRetriableError
from plugins.tiering_airflow.pools import (
    COPIER_POOL,
    PoolMirroring,
    create_missing_pools,
    created_sentence,
    suitable_slots,
)
from plugins.tiering_airflow.shared import RETRY_DELAY, RetryRetriableErrors, amount
from plugins.tiering_airflow.spark import job_error
from tests.doubles.airflow_home import airflow_database
from tests.doubles.patience import PATIENCE_SECONDS
from tests.doubles.present import present
from tests.doubles.source_tree import ROOT

# What every DAG of the platform keeps to.

DAG_FILES = sorted((ROOT / "dags").glob("*.py"))
DAG_IDS = [file.stem for file in DAG_FILES]
STARTS_PAUSED = {"tiering_copy", "tiering_expiration", "tiering_quality", "tiering_audit", "tiering_recovery_drill"}
POOL_NAMES = {pool.name for pool in POOLS}

# Parses one file as Airflow does, with Airflow itself and the provider's operator imported before.
_PARSE = """
import json, runpy, sys
import airflow.sdk
import airflow.providers.apache.spark.operators.spark_submit
import airflow.providers.standard.operators.empty
import airflow.providers.standard.operators.hitl
import croniter  # asks the system about its interpreter
before = set(sys.modules)
touched = []
def watch(event, arguments):
    if event in ("socket.connect", "subprocess.Popen", "sqlite3.connect", "os.mkdir", "os.remove"):
        touched.append(f"{event} {arguments[0]!r}")
    if event == "open" and not str(arguments[0]).endswith((".py", ".pyc")) and ".pyc." not in str(arguments[0]):
        touched.append(f"open {arguments[0]!r}")
sys.addaudithook(watch)
runpy.run_path(sys.argv[1])
print(json.dumps({"modules": sorted(set(sys.modules) - before), "touched": touched}))
"""


@cache
def _parsed(file: Path, config: Path | None = None) -> dict[str, Any]:
    command = [sys.executable, "-c", _PARSE, str(file)]
    environ = os.environ if config is None else {**os.environ, "TIERING_CONFIG": str(config)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environ, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@cache
def _bag() -> DagBag:
    return DagBag(str(ROOT / "dags"))


@pytest.fixture(params=DAG_IDS)
def dag(request: pytest.FixtureRequest) -> DAG:
    assert _bag().import_errors == {}
    return _bag().dags[request.param]


@pytest.mark.parametrize("file", DAG_FILES, ids=DAG_IDS)
def test_parsing_imports_the_project_the_standard_library_and_nothing_else(file: Path) -> None:
    """Which is why it takes a fraction of a second, of whatever machine."""
    light = {"airflow", "include", "plugins"} | sys.stdlib_module_names
    assert {name.partition(".")[0] for name in _parsed(file)["modules"]} <= light
    assert "include.tiering.app" not in _parsed(file)["modules"]


@pytest.mark.parametrize("file", DAG_FILES, ids=DAG_IDS)
def test_touches_no_file_network_or_process_while_it_is_parsed(file: Path) -> None:
    assert _parsed(file)["touched"] == []


COPY_DAG = ROOT / "dags" / "tiering_copy.py"


@pytest.fixture
def racks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Settings whose log dirs name two queues, one of them twice."""
    queues = (None, "rack-a", "rack-b", "rack-a")
    config = tmp_path / "tiering.toml"
    config.write_text(
        "".join(
            f"[[log_dirs]]\nbroker_id = {number}\npath = '/kafka-{number}'\n"
            + (f"queue = '{queue}'\n" if queue else "")
            for number, queue in enumerate(queues)
        )
    )
    monkeypatch.setenv("TIERING_CONFIG", str(config))
    return config


def test_each_queue_of_the_settings_has_a_task_of_its_own(racks: Path) -> None:
    bag = DagBag(str(COPY_DAG))
    assert bag.import_errors == {}
    dag = bag.dags["tiering_copy"]
    copies = {task.task_id: task for task in dag.tasks if task.is_mapped}
    assert {task_id: task.queue for task_id, task in copies.items()} == {
        "copy": "default",
        "copy_rack-a": "rack-a",
        "copy_rack-b": "rack-b",
    }
    assert {task.pool for task in copies.values()} == {"remote_log_copier"}
    scans = {task.task_id: task for task in dag.tasks if task.task_id.startswith("scan_")}
    assert {task_id: task.queue for task_id, task in scans.items()} == {
        "scan_rack-a": "rack-a",
        "scan_rack-b": "rack-b",
    }
    for task in scans.values():
        assert (task.upstream_task_ids, task.downstream_task_ids) == ({"ready"}, set()), "it holds nobody up"
    assert {task.queue for task in dag.tasks if not task.is_mapped and task.task_id not in scans} == {"default"}
    for task in copies.values():
        assert dag.get_task("quality_gate").task_id in task.downstream_task_ids
        assert dag.get_task("outcome").task_id in task.downstream_task_ids


def test_queues_cost_one_look_at_the_settings_file(racks: Path) -> None:
    parsed = _parsed(COPY_DAG, racks)
    assert parsed["touched"] == [f"open {str(racks)!r}"]
    assert "include.tiering.app" not in parsed["modules"]


def test_the_metadata_topic_is_read_on_a_schedule_where_there_are_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _bag().dags["tiering_ingest"].schedule is None
    monkeypatch.setenv("TIERING_CLUSTER__BOOTSTRAP_SERVERS", "broker:9092")
    bag = DagBag(str(ROOT / "dags" / "tiering_ingest.py"))
    assert bag.import_errors == {}
    schedule: Any = bag.dags["tiering_ingest"].schedule
    assert schedule == "*/5 * * * *"


def test_without_queues_there_is_one_copy_task() -> None:
    assert [task.task_id for task in _bag().dags["tiering_copy"].tasks if task.is_mapped] == ["copy"]


def test_settings_that_cannot_be_used_are_named_where_dags_are_listed(racks: Path) -> None:
    racks.write_text("log_dirs = [{broker_id = 1, path = '/kafka', queue = 'no such name'}]")
    (error,) = DagBag(str(COPY_DAG)).import_errors.values()
    assert "SettingError" in error
    assert "queue" in error


def test_is_named_after_its_file_and_documented(dag: DAG) -> None:
    assert Path(dag.fileloc).stem == dag.dag_id
    assert dag.description
    assert len(present(dag.doc_md)) > 200


def test_the_page_of_a_dag_says_what_each_task_does(dag: DAG) -> None:
    """Tasks have no documentation of their own."""
    assert [task.task_id for task in dag.tasks if f"**{task.task_id}**" not in present(dag.doc_md)] == []


def test_what_starts_paused_says_so(dag: DAG) -> None:
    """Where `dags_are_paused_at_creation` is on. A watch must not be paused while the DAG that it watches is not."""
    runs_at_once = dag.is_paused_upon_creation is False
    assert runs_at_once is (dag.dag_id not in STARTS_PAUSED)
    unpause = f"airflow dags unpause {dag.dag_id}"
    assert (unpause in " ".join(present(dag.doc_md).split())) is not runs_at_once
    assert f"`{dag.dag_id}`" in (ROOT / "README.md").read_text()


def test_what_a_run_brings_is_an_asset_with_a_name_and_a_uri() -> None:
    """So that DAGs of others can wait for verdicts and findings as well as for the remote log."""
    outlets = {dag_id: {outlet for task in dag.tasks for outlet in task.outlets} for dag_id, dag in _bag().dags.items()}
    assert {dag_id: {outlet.name: outlet.uri for outlet in found} for dag_id, found in outlets.items() if found} == {
        "tiering_copy": {"tiering_remote_log": "x-tiering://remote-log"},
        "tiering_expiration": {"tiering_remote_log": "x-tiering://remote-log"},
        "tiering_ingest": {"tiering_remote_log": "x-tiering://remote-log"},
        "tiering_quality": {"tiering_verdicts": "x-tiering://verdicts"},
        "tiering_audit": {"tiering_audit_findings": "x-tiering://audit-findings"},
    }


def test_is_tagged_and_owned(dag: DAG) -> None:
    assert "tiering" in dag.tags
    assert {task.owner for task in dag.tasks} == {"tiering"}


def test_bounds_what_runs_at_once(dag: DAG) -> None:
    several = ("tiering_expiration", "tiering_handover", "tiering_restore")
    assert dag.max_active_runs == (16 if dag.dag_id in several else 1)
    assert dag.catchup is False
    # The pool bounds mapped tasks: the DAG's own limit, 16 unless it is set, must not be in its way.
    assert dag.max_active_tasks >= (64 if any(task.is_mapped for task in dag.tasks) else 1)


def test_pools_are_created_by_set_up_and_have_room(dag: DAG) -> None:
    for task in dag.tasks:
        assert task.pool in POOL_NAMES | {"default_pool"}, task.task_id
        assert task.pool_slots <= suitable_slots(cpus=1), task.task_id


def test_spark_jobs_hold_a_slot(dag: DAG) -> None:
    for task in dag.tasks:
        if "Spark" in task.task_type or task.task_id in ("copy", "delete", "verify"):
            assert task.pool in POOL_NAMES


def test_errors_decide_about_retries(dag: DAG) -> None:
    for task in dag.tasks:
        assert present(task.retries) > 0
        policy = task.partial_kwargs["retry_policy"] if task.is_mapped else task.retry_policy
        assert isinstance(policy, RetryRetriableErrors), task.task_id


def test_nothing_is_deleted_but_by_what_was_released() -> None:
    dag = _bag().dags["tiering_expiration"]
    (delete,) = (task for task in dag.tasks if task.is_mapped)
    assert (delete.upstream_task_ids, delete.trigger_rule) == ({"release"}, TriggerRule.ALL_SUCCESS)
    assert delete.pool == "remote_log_expiration"
    release = dag.get_task("release")
    assert release.upstream_task_ids == {"safety_limit", "approval"}
    # A failed approval must not look like one that was not needed.
    assert release.trigger_rule == TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
    assert dag.get_task("approval").defaults == ["Reject"]


def test_an_audit_removes_nothing_but_by_a_persons_word() -> None:
    dag = _bag().dags["tiering_audit"]
    remove, release, approval = (dag.get_task(name) for name in ("remove", "release", "approval"))
    assert (remove.upstream_task_ids, remove.trigger_rule) == ({"release"}, TriggerRule.ALL_SUCCESS)
    assert (release.upstream_task_ids, release.trigger_rule) == ({"approval"}, TriggerRule.ALL_SUCCESS)
    assert (approval.upstream_task_ids, approval.defaults) == ({"safety_limit"}, ["Reject"])
    assert remove.pool == "remote_log_expiration"
    assert dag.params["delete_orphans"] is False


def test_plans_to_delete_are_made_one_at_a_time() -> None:
    """Runs go side by side, since some wait for a person: each plan has to see what the others took."""
    assert _bag().dags["tiering_expiration"].get_task("plan").max_active_tis_per_dag == 1


REQUIRED = {("tiering_handover", "topic")}


def test_every_form_is_valid_as_it_opens_but_for_what_only_a_person_can_say() -> None:
    """Airflow refuses a run without a required field at once, before any task starts."""
    refused = set()
    for dag in _bag().dags.values():
        for name in dag.params:
            try:
                dag.params.get_param(name).resolve()
            except ParamValidationError:
                refused.add((dag.dag_id, name))
    assert refused == REQUIRED


@pytest.mark.parametrize(
    ("dag_id", "name", "value"),
    [
        ("tiering_copy", "topics", "orders"),
        ("tiering_copy", "limit_bytes", 0),
        ("tiering_copy", "dry_run", "yes"),
        ("tiering_expiration", "topics", [""]),
        ("tiering_expiration", "dry_run", 1),
        ("tiering_audit", "delete_orphans", "yes"),
        ("tiering_audit", "inventory", ""),
        ("tiering_handover", "topic", ""),
        ("tiering_handover", "local_retention_ms", -1),
        ("tiering_handover", "local_retention_bytes", "many"),
        ("tiering_handover", "local_retention_bytes", "7d"),
        ("tiering_handover", "local_retention_ms", "50GiB"),
        ("tiering_copy", "limit_bytes", "50MB"),
        ("tiering_configs", "set", "queued.max.requests=5"),
        ("tiering_ingest", "from_beginning", "yes"),
        ("tiering_quality", "depth", "medium"),
        ("tiering_quality", "share", 1.5),
        ("tiering_quality", "which", "none"),
    ],
)
def test_a_bad_form_is_refused(dag_id: str, name: str, value: object) -> None:
    param = _bag().dags[dag_id].params.get_param(name)
    if (dag_id, name) not in REQUIRED:
        param.resolve()
    with pytest.raises(ParamValidationError):
        param.resolve(value)


@pytest.mark.parametrize(
    ("dag_id", "name", "value"),
    [
        ("tiering_copy", "limit_bytes", "50GiB"),
        ("tiering_copy", "limit_bytes", 1),
        ("tiering_quality", "limit_bytes", "1.5 TiB"),
        ("tiering_handover", "local_retention_ms", "7d"),
        ("tiering_handover", "local_retention_ms", "604800000"),
        ("tiering_handover", "local_retention_bytes", ""),
    ],
)
def test_an_amount_may_have_a_suffix(dag_id: str, name: str, value: object) -> None:
    assert _bag().dags[dag_id].params.get_param(name).resolve(value) == value


def test_an_amount_of_a_form_is_a_number_of_its_unit() -> None:
    assert [amount("limit", value, "bytes", at_least=1) for value in (None, "", 7, "7", "1KiB")] == [
        None, None, 7, 7, 1024,
    ]  # fmt: skip
    for wrong in ("0", 0, "7d"):
        with pytest.raises(errors.SettingError, match=r"limit is .*: accepted: 1 or more"):
            amount("limit", wrong, "bytes", at_least=1)


# Which failures Airflow tries again.


@pytest.mark.parametrize(
    "error", [errors.MetadataUnavailableError("away"), SparkJobRetriableError("again"), errors.LeaseLostError("taken")]
)
def test_retriable_errors_are_tried_again(error: Exception) -> None:
    decision = RetryRetriableErrors().evaluate(error, 1, 3)
    assert (decision.action, decision.retry_delay) == (RetryAction.RETRY, RETRY_DELAY)


@pytest.mark.parametrize(
    "error",
    [
        errors.SettingError("bad"),
        NotReadyError("no"),
        QualityGateError("1 finding"),
        SparkJobError("x"),
        KeyError("bug"),
    ],
)
def test_all_others_fail_at_once(error: Exception) -> None:
    assert RetryRetriableErrors().evaluate(error, 1, 3).action is RetryAction.FAIL


@pytest.mark.parametrize(
    ("exit_code", "retriable", "says"),
    [
        (1, False, "findings"),
        (2, False, "settings"),
        (3, True, "a retry can help"),
        (137, True, "signal 9"),
        (-15, True, "signal 15"),
        (70, False, "exit code 70"),
    ],
)
def test_exit_codes_of_a_job_say_what_to_do(exit_code: int, retriable: bool, says: str) -> None:
    error = job_error("copying.py", exit_code)
    assert error.retriable is retriable
    assert says in str(error)
    assert "copying.py" in str(error)


# Pools are created once, never overwritten, and mirrored while batches run.


def test_missing_pools_are_created_and_a_changed_size_stays() -> None:
    airflow_database()
    assert set(create_missing_pools(2)) == {pool.name for pool in POOLS}
    with create_session() as session:
        copier = Pool.get_pool(COPIER_POOL, session=session)
        assert (copier.slots, copier.include_deferred) == (2, False)
        copier.slots = 7
    assert create_missing_pools(2) == []
    with create_session() as session:
        assert Pool.get_pool(COPIER_POOL, session=session).slots == 7


@pytest.mark.parametrize(("cpus", "slots"), [(0, 1), (1, 1), (2, 2), (64, 10)])
def test_slots_suit_the_machine(cpus: int, slots: int) -> None:
    assert suitable_slots(cpus) == slots
    said = created_sentence([COPIER_POOL], slots)
    assert said.startswith(f"pools created: {COPIER_POOL}, each with {slots} slots: one for each core of this host")
    assert created_sentence([], slots) == "pools created: none, all exist"


class _Mirror:
    """Does as the script says, one step per call and the last one for ever; an exception is raised."""

    def __init__(self, *steps: Exception | None) -> None:
        self._steps = list(steps)
        self.calls = 0
        self.exhausted = threading.Event()

    def __call__(self) -> None:
        self.calls += 1
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if len(self._steps) == 1:
            self.exhausted.set()
        if step is not None:
            raise step


def test_sizes_are_mirrored_at_once_and_again() -> None:
    mirror = _Mirror(None, None, None, None)
    with PoolMirroring(mirror, period_seconds=0.01).running():
        assert mirror.calls >= 1
        assert mirror.exhausted.wait(PATIENCE_SECONDS)


def test_a_database_that_was_away_gets_the_sizes_later(caplog: pytest.LogCaptureFixture) -> None:
    mirror = _Mirror(MetadataUnavailableError("locked"), MetadataUnavailableError("locked"), None, None)
    with PoolMirroring(mirror, period_seconds=0.01).running():
        assert mirror.exhausted.wait(PATIENCE_SECONDS)
    assert [record.message for record in caplog.records] == ["Sizes of the pools are not mirrored: locked"]


def test_airflow_away_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    mirroring = PoolMirroring(_Mirror(AirflowApiUnavailableError("away")))
    for _ in range(3):
        mirroring.refresh()
    assert [record.message for record in caplog.records] == ["Sizes of the pools are not mirrored: away"]
