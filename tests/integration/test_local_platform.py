"""The platform on one machine as people use it: started, asked over REST, stopped; real scheduler, real Spark."""

import contextlib
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from include.tiering.configs.airflow_api import AirflowApi, Login
from include.tiering.configs.config_catalogue import TOTAL_COPY_QUOTA
from include.tiering.configs.config_store import ALL_BROKERS
from local.layout import Layout
from local.platform import Platform, stop, unhealthy_parts
from local.processes import family, recorded
from local.runs import DagRun, errors_of, trigger, wait_for_run
from local.secrets_store import READER, password_of
from plugins.tiering_airflow.errors import AirflowApiError
from tests.doubles.airflow_home import COPY, SIZES, WAIT_SECONDS, RunningPlatform, running_platform
from tests.doubles.broker_data import copy_of
from tests.doubles.listed_segments import listed_segments
from tests.doubles.patience import eventually
from tests.doubles.scrapes import samples_of

pytestmark = pytest.mark.timeout(7_200)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writable log dirs of two brokers, with one bit of one batch of `retained-0` turned."""
    log_dirs = copy_of("public", tmp_path_factory.mktemp("brokers"), part="stopped")
    (segment,) = log_dirs.glob("broker-*/retained-0/00000000000000000388.log")
    content = bytearray(segment.read_bytes())
    content[200] ^= 1
    segment.write_bytes(content)
    return log_dirs


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, brokers: Path) -> Iterator[RunningPlatform]:
    with running_platform(tmp_path_factory.mktemp("platform"), brokers, "tiering.copier.max.batches = 3") as started:
        yield started


@pytest.fixture
def platform(running: RunningPlatform) -> Platform:
    return running.platform


@pytest.fixture
def layout(running: RunningPlatform) -> Layout:
    return running.layout


@pytest.fixture
def api(running: RunningPlatform) -> AirflowApi:
    return running.api


def _finished(api: AirflowApi, form: dict[str, Any]) -> tuple[DagRun, dict[str, list[str]]]:
    """A run of `tiering_copy` that has ended, and the states of its tasks."""
    run = wait_for_run(api, COPY, trigger(api, COPY, form), seconds=WAIT_SECONDS, on_change=print)
    states: dict[str, list[str]] = {}
    for instance in api.get(f"/dags/{COPY}/dagRuns/{run.run_id}/taskInstances")["task_instances"]:
        states.setdefault(instance["task_id"], []).append(instance["state"])
    return run, states


def test_all_parts_are_healthy_and_listen_on_loopback_only(platform: Platform, layout: Layout) -> None:
    eventually(lambda: not unhealthy_parts(platform.base_url), "all parts are healthy")
    components = recorded(layout.components)
    assert sorted(components) == ["api-server", "dag-processor", "metrics", "scheduler", "triggerer"]
    listening: set[str] = set()
    for process in set(components.values()) | family(components.values(), str(layout.airflow_home)):
        with contextlib.suppress(psutil.NoSuchProcess):  # a parser of DAG files ends when it has parsed its file
            listening |= {c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def test_secrets_are_in_private_files_and_in_no_environment(platform: Platform, layout: Layout) -> None:
    for file in (layout.airflow_cfg, layout.secrets, layout.passwords, layout.api_login):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secrets = {*json.loads(layout.secrets.read_text()).values(), *json.loads(layout.passwords.read_text()).values()}
    for process in recorded(layout.components).values():
        assert secrets.isdisjoint(process.environ().values())


def test_nobody_gets_in_without_a_password(platform: Platform, layout: Layout) -> None:
    assert httpx.get(f"{platform.base_url}/api/v2/pools").status_code == 401
    with AirflowApi(platform.base_url, Login(READER, password_of(layout, READER))) as reader:
        assert reader.get("/pools/remote_log_copier")["slots"] >= 1
        with pytest.raises(AirflowApiError, match="403"):
            trigger(reader, COPY, {})


def test_a_run_copies_the_topics_of_the_form_and_wakes_the_size_run(
    api: AirflowApi, running: RunningPlatform, layout: Layout
) -> None:
    run, states = _finished(api, {"topics": ["audit*"]})
    assert (run.state, states["copy"]) == ("success", ["success"] * 2)
    sized = wait_for_run(api, SIZES, None, seconds=WAIT_SECONDS, on_change=print)
    assert sized.state == "success"
    assert {one.partition for one in listed_segments(layout.remote_storage)} == {("audit_log", 0), ("audit_log", 1)}
    with running.library() as app:
        assert app.adapters.stores.work.pool_size("remote_log_copier") == api.get("/pools/remote_log_copier")["slots"]
    copied_bytes = sum(log.stat().st_size for log in layout.remote_storage.rglob("audit_log-*/*/*.log"))
    shown = samples_of(httpx.get(f"http://{layout.metrics_address.read_text()}/metrics").text)
    topic = (("topic", "audit_log"),)
    assert shown["RemoteCopyBytesPerSec_total", topic] == shown["RemoteLogSizeBytes", topic] == copied_bytes > 0
    summary = json.loads((layout.work_dir / "sizes" / "summary.json").read_text())
    assert (summary["partitions"], summary["segments"], summary["differences"]) == (2, 3, [])


def test_with_nothing_left_the_run_succeeds_at_once(api: AirflowApi) -> None:
    run, states = _finished(api, {"topics": ["audit_log"]})
    assert run.state == "success"
    assert states == {
        "ready": ["success"],
        "plan": ["success"],
        **{task: ["skipped"] for task in ("copy", "quality_gate", "summary")},
        "outcome": ["success"],
    }


def test_a_damaged_segment_fails_the_run_in_one_line_that_names_it(api: AirflowApi, layout: Layout) -> None:
    run, states = _finished(api, {"topics": ["retained"]})
    assert (run.state, states["quality_gate"], states["summary"]) == ("failed", ["failed"], ["skipped"])
    said = [line for line in errors_of(layout.airflow_home / "logs", run) if line.startswith("quality_gate")]
    assert len(said) == 1
    assert "retained-0 from offset 388: not copied: " in said[0]


def test_stopping_in_the_middle_of_a_copy_leaves_no_process_and_the_next_start_goes_on(
    api: AirflowApi, running: RunningPlatform, layout: Layout
) -> None:
    _set_quota(running, "1000")  # no job comes to its end
    run_id = trigger(api, COPY, {"topics": ["trimmed", "payments*"]})
    jobs = eventually(lambda: _spark_jobs(layout), f"{run_id} has Spark jobs", seconds=WAIT_SECONDS)
    assert stop(layout, print) > len(jobs)
    assert recorded(layout.components) == {}
    assert family([], str(layout.airflow_home)) == set()

    _set_quota(running, None)
    running.platform.start()
    run = wait_for_run(api, COPY, run_id, seconds=WAIT_SECONDS, on_change=print)
    assert run.state == "success"
    with running.library() as app:
        assert not app.adapters.stores.work.has_work(run_id)
        copied = {size.topic_id_partition.topic for size in app.sizes.partition_sizes()}
    assert {"trimmed", "payments.v1-eu"} <= copied


def _set_quota(running: RunningPlatform, bytes_per_second: str | None) -> None:
    with running.library() as app:
        app.configs.alter(ALL_BROKERS, {TOTAL_COPY_QUOTA: bytes_per_second}, author="test")


def _spark_jobs(layout: Layout) -> list[psutil.Process]:
    found = []
    for process in family(recorded(layout.components).values(), str(layout.airflow_home)):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "java":
                found.append(process)
    return found
