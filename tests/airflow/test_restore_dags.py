"""`tiering_restore` and `tiering_recovery_drill` run by Airflow's own DAG runner."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag

from include.tiering.app import open_app
from include.tiering.errors import SettingError
from include.tiering.model.segments import Depth
from include.tiering.restoring.target import MANIFEST
from include.tiering.settings import load_settings
from plugins.tiering_airflow.restoring import target_of
from tests.doubles.airflow_home import Deployment, deployed_for, deployment
from tests.doubles.broker_data import broker_data
from tests.doubles.kafka_lab.artifacts import jars
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.quotas import NoQuotas
from tests.doubles.s3_server import ACCESS_KEY, CREDENTIALS, SECRET_KEY, bucket_of_its_own, versitygw_or_skip
from tests.doubles.source_tree import ROOT

# Airflow's in-process API server warns of its own dependencies while it is imported.
pytestmark = pytest.mark.filterwarnings("default")

TOPIC = "sensor-old"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    """One topic, copied and verified."""
    found = deployed_for(monkeypatch, deployment(tmp_path), tasks=True)
    monkeypatch.setenv("TIERING_RESTORE__DIRECTORY", str(tmp_path / "restored"))
    found.copied(TOPIC)
    with found.open() as app:
        app.verification.verify_run()
    return found


def run_of(dag_id: str, conf: dict[str, Any]) -> tuple[str, dict[str, str]]:
    run = DagBag(str(ROOT / "dags")).dags[dag_id].test(run_conf=conf)
    return str(run.state), {task.task_id: str(task.state) for task in run.get_task_instances()}


def logs_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


def test_a_topic_is_restored_below_the_directory_of_the_settings(made: Deployment, tmp_path: Path) -> None:
    assert run_of("tiering_restore", {"topic": TOPIC, "dry_run": True})[0] == "success"
    assert not (tmp_path / "restored").exists()
    state, tasks = run_of("tiering_restore", {"topic": TOPIC, "directory": "again"})
    assert (state, tasks) == ("success", {"ready": "success", "restore": "success"})
    theirs = logs_of(broker_data("public") / "stopped" / "broker-1" / f"{TOPIC}-0")
    ours = logs_of(tmp_path / "restored" / "again" / f"{TOPIC}-0")
    assert len(ours) == 8
    assert {name: theirs[name] for name in ours} == ours
    other = {"topic": TOPIC, "partitions": [0], "to_offset": 5}
    assert run_of("tiering_restore", {**other, "directory": "again"})[0] == "failed", "it holds another restore"
    assert run_of("tiering_restore", {**other, "form": "parquet", "directory": "columns"})[0] == "success"
    assert list((tmp_path / "restored" / "columns").glob("date=*/*.parquet"))


def test_a_topic_is_restored_into_the_other_storage_of_the_settings(
    made: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And nowhere else: the form has no field for a place."""
    moved = {"topic": TOPIC, "form": "storage", "directory": "moved"}
    assert run_of("tiering_restore", moved)[0] == "failed", "restore.into is not set"
    other = tmp_path / "other.toml"
    other.write_text(f'[remote_storage]\nurl = "{(tmp_path / "elsewhere").as_uri()}"\n')
    monkeypatch.setenv("TIERING_RESTORE__INTO", str(other))
    assert run_of("tiering_restore", {**moved, "dry_run": True})[0] == "success"
    assert not (tmp_path / "elsewhere").exists()
    for _ in range(2):
        state, tasks = run_of("tiering_restore", moved)
        assert (state, tasks) == ("success", {"ready": "success", "restore": "success"})
    kept, found = (
        {path.name: path.read_bytes() for path in root.rglob(f"{TOPIC}*/0/*.log")}
        for root in (made.remote, tmp_path / "elsewhere")
    )
    assert len(found) == 8
    assert found == kept


