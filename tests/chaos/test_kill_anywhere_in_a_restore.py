"""A restore from a real S3 server that is killed three times by SIGKILL, wherever it is: into each target.

In the end the target is complete and equal, and nothing was read twice but what was in flight: the segments that had no
line in the manifest when the process died. `test_kill_during_restore.py` kills at each step.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.generated_log_dir import TOPIC, Shape, write_log_dir
from include.tiering.app import open_app
from include.tiering.model.segments import Verdict
from include.tiering.restoring.target import MANIFEST
from include.tiering.settings import load_settings
from include.tiering.units import KIB, MIB
from tests.doubles.copy_process import kill_worker, run_worker
from tests.doubles.restore_worker import READ
from tests.doubles.s3_server import CREDENTIALS, VersityGateway, versitygw_or_skip
from tests.doubles.whole_logs import oracle_of, records_in

pytestmark = pytest.mark.chaos

SHAPE: Final = Shape(1, 8, 3 * MIB, 16 * KIB)
AT_ONCE: Final = 2
"""Segments that are read at the same time."""
KILLS: Final = 3


@dataclass(frozen=True)
class Source:
    """What is copied and served, and a bucket for the other storage."""

    server: VersityGateway
    directory: Path
    logs: list[bytes]

    @property
    def work(self) -> Path:
        return self.directory / "work"

    @property
    def other(self) -> Path:
        """Settings of the other storage."""
        config = self.directory / "other.toml"
        endpoint = self.server.endpoint_url
        config.write_text(f'[remote_storage]\nurl = "s3://other/tiered"\nendpoint_url = "{endpoint}"\n')
        return config

    def read_bytes(self) -> int:
        """Bytes of logs that all runs read so far."""
        path = self.directory / READ
        return sum(map(json.loads, path.read_text().splitlines())) if path.exists() else 0

    def entered(self) -> list[dict[str, Any]]:
        """The segments that have a line in the manifest."""
        manifest = self.work / MANIFEST
        lines = manifest.read_bytes().splitlines(keepends=True)[1:] if manifest.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"\n")]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    write_log_dir(tmp_path / "broker", SHAPE)
    with versitygw_or_skip(tmp_path / "s3") as server:
        for bucket in ("kept", "other"):
            server.make_bucket(bucket)
        variables = {
            "TIERING_REMOTE_STORAGE__URL": "s3://kept/tiered",
            "TIERING_REMOTE_STORAGE__ENDPOINT_URL": server.endpoint_url,
            "AWS_DEFAULT_REGION": "us-east-1",
            **CREDENTIALS,
            "TIERING_LOG_DIRS": f"1:{tmp_path / 'broker'}",
            "TIERING_TOPICS__INCLUDE": TOPIC,
            "TIERING_METADATA__URL": f"sqlite:///{tmp_path}/metadata.sqlite",
            "TIERING_READ__MAX__SEGMENTS": str(AT_ONCE),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with open_app(load_settings()) as app:
            app.set_up.migrate()
            app.copying.plan("run-1")
            copied = app.copying.run_batch("run-1", "run-1/0").copied
            for segment in copied:
                app.adapters.stores.metadata.record_verdict(segment.segment_id, Verdict.PASSED)
        paths = sorted((tmp_path / "broker" / f"{TOPIC}-0").glob("*.log"))[: len(copied)]
        yield Source(server, tmp_path, [path.read_bytes() for path in paths])


def require_segment_files(source: Source) -> None:
    restored = sorted((source.work / f"{TOPIC}-0").glob("*.log"))
    assert [path.read_bytes() for path in restored] == source.logs


def require_parquet(source: Source) -> None:
    tables = [pq.read_table(path, partitioning=None) for path in source.work.glob("date=*/*.parquet")]
    found = pa.concat_tables(tables).sort_by("offset").to_batches()
    records = [record for batch in found for record in records_in(batch)]
    assert records == [each.record for each in oracle_of(source.logs) if not each.is_control]


def require_other_storage(source: Source) -> None:
    kept, other = (source.server.backdoor(bucket, "tiered/") for bucket in ("kept", "other"))
    assert other.raw_keys() == kept.raw_keys(), "the same objects, and a marker of its own"
    logs = sorted(key for key in kept.raw_keys() if key.endswith(".log"))
    assert [other.raw_read(key) for key in logs] == source.logs
    assert sorted(path.name for path in source.work.iterdir()) == [MANIFEST]


@pytest.mark.parametrize(
    ("form", "require_equal"),
    [("segments", require_segment_files), ("parquet", require_parquet), ("storage", require_other_storage)],
)
def test_killed_three_times_it_is_complete_and_reads_nothing_again_but_what_was_in_flight(
    source: Source, form: str, require_equal: Callable[[Source], None]
) -> None:
    assert len(source.logs) == SHAPE.segments
    options = ["--topic", TOPIC, "--form", form, *(["--into", str(source.other)] if form == "storage" else [])]
    # In the middle of its first segments, between the first and the last, and in the last ones.
    most, choices = SHAPE.total_bytes // (KILLS + 1), random.Random(form)
    lost_bytes = 0
    for _ in range(KILLS):
        before_bytes, before = source.read_bytes(), len(source.entered())
        kill_worker(str(source.work), *options, "--kill-after", str(choices.randint(1, most)), worker="restore_worker")
        entered = source.entered()[before:]
        lost = source.read_bytes() - before_bytes - sum(line["log_bytes"] for line in entered)
        assert 0 < lost <= AT_ONCE * SHAPE.segment_bytes
        lost_bytes += lost
    assert run_worker(str(source.work), *options, worker="restore_worker") == 0
    assert source.read_bytes() == sum(map(len, source.logs)) + lost_bytes
    assert not list(source.work.rglob("*.partial"))
    require_equal(source)
