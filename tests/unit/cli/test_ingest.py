"""Commands that ingest and verify."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from include.tiering.cli.app import cli
from include.tiering.cli.command import Session, author
from include.tiering.errors import MetadataTopicReplacedError, MetadataTopicUnavailableError
from include.tiering.metadata_sync.ingest import IngestedPartition, IngestReport
from include.tiering.model.segments import Depth, Uuid
from include.tiering.segments.ingestion_contract import MetadataTopicIdentity
from include.tiering.verification.plan import RollingSample, VerificationSample
from include.tiering.verification.rules import QualityFinding
from include.tiering.verification.verify_partitions import PartitionReport
from tests.doubles import sample_values as sample
from tests.doubles.fake_app import FakeApp
from tests.doubles.manual_clock import ManualClock

# `./tiering ingest --follow` over canned rounds: what ends it, and what does not.

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
    assert "will be tried again: no broker answers" in done.stderr
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


# What `verify` chooses, says before it begins, and ends with.

Run = Callable[..., Result]
Document = Callable[..., Any]


def asked_for(app: FakeApp) -> tuple[VerificationSample, dict[str, Any]]:
    _, arguments = next(call for call in app.calls if call[0] == "plan_verification")
    return arguments["sample"], {key: value for key, value in arguments.items() if key != "sample"}


def test_verify_takes_what_needs_a_verdict_and_says_the_cost_before(run: Run, app: FakeApp) -> None:
    result = run("verify")
    assert result.exit_code == 0
    assert asked_for(app) == (
        VerificationSample(due=True),
        {"depth": Depth.SHALLOW, "limit_bytes": None, "dry_run": False},
    )
    assert [name for name, _ in app.calls] == [
        "plan_verification",
        "verify_planned",
        "verify_partitions",
        "publish_verdicts",
    ]
    assert "2 of 40 segments, shallow: about 3.0 KiB in 36 requests, 1m 30s at the fetch quota" in result.stderr


def test_verify_with_a_sample(run: Run, app: FakeApp) -> None:
    flags = "--depth deep --share 0.25 --failed --older-than-days 1.5 --topic pay* --partition 3 --partition 4"
    assert run("verify", *flags.split(), "--limit-bytes", "9").exit_code == 0
    chosen, arguments = asked_for(app)
    assert arguments == {"depth": Depth.DEEP, "limit_bytes": 9, "dry_run": False}
    assert chosen == VerificationSample(
        failed=True,
        older_than_ms=129_600_000,
        rolling_sample=RollingSample.of(0.25, 0),
        topics=("pay*",),
        partitions=frozenset({3, 4}),
    )


def test_verify_dry_run_reads_nothing(document: Document, app: FakeApp) -> None:
    shown = document("verify", "--all", "--dry-run")
    assert [name for name, _ in app.calls] == ["plan_verification"]
    assert asked_for(app)[0] == VerificationSample(everything=True)
    assert (shown["segments"], shown["bytes"], shown["requests"], shown["seconds"]) == (2, 3_072, 36, 90.0)
    assert shown["reasons"] == [{"reason": "asked", "reason_message": "requested", "segments": 2}]
    assert shown["topics"] == [{"topic": "orders", "segments": 2, "bytes": 3_072}]


@pytest.mark.parametrize(
    "flags", [["--all"], ["--topic", "t"], ["--limit-bytes", "1"], ["--dry-run"], ["--share", "0"]]
)
def test_verify_takes_a_run_or_a_sample(run: Run, app: FakeApp, flags: list[str]) -> None:
    assert run("verify", "--run", "run-1", *flags).exit_code == 2
    assert app.calls == []


def test_a_hole_in_a_partition_is_a_finding(run: Run, app: FakeApp) -> None:
    finding = QualityFinding("orders", 0, sample.TOPIC_ID_TEXT, sample.SEGMENT_ID_TEXT, 100, "Q401", "partition", "gap")
    app.verified_partitions = PartitionReport(1, (finding,), ())
    result = run("verify")
    assert result.exit_code == 1
    assert "Q401" in result.stdout


def test_verify_tells_of_the_limit(run: Run, app: FakeApp) -> None:
    app.planned_verification = lambda run_id: replace(sample.verification_plan(run_id), left_out=7)
    assert "7 segments beyond the limit wait for the next run" in run("verify", "--limit-bytes", "1").stderr


def test_missing_segments_are_taken_for_lost_if_a_person_says_so(run: Run, app: FakeApp) -> None:
    refused = run("verify", "--missing-is-real")
    assert refused.exit_code == 1
    assert "note_confirmed_losses" not in [name for name, _ in app.calls]
    app.calls.clear()
    assert run("verify", "--missing-is-real", "--approve").exit_code == 0
    noted = dict(app.calls)["note_confirmed_losses"]
    assert noted == {"found": "8 of 9 segments are not in the store", "author": author()}
    assert run("verify", "--approve").exit_code == 2
