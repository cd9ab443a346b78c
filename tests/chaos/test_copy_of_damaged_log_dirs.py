"""`copy` over 200 damaged log directories: sound partitions are copied whole, the damaged one stops before the damage.

Whatever is FINISHED holds the bytes that the broker wrote, which are taken from the undamaged directory.
"""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from include.tiering.app import App, open_app
from include.tiering.cli.app import cli
from include.tiering.settings import load_settings
from tests.doubles.broker_data import broker_data, copy_of
from tests.doubles.copied_state import fetched
from tests.doubles.damage import damage

pytestmark = pytest.mark.chaos

PART = "running/broker-2"
SEEDS = range(200)
CLEAN, FINDINGS, SETTING = 0, 1, 2


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A broker's directory in a deployment that was set up while it was sound."""
    directory = copy_of("public", tmp_path, part=PART)
    for name, value in variables(directory, tmp_path).items():
        monkeypatch.setenv(name, value)
    with open_app(load_settings()) as app:
        app.set_up.migrate()
    return directory


def variables(log_dir: Path, scratch: Path) -> dict[str, str]:
    return {
        "TIERING_LOG_DIRS": f"2:{log_dir}",
        "TIERING_TOPICS__INCLUDE": "*",
        "TIERING_METADATA__URL": f"sqlite:///{scratch}/metadata.sqlite",
        "TIERING_REMOTE_STORAGE__URL": f"file://{scratch}/store",
    }


@cache
def eligible_when_sound() -> dict[str, list[int]]:
    """Base offsets of eligible segments by partition."""
    with open_app(load_settings(environ=variables(broker_data("public") / PART, Path("/nowhere")))) as app:
        return {
            str(replica.topic_id_partition): [s.base_offset for s in replica.segments if s.eligible]
            for replica in app.log_dirs.scan_all().replicas
        }


def finished(app: App) -> dict[str, dict[int, bytes]]:
    """Stored bytes by partition and base offset."""
    return {
        str(partition): {
            row.metadata.start_offset: fetched(app, row.metadata)
            for row in app.adapters.stores.metadata.list_segments(partition)
            if row.metadata.is_finished
        }
        for partition in app.adapters.stores.metadata.partitions()
    }


def run_of(partition: str, segments: dict[int, bytes]) -> list[int]:
    """As many eligible base offsets as there are segments, from the first of these on."""
    eligible = eligible_when_sound()[partition]
    start = eligible.index(next(iter(segments)))
    return eligible[start : start + len(segments)]


@pytest.mark.parametrize("seed", SEEDS)
def test_copy(log_dir: Path, tmp_path: Path, seed: int) -> None:
    done = damage(log_dir, seed)
    result = CliRunner().invoke(cli, ["copy", "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), f"{done.what}: {result.exception!r}"
    assert "Traceback" not in result.output, done.what
    assert result.exit_code in (CLEAN, FINDINGS, SETTING), f"{done.what}: {result.output}"
    with open_app(load_settings()) as app:
        copies = finished(app)
    for partition, segments in copies.items():
        for base_offset, stored in segments.items():
            original = broker_data("public") / PART / partition / f"{base_offset:020d}.log"
            assert stored == original.read_bytes(), f"{done.what}: {partition} {base_offset}"
        assert not segments or list(segments) == run_of(partition, segments), f"{done.what}: a gap in {partition}"
    if done.partition is not None:
        for partition in eligible_when_sound().keys() - {done.partition}:
            assert list(copies.get(partition, {})) == eligible_when_sound()[partition], f"{done.what}: {partition}"
        expected = eligible_when_sound()[done.partition]
        first = next(iter(copies.get(done.partition, {})), None)
        if first is not None and first != expected[0]:
            # Without its first .log a partition looks as if retention had removed that segment, to a broker as well.
            assert done.what.startswith("deleted")
            expected = expected[expected.index(first) :]
        if len(expected) > len(copies.get(done.partition, {})) and result.exit_code == CLEAN:
            waiting = {f"{held['topic']}-{held['partition']}" for held in json.loads(result.stdout)["held_back"]}
            assert done.partition in waiting, f"{done.what}: segments left out without a word"
    shutil.rmtree(tmp_path)