def test_a_topic_is_restored_into_a_bucket_whose_keys_nobody_else_has(
    made: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A real S3 server, segments compressed; then a new database is made from the bucket alone, and all of it read."""
    other = tmp_path / "other.toml"
    monkeypatch.setenv("TIERING_RESTORE__INTO", str(other))
    moved = {"topic": TOPIC, "form": "storage", "directory": "moved"}
    keys = {"REMOTE_STORAGE__ACCESS_KEY_ID": ACCESS_KEY, "REMOTE_STORAGE__SECRET_ACCESS_KEY": SECRET_KEY}
    with versitygw_or_skip(tmp_path / "s3") as server:
        bucket = bucket_of_its_own(server, monkeypatch)
        for name in CREDENTIALS:
            monkeypatch.setenv(name, "of-the-storage-that-is-read")
        other.write_text(
            f'[remote_storage]\nurl = "s3://{bucket}/moved"\nendpoint_url = "{server.endpoint_url}"\n'
            "region = 'us-east-1'\ncompression_enabled = true\n"
        )
        objects = server.backdoor(bucket, "moved/")
        assert run_of("tiering_restore", moved)[0] == "failed", "the server knows no such key"
        for name, key in keys.items():
            monkeypatch.setenv(f"TIERING_TARGET__{name}", key)
        assert run_of("tiering_restore", {**moved, "dry_run": True})[0] == "success"
        assert objects.raw_keys() == set()
        for _ in range(2):
            state, tasks = run_of("tiering_restore", moved)
            assert (state, tasks) == ("success", {"ready": "success", "restore": "success"})
        assert len([key for key in objects.raw_keys() if key.endswith(".rsm-manifest")]) == 8
        environment = {"HOME": str(tmp_path), **{f"TIERING_{name}": key for name, key in keys.items()}}
        database = {"metadata.url": f"sqlite:///{tmp_path}/rebuilt.sqlite"}
        with open_app(load_settings(other, database, environment), quotas=NoQuotas()) as app:
            app.recovery.rebuild(app.recovery.plan_rebuild(), author="test")
            verified = app.verification.verify_run(depth=Depth.DEEP)
            assert (verified.segments, verified.failed) == (8, ())
            (partition,) = app.adapters.stores.metadata.partitions()
            fetched = list(app.reading.fetch_partition(partition, tmp_path / "fetched"))
    assert [each.refused for each in fetched] == [None] * 8
    theirs = logs_of(broker_data("public") / "stopped" / "broker-1" / f"{TOPIC}-0")
    ours = logs_of(tmp_path / "fetched" / f"{TOPIC}-0")
    assert {name: theirs[name] for name in ours} == ours
    said, manifest = capfd.readouterr(), tmp_path / "restored" / "moved" / MANIFEST
    assert SECRET_KEY not in said.out + said.err + manifest.read_text()


@pytest.mark.parametrize("name", ["../elsewhere", "/tmp", "a/b", ".hidden", "..", ""])
def test_a_directory_elsewhere_is_refused(made: Deployment, name: str) -> None:
    with made.open() as app, pytest.raises(SettingError, match="accepted: letters"):
        target_of(app.settings, {"directory": name, "topic": ""})


def test_a_drill_takes_the_topic_that_waits_and_finds_a_damaged_segment(
    made: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, only_real_kafka: Callable[[], None]
) -> None:
    only_real_kafka()
    state, tasks = run_of("tiering_recovery_drill", {})
    assert (state, tasks) == ("success", {"ready": "success", "drill": "success"})
    with made.open() as app:
        passed = app.operations.last_drill(TOPIC)
    assert passed is not None
    assert passed.detail.startswith("passed: ")
    log = max(made.remote.rglob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.chmod(0o600)
    log.write_bytes(content)
    assert run_of("tiering_recovery_drill", {"topic": TOPIC})[0] == "failed"
    with made.open() as app:
        failed = app.operations.last_drill(TOPIC)
    assert failed is not None
    assert failed.detail.startswith("FAILED")
    assert log.stem[21:] in failed.detail


@pytest.fixture
def only_real_kafka(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """Skip where no broker can be had; else name its jars, and a directory for temporary files."""

    def require() -> None:
        require_kafka()
        (tmp_path / "scratch").mkdir()
        monkeypatch.setenv("KAFKA_HOME", str(jars("4.3.1")))
        monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))

    return require
