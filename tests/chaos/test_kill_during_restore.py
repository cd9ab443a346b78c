"""kill -9 at every step of a restore, part after part: in the end the target is whole, and nothing was read twice but
what was in flight. The crash table of `restoring/target.py` is the specification.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.tiering.app import open_app
from include.tiering.restoring.restore_segments import LOG_STARTS
from include.tiering.restoring.target import RestoreStep
from include.tiering.settings import load_settings
from tests.doubles.broker_data import broker_data
from tests.doubles.copy_process import kill_worker, run_worker
from tests.doubles.restore_worker import READ, READING
from tests.doubles.whole_logs import oracle_of, records_in

pytestmark = pytest.mark.chaos

WORKER = "restore_worker"
TOPIC = "sensor-old"


@pytest.fixture
def logs(storage: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The broker's files of what is copied and verified, by name. Parts are restored one after another."""
    log_dir = broker_data("public") / "stopped" / "broker-1"
    variables = {
        **storage,
        "TIERING_LOG_DIRS": f"1:{log_dir}",
        "TIERING_TOPICS__INCLUDE": TOPIC,
        "TIERING_METADATA__URL": f"sqlite:///{tmp_path}/metadata.sqlite",
        "TIERING_READ__MAX__SEGMENTS": "1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with open_app(load_settings()) as app:
        app.set_up.migrate()
        app.copying.plan("run-1")
        copied = app.copying.run_batch("run-1", "run-1/0").copied
        app.verification.verify_run("run-1")
    names = [f"{each.start_offset:020d}.log" for each in copied]
    return {name: (log_dir / f"{TOPIC}-0" / name).read_bytes() for name in names}


def test_killed_at_each_step_it_reads_nothing_again_but_what_was_in_flight(
    logs: dict[str, bytes], tmp_path: Path
) -> None:
    target = tmp_path / "target"
    deaths = [READING, RestoreStep.WRITTEN, RestoreStep.ENTERED, RestoreStep.PUBLISHED]
    lost_bytes = 0
    for death in deaths:
        before = _read_bytes(tmp_path)
        kill_worker(str(target), "--topic", TOPIC, "--kill-at", death, worker=WORKER)
        if death in (READING, RestoreStep.WRITTEN):
            lost_bytes += _read_bytes(tmp_path) - before
        assert not (target / LOG_STARTS).exists()
    assert run_worker(str(target), "--topic", TOPIC, worker=WORKER) == 0
    restored = {path.name: path.read_bytes() for path in (target / f"{TOPIC}-0").glob("*.log")}
    assert restored == logs
    assert len(logs) >= 5
    assert not list(target.rglob("*.partial"))
    assert _read_bytes(tmp_path) - lost_bytes == sum(map(len, logs.values()))


def test_killed_three_times_in_the_middle_and_once_at_the_end(logs: dict[str, bytes], tmp_path: Path) -> None:
    target = tmp_path / "target"
    for part in (2, 1, 2):
        kill_worker(str(target), "--topic", TOPIC, "--part", str(part), "--kill-at", RestoreStep.ENTERED, worker=WORKER)
    kill_worker(str(target), "--topic", TOPIC, "--kill-at", RestoreStep.COMPLETED, worker=WORKER)
    assert _read_bytes(tmp_path) == sum(map(len, logs.values()))
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert run_worker(str(target), "--topic", TOPIC, worker=WORKER) == 0
    assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before
    assert {path.name: path.read_bytes() for path in (target / f"{TOPIC}-0").glob("*.log")} == logs
    assert _read_bytes(tmp_path) == sum(map(len, logs.values()))


def test_parquet_files_are_killed_as_well(logs: dict[str, bytes], tmp_path: Path) -> None:
    target = tmp_path / "target"
    options = ("--topic", TOPIC, "--form", "parquet")
    lost_bytes = 0
    for death in (RestoreStep.WRITTEN, RestoreStep.ENTERED, READING, RestoreStep.PUBLISHED):
        before = _read_bytes(tmp_path)
        kill_worker(str(target), *options, "--kill-at", death, worker=WORKER)
        if death in (READING, RestoreStep.WRITTEN):
            lost_bytes += _read_bytes(tmp_path) - before
    assert run_worker(str(target), *options, worker=WORKER) == 0
    tables = [pq.read_table(path, partitioning=None) for path in target.glob("date=*/*.parquet")]
    found = pa.concat_tables(tables).sort_by("offset").to_batches()
    wanted = [each.record for each in oracle_of(logs.values()) if not each.is_control]
    assert [record for batch in found for record in records_in(batch)] == wanted
    assert not list(target.rglob("*.partial"))
    assert _read_bytes(tmp_path) - lost_bytes == sum(map(len, logs.values()))


def _read_bytes(directory: Path) -> int:
    """Bytes of logs that all workers read so far."""
    lines = (directory / READ).read_text().splitlines() if (directory / READ).exists() else []
    return sum(map(json.loads, lines))
