"""`./tiering ingest --follow` as a process: what comes later is applied, a signal ends it cleanly."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.settings import load_settings
from tests.doubles.broker_data import broker_data
from tests.doubles.follow_worker import AWAY, PARTITIONS
from tests.doubles.memory_metadata_topic import FileMetadataTopic, MemoryMetadataTopic
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.source_tree import ROOT
from tests.doubles.tiered_topic import replayed_caches, tiered_records

pytestmark = pytest.mark.integration

FIRST = 60
"""Records that are there when it begins."""


@dataclass
class Followed:
    """The process, what it reads from, and what it writes to. `stderr` is where it tells what it does."""

    process: subprocess.Popen[str]
    topic: FileMetadataTopic
    app: App
    stderr: Path

    def told(self, text: str) -> None:
        eventually(lambda: text in self.stderr.read_text(), f"{text!r} on standard error")

    def has_read(self, records: int) -> None:
        eventually(lambda: self._records() >= records, f"{records} records are read")
        assert self._records() == records

    def stopped_by(self, number: signal.Signals) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, output, self.stderr.read_text()

    def _records(self) -> int:
        return sum(position.next_offset for position in self.app.adapters.stores.ingestion.positions())


Follow = Callable[..., Followed]


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follow]:
    """Starts it with these options; the first records are in the topic."""
    variables = {
        "TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path}/remote",
        "TIERING_LOG_DIRS": f"5:{broker_data('tiered') / 'data-stopped'}",
        "TIERING_METADATA__URL": f"sqlite:///{tmp_path}/metadata.sqlite",
        "PYTHONPATH": str(ROOT),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "remote").mkdir()
    (tmp_path / "topic").mkdir()
    topic = FileMetadataTopic(tmp_path / "topic", PARTITIONS)
    append(topic, 0, FIRST)
    with open_app(load_settings()) as app, processes() as start:
        app.set_up.migrate()

        def started(*options: str) -> Followed:
            stderr = tmp_path / "stderr"
            return Followed(start(topic.directory, stderr, options), topic, app, stderr)

        yield started


@contextmanager
def processes() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Each is gone at the end."""
    running: list[subprocess.Popen[str]] = []

    def start(directory: Path, stderr: Path, options: tuple[str, ...]) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.doubles.follow_worker", str(directory), "--follow", *options]
        with stderr.open("w") as errors:
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
        running.append(process)
        return process

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.communicate()


def append(topic: FileMetadataTopic, first: int, end: int) -> None:
    for record in tiered_records()[first:end]:
        topic.append(record["metadata_partition"], bytes.fromhex(record["value_hex"]))


def test_what_comes_later_is_applied_and_sigterm_ends_it(follow: Follow) -> None:
    followed = follow("--poll-seconds", "0.1")
    followed.has_read(FIRST)
    records = len(tiered_records())
    append(followed.topic, FIRST, records)
    followed.has_read(records)
    code, output, errors = followed.stopped_by(signal.SIGTERM)
    assert (code, "Traceback" in errors) == (128 + signal.SIGTERM, False)
    assert "stopping cleanly" in errors
    assert "records of" in output
    caches = replayed_caches(copied(followed.topic))
    for partition, cache in caches.items():
        assert followed.app.adapters.stores.ingestion.broker_view(partition).cache == cache.state()


def test_ctrl_c_ends_a_wait_of_an_hour(follow: Follow) -> None:
    """It has said that it waits: what was read is told before."""
    followed = follow("--poll-seconds", "3600")
    followed.told(f"{FIRST} records of {PARTITIONS} partitions read")
    code, _, errors = followed.stopped_by(signal.SIGINT)
    assert (code, "Traceback" in errors) == (128 + signal.SIGINT, False)


def test_it_waits_for_brokers_that_do_not_answer(follow: Follow) -> None:
    followed = follow("--poll-seconds", "0.1")
    followed.has_read(FIRST)
    (followed.topic.directory / AWAY).touch()
    followed.told("will be tried again: no broker answers")
    append(followed.topic, FIRST, FIRST + 10)
    (followed.topic.directory / AWAY).unlink()
    followed.has_read(FIRST + 10)
    code, _, errors = followed.stopped_by(signal.SIGTERM)
    assert (code, "Traceback" in errors) == (128 + signal.SIGTERM, False)


def test_brokers_that_never_answered_end_it(follow: Follow, tmp_path: Path) -> None:
    (tmp_path / "topic" / AWAY).touch()
    followed = follow()
    followed.process.communicate(timeout=PATIENCE_SECONDS)
    assert followed.process.returncode == 3
    followed.told("error: no broker answers")


def copied(topic: FileMetadataTopic) -> MemoryMetadataTopic:
    copy = MemoryMetadataTopic(topic.partition_count())
    for number in range(topic.partition_count()):
        for record in topic.read(number, 0, end_offset=topic.offsets(number).end):
            copy.append(number, record.value)
    return copy
