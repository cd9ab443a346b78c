"""A recovery drill on the archive of real brokers: with a real throw-away broker, and with a damaged segment."""

import json
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from include.tiering.app import App, open_app, recovery
from include.tiering.broker_process.kafka_home import KafkaHome
from include.tiering.cli.app import cli
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.errors import RehearsalSpaceError
from include.tiering.formats.record_batch import HEADER_SIZE, extend_crc32c
from include.tiering.formats.records import Decompressor, records_of
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.reading.scan import batches_of
from include.tiering.recovery import drill_steps
from include.tiering.restoring.report import RestoreReport
from include.tiering.restoring.service import RestoreService
from tests.doubles.archive import EVERYTHING, Archive, settings_of
from tests.doubles.kafka_lab.artifacts import jars
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.patience import eventually
from tests.doubles.source_tree import ROOT
from tests.doubles.whole_logs import WholeLogs, consumed, public_logs

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeLogs]:
    with public_logs(tmp_path_factory.mktemp("public")) as found:
        yield found


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a drill makes its directory."""
    made = tmp_path / "scratch"
    made.mkdir()
    monkeypatch.setenv("TMPDIR", str(made))
    monkeypatch.setattr("tempfile.tempdir", None)
    return made


def command(logs: WholeLogs | Archive, *arguments: str) -> Result:
    options = ["--config", str(logs.config), *arguments]
    return CliRunner(env={"COLUMNS": "300"}).invoke(cli, options, prog_name="./tiering")


def drilled(logs: WholeLogs | Archive, topic: str, code: int) -> dict[str, Any]:
    require_kafka()
    result = command(logs, "drill", topic, "--kafka-home", str(jars("4.3.1")), "--json")
    assert result.exit_code == code, result.output
    return dict(json.loads(result.stdout))


def stored(logs: WholeLogs) -> dict[str, bytes]:
    store = logs.config.parent / "store"
    return {str(path): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


@pytest.mark.timeout(300)
def test_a_topic_is_recovered_from_the_store_alone(logs: WholeLogs, scratch: Path) -> None:
    before = stored(logs)
    found = drilled(logs, "payments.v1-eu", 0)
    assert (found["passed"], found["findings"], found["kafka_version"]) == (True, [], "4.3.1")
    partition = logs.partition("payments.v1-eu")
    plain, committed = (consumed("public", partition, committed=one).records for one in (False, True))
    (one,) = found["partitions"]
    assert (one["records"], one["equal"]) == (plain, plain)
    assert (one["records_committed"], one["equal_committed"]) == (committed, committed)
    assert plain > committed > 0
    assert [each["step"] for each in found["steps"]] == ["rebuild", "verify", "restore", "start", "read"]
    assert found["needs"]["topic_bytes"] == sum(map(len, logs.logs[partition])) < found["needs"]["store_bytes"]
    assert list(scratch.iterdir()) == []
    assert stored(logs) == before, "the marker and every object are as they were"
    doctor = json.loads(command(logs, "doctor", "payments.v1-eu", "--json").stdout)
    assert doctor["last_drill"]["result"].startswith(f"passed: {plain:,} records equal")
    assert any(
        event["kind"] == "recovery drill" for event in json.loads(command(logs, "events", "--json").stdout)["events"]
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("lost", ["end", "partition", "topic"])
def test_what_the_store_has_lost_altogether_fails_the_drill(
    logs: WholeLogs, scratch: Path, tmp_path: Path, lost: str
) -> None:
    """By the store alone the rest looks whole: a log that ends earlier, or a topic with fewer partitions."""
    metadata = logs.app.adapters.stores.metadata
    partitions = sorted((each for each in logs.logs if each.topic == "audit_log"), key=lambda each: each.partition)
    rows = [row.metadata for each in partitions for row in metadata.list_segments(each)]
    if lost == "end":
        rows = [
            max((each for each in rows if each.topic_id_partition == partitions[0]), key=lambda each: each.end_offset)
        ]
    elif lost == "partition":
        rows = [each for each in rows if each.topic_id_partition == partitions[-1]]
    moved = {}
    for row in rows:
        for path in (logs.config.parent / "store").rglob(f"*{row.remote_log_segment_id.id}.*"):
            moved[path] = path.rename(tmp_path / path.name)
    try:
        found = drilled(logs, "audit_log", 1)
    finally:
        for path, kept in moved.items():
            kept.rename(path)
    assert found["passed"] is False
    for row in rows[:20]:
        sentence = f"of segment {row.remote_log_segment_id.id} are not in the recovered log"
        assert any(sentence in finding for finding in found["findings"]), found["findings"]
    assert "FAILED" in command(logs, "doctor", "audit_log").stdout


@pytest.mark.timeout(300)
def test_a_batch_that_was_replaced_by_another_valid_one_fails_the_drill(logs: WholeLogs, scratch: Path) -> None:
    """By settings without log directories: they are lost, too."""
    partition = logs.partition("orders")
    store, rows = logs.config.parent / "store", logs.app.adapters.stores.metadata.list_segments(partition)
    segment_id = rows[0].metadata.remote_log_segment_id.id
    (path,) = store.rglob(f"*{segment_id}.log")
    intact = path.read_bytes()
    replaced = with_another_value(intact)
    assert len(replaced) == len(intact)
    assert replaced != intact
    with closing(sqlite3.connect(logs.config.parent / "metadata.sqlite")) as database, database:
        values = (extend_crc32c(0, intact), str(segment_id))
        done = database.execute("update segments set log_crc32c = ? where segment_id = ?", values)
        assert done.rowcount == 1, "as copies of this platform have it"
    config = logs.config.with_name("without-log-dirs.toml")
    config.write_text(re.sub(r'\[\[log_dirs\]\]\nbroker_id = \d\npath = ".*"\n?', "", logs.config.read_text()))
    config.chmod(0o600)
    assert "log_dirs" not in config.read_text()
    path.chmod(0o600)
    path.write_bytes(replaced)
    try:
        found = drilled(replace(logs, config=config), "orders", 1)
    finally:
        path.write_bytes(intact)
    assert [each for each in found["findings"] if f"{partition}: segment {segment_id} has a log with CRC-32C" in each]


def with_another_value(log: bytes) -> bytes:
    """The log with another value in the first uncompressed batch, whose checksum is right."""
    for position, header, batch in batches_of([log], 0):
        if header.attributes & 7 == 0 and not header.is_control:
            changed = bytearray(batch)
            value = next(iter(records_of(header, batch[HEADER_SIZE:], Decompressor()))).value
            assert value
            changed[changed.index(value)] ^= 1
            changed[17:21] = extend_crc32c(0, bytes(changed[21:])).to_bytes(4, "big")
            return log[:position] + bytes(changed) + log[position + len(changed) :]
    raise AssertionError("no such batch")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("suffix", "position"), [("log", -1), ("log", None)])
def test_a_damaged_segment_fails_the_drill_by_its_name(
    logs: WholeLogs, scratch: Path, suffix: str, position: int | None
) -> None:
    """A wrong bit in the middle of records that only a complete read finds; and a log that is gone."""
    partition = logs.partition("audit_log", 1)
    segment = logs.app.adapters.stores.metadata.list_segments(partition)[0].metadata
    (path,) = (logs.config.parent / "store").rglob(f"*{segment.remote_log_segment_id.id}.{suffix}")
    intact = path.read_bytes()
    path.chmod(0o600)
    if position is None:
        path.unlink()
    else:
        damaged = bytearray(intact)
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
    try:
        found = drilled(logs, "audit_log", 1)
    finally:
        path.write_bytes(intact)
    assert found["passed"] is False
    assert any(str(segment.remote_log_segment_id.id) in finding for finding in found["findings"]), found["findings"]
    assert list(scratch.iterdir()) == []
    doctor = command(logs, "doctor", "audit_log")
    assert "last recovery drill" in doctor.stdout
    assert "FAILED" in doctor.stdout


WHY = "expired while the store was full"


@pytest.fixture
def with_hole(tmp_path: Path) -> Archive:
    """A partition of which the broker deleted two segments before they were copied: two decisions skip them."""
    archive = Archive.of(tmp_path)
    while len(archive.offsets(0)) < 2:
        archive.copy(limit_bytes=1)
    for log_start in (664, 808):
        archive.raise_broker_log_start(0, log_start)
        done = archive.command("skip", "orders", "--partition", "0", "--reason", WHY, "--approve")
        assert done.exit_code == 0, done.output
    archive.copy()
    assert archive.offsets(0) == [0, 96, 808]
    assert archive.command("verify").exit_code == 0
    return archive


@pytest.mark.timeout(300)
def test_a_hole_that_recorded_decisions_explain_is_named_and_passes(with_hole: Archive, scratch: Path) -> None:
    found = drilled(with_hole, "orders", 0)
    assert (found["passed"], found["findings"]) == (True, [])
    assert [each["equal"] for each in found["partitions"]] == [each["records"] for each in found["partitions"]]
    first, second = found["skipped"]
    assert first.startswith("orders-0: 476 offsets are skipped (188..663), recorded by ")
    assert second.startswith("orders-0: 144 offsets are skipped (664..807), recorded by ")
    assert first.endswith(WHY)
    assert (
        "476 offsets are skipped"
        in json.loads(command(with_hole, "doctor", "orders", "--json").stdout)["last_drill"]["result"]
    )


@pytest.mark.timeout(300)
def test_a_hole_that_decisions_explain_in_part_fails_the_drill(with_hole: Archive, scratch: Path) -> None:
    with closing(sqlite3.connect(with_hole.directory / "metadata.sqlite")) as database, database:
        assert database.execute("delete from skipped_offsets where first_offset = 664").rowcount == 1
    found = drilled(with_hole, "orders", 1)
    assert found["findings"] == ["orders-0: no copy has offsets 664..807"]
    assert [sentence.split(",")[0] for sentence in found["skipped"]] == ["orders-0: 476 offsets are skipped (188..663)"]


@pytest.mark.timeout(300)
def test_a_decision_does_not_explain_a_segment_that_the_database_serves(with_hole: Archive, scratch: Path) -> None:
    """Nor one that is stored and damaged."""
    with closing(sqlite3.connect(with_hole.directory / "metadata.sqlite")) as database, database:
        assert database.execute("update skipped_offsets set first_offset = 0 where first_offset = 188").rowcount == 1
    lost = next(row for row in with_hole.remote()[partition_0(with_hole)] if row.start_offset == 96)
    for path in (with_hole.directory / "store").rglob(f"*{lost.remote_log_segment_id.id}.*"):
        path.unlink()
    found = drilled(with_hole, "orders", 1)
    sentence = f"orders-0: offsets 96..187 of segment {lost.remote_log_segment_id.id} are not in the recovered log"
    assert sentence in found["findings"]


def partition_0(archive: Archive) -> TopicIdPartition:
    (partition,) = (each for each in archive.remote() if each.partition == 0)
    return partition


class Died(BaseException):
    """In place of a SIGKILL."""


@pytest.mark.timeout(300)
def test_a_copy_that_has_not_ended_is_no_finding(tmp_path: Path, scratch: Path) -> None:
    """Of a worker that was killed behind the log, or that goes on."""
    archive = Archive.of(tmp_path)

    def die(step: str, partition: TopicIdPartition, offset: int) -> None:
        if (step, partition.partition, offset) == (CopyStep.SENT, 0, 664):
            raise Died

    with open_app(settings_of(archive.config), observe=die) as app:
        app.copying.plan("killed")
        with pytest.raises(Died):
            app.copying.run_batch("killed", "killed/0")
    finished = {each.remote_log_segment_id.id for found in archive.remote().values() for each in found}
    (manifest,) = (
        path
        for path in (tmp_path / "store").rglob("*.rsm-manifest")
        if not any(str(each) in path.name for each in finished)
    )
    manifest.unlink()
    assert archive.command("verify").exit_code == 0
    found = drilled(archive, "orders", 0)
    assert (found["passed"], found["findings"]) == (True, [])


@pytest.mark.timeout(300)
def test_a_copy_of_a_broker_that_has_not_ended_is_no_finding(logs: WholeLogs, scratch: Path) -> None:
    """The database knows nothing of it yet."""
    partition = logs.partition("sensor-old")
    first = logs.app.adapters.stores.metadata.list_segments(partition)[-1].metadata
    (log,) = (logs.config.parent / "store").rglob(f"*{first.remote_log_segment_id.id}.log")
    begun = log.with_name(f"{first.end_offset + 1:020d}-{Uuid(bytes(range(16)))}.log")
    shutil.copy(log, begun)
    try:
        found = drilled(logs, "sensor-old", 0)
    finally:
        begun.unlink()
    assert (found["passed"], found["findings"]) == (True, [])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["before the verification", "before the restore", "during the restore"])
def test_what_expires_during_a_drill_is_no_finding(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    assert archive.command("verify").exit_code == 0
    archive.set(retention_bytes=60_000)
    verified, run = recovery._verified, RestoreService.run

    def verified_meanwhile(own: App) -> Any:
        if when == "before the verification":
            archive.expire()
        found = list(verified(own))
        if when == "before the restore":
            archive.expire()
        return found

    def run_meanwhile(*arguments: Any, **options: Any) -> RestoreReport:
        if when == "during the restore":
            archive.expire()
        return run(*arguments, **options)

    monkeypatch.setattr(recovery, "_verified", verified_meanwhile)
    monkeypatch.setattr(RestoreService, "run", run_meanwhile)
    found = drilled(archive, "orders", 0)
    assert (found["passed"], found["findings"]) == (True, [])
    left = archive.left()
    assert all(0 < len(left[number]) < len(EVERYTHING[number]) for number in EVERYTHING), left


def test_a_drill_that_cannot_be_done_does_not_keep_others_from_theirs(
    logs: WholeLogs, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one of a topic that is too large for the host."""

    def too_large(*_: Any) -> None:
        raise RehearsalSpaceError("it has 1 B free")

    monkeypatch.setattr(drill_steps, "_require_space", too_large)
    first = recovery.topic_that_waits(logs.app)
    assert first is not None
    with pytest.raises(RehearsalSpaceError):
        recovery.drill(logs.app, first, KafkaHome("4.3.1", "none"), author="test", say=lambda _: None)
    assert recovery.topic_that_waits(logs.app) not in (None, first)
    last = logs.app.operations.last_drill(first)
    assert last is not None
    assert last.detail == "could not be done: it has 1 B free"
    assert list(scratch.iterdir()) == []


@pytest.mark.timeout(300)
def test_the_broker_of_a_killed_drill_ends_with_it(logs: WholeLogs, scratch: Path) -> None:
    require_kafka()
    options = ["--config", str(logs.config), "drill", "orders", "--kafka-home", str(jars("4.3.1"))]
    with subprocess.Popen(
        [ROOT / "tiering", *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as drill:
        assert drill.stderr is not None
        said = next(line for line in drill.stderr if " runs at " in line)
        pid = int(said.rpartition("pid ")[2])
        assert is_alive(pid)
        drill.kill()
        drill.wait()
    assert drill.returncode == -signal.SIGKILL, "it died where planned, while its broker ran"
    eventually(lambda: not is_alive(pid), "the broker is gone")


def is_alive(pid: int) -> bool:
    """Whether a process runs, and is not one that ended and was not collected yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
