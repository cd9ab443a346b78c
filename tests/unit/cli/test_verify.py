"""What `verify` chooses, says before it begins, and ends with."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import Result

from include.tiering.cli.command import author
from include.tiering.model.segments import Depth
from include.tiering.verification.plan import RollingSample, VerificationSample
from include.tiering.verification.rules import QualityFinding
from include.tiering.verification.verify_partitions import PartitionReport
from tests.doubles import sample_values as sample
from tests.doubles.fake_app import FakeApp

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
    assert shown["reasons"] == [{"reason": "asked", "reason_message": "asked for", "segments": 2}]
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
