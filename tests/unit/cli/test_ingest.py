"""`./tiering ingest --follow` over canned rounds: what ends it, and what does not."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from include.tiering.cli.app import cli
from include.tiering.cli.command import Session
from include.tiering.errors import MetadataTopicReplacedError, MetadataTopicUnavailableError
from include.tiering.metadata_sync.ingest import IngestedPartition, IngestReport
from include.tiering.model.segments import Uuid
from include.tiering.segments.ingestion_contract import MetadataTopicIdentity
from tests.doubles.manual_clock import ManualClock

TOPIC = MetadataTopicIdentity(Uuid(bytes(15) + b"\x07"), 1)


def read(records: int) -> IngestReport:
    return IngestReport(TOPIC, (IngestedPartition(0, 0, records, records, records, 0, False, {}),), (), ())


def interrupt() -> None:
    """The command remembers it; without one it would end the test run."""
    assert callable(signal.getsignal(signal.SIGTERM))
    os.kill(os.getpid(), signal.SIGTERM)


class InterruptedClock(ManualClock):
    """A signal comes when it has slept for so long."""

    seconds_left = 3.0

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.seconds_left -= seconds
        if self.seconds_left < 0:
            self.seconds_left = 1e9
            interrupt()


@dataclass
class Reading:
    """Each round is the next of `rounds`; one that is an error is raised."""

    rounds: list[Any]
    clock: ManualClock = field(default_factory=InterruptedClock)
    in_a_page: Callable[[], None] = lambda: None

    @property
    def ingestion(self) -> "Reading":
        return self

    @property
    def adapters(self) -> "Reading":
        return self

    def run(self, *, author: str, on_progress: Callable[[int, int, int], None]) -> IngestReport:
        report = self.rounds.pop(0) if self.rounds else read(0)
        if isinstance(report, Exception):
            raise report
        self.in_a_page()
        on_progress(0, 1, 2)
        return report

    def follow(self, *options: str) -> Result:
        @contextmanager
        def opened(_settings: Any) -> Iterator[Any]:
            yield self

        session = Session(open_app=opened)
        return CliRunner().invoke(cli, ["ingest", "--follow", *options], obj=session, prog_name="./tiering")


def test_a_signal_ends_the_wait_and_the_last_round_is_shown() -> None:
    reading = Reading([read(5), read(7)])
    before = reading.clock.monotonic()
    done = reading.follow("--poll-seconds", "2")
    assert done.exit_code == 128 + signal.SIGTERM
    assert "5 records of 1 partition read" in done.stderr
    assert "7 records of 1 partition read" in done.stdout
    assert reading.clock.monotonic() - before < 4
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("follow", ["--follow", "--once"])
def test_a_signal_ends_a_long_round_behind_a_page(follow: str) -> None:
    done = Reading([read(5)], in_a_page=interrupt).follow(follow)
    assert done.exit_code == 128 + signal.SIGTERM
    assert done.stdout == ""


def test_what_passes_by_itself_is_told_and_tried_again() -> None:
    reading = Reading([read(5), MetadataTopicUnavailableError("no broker answers"), read(7)])
    done = reading.follow("--poll-seconds", "1")
    assert done.exit_code == 128 + signal.SIGTERM
    assert "it will be tried again: no broker answers" in done.stderr
    assert "7 records of 1 partition read" in done.stderr
    assert done.stderr.count("5 records") == 1


@pytest.mark.parametrize(
    ("rounds", "code"),
    [
        ([read(5), MetadataTopicReplacedError("another topic")], 1),
        ([MetadataTopicUnavailableError("no broker answers")], 3),
    ],
    ids=["a person is needed", "it never began"],
)
def test_what_ends_it_by_itself(rounds: list[Any], code: int) -> None:
    told = str(rounds[-1])
    done = Reading(rounds).follow("--poll-seconds", "1")
    assert (done.exit_code, f"error: {told}" in done.stderr) == (code, True)
