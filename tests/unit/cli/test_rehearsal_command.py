"""`./tiering handover --rehearse` around a rehearsal whose end is given."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from include.tiering.broker_process.kafka_home import KafkaHome
from include.tiering.broker_process.sample import sample_of
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import KafkaMissingError, RehearsalSpaceError
from include.tiering.handover.contract import Handover, LocalRetention
from include.tiering.handover.rehearsal import Comparison, Rehearsal, RehearsedPartition
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.model.segments import Uuid
from tests.doubles.segments import ORDERS, replica

SAMPLE = sample_of(replica([100, 200, 300], epochs=((0, 0), (4, 12))), 1_000)
HANDED_OVER = Handover(
    handover_id=Uuid(b"handover-of-test"),
    topic_id=ORDERS,
    topic="orders",
    wanted=LocalRetention(local_retention_bytes=1),
    step=HandoverStep.LOCAL_RETENTION,
    state=HandoverState.DONE,
    detail="the brokers copy, expire and serve the topic",
    plan_hash="a" * 64,
    author="test",
)
EQUAL = RehearsedPartition(SAMPLE, 0, 20, Comparison(30), Comparison(25))
DONE = Rehearsal("orders", "4.3.1", (SAMPLE,), HANDED_OVER, (), (), (), (EQUAL,), ())


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`ends(rehearsal)`, or an error: what the rehearsal comes to; the keywords of its call are what this gives."""
    called: dict[str, Any] = {}

    def as_given(outcome: Rehearsal | BaseException) -> dict[str, Any]:
        def rehearse(app: object, topic: str, kafka: KafkaHome, watcher: Any, **keywords: Any) -> Rehearsal:
            called.update(keywords, topic=topic, kafka=kafka)
            watcher.on_message("told")
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        monkeypatch.setattr("include.tiering.app.rehearse.rehearse", rehearse)
        monkeypatch.setattr("include.tiering.broker_process.kafka_home.java", lambda: "/bin/java")
        monkeypatch.setattr(
            "include.tiering.broker_process.kafka_home.kafka_by_maven", lambda _: KafkaHome("4.3.1", "jars")
        )
        return called

    return as_given


def test_what_was_equal_is_done(run, ends) -> None:
    called = ends(DONE)
    result = run("handover", "orders", "--rehearse", KAFKA_HOME="")
    assert result.exit_code == ExitCode.DONE
    assert "    told" in result.stderr
    (row,) = [line for line in result.stdout.splitlines() if line.startswith("orders-0  ")]
    assert row.split() == ["orders-0", "0..29", "600", "2", "0..19", "30", "25", "equal"]
    assert (
        "1 partition with 600 B rehearsed on a throw-away broker of Kafka 4.3.1: 30 records equal before and after"
        in result.stdout
    )
    assert called == {"topic": "orders", "kafka": KafkaHome("4.3.1", "jars"), "max_bytes": 1 << 30, "keep": False}


def test_the_document_names_what_was_rehearsed(document, ends) -> None:
    called = ends(replace(DONE, kept=Path("/scratch/kept")))
    shown = document("handover", "orders", "--rehearse", "--rehearse-bytes", "500", "--keep", KAFKA_HOME="")
    assert (shown["equal"], shown["bytes"], shown["kafka_version"], shown["kept"]) == (
        True,
        600,
        "4.3.1",
        "/scratch/kept",
    )
    assert shown["handover"]["state"] == "done"
    assert shown["samples"][0]["leader_epochs"] == [[0, 0], [4, 12]]
    assert shown["partitions"][0]["read_committed"] == {"records": 25, "differences": []}
    assert (called["max_bytes"], called["keep"]) == (500, True)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (
            {"plain": Comparison(29, ("offsets 0..9: 10 records before, 9 afterwards, not equal",))},
            "plain consumer, off",
        ),
        ({"committed": Comparison(25, ("offsets 0..9: not equal",))}, "read_committed consumer, offsets 0..9"),
        ({"lost": ("offsets 0..9: gone, the log start is 10",)}, "offsets 0..9: gone"),
    ],
)
def test_whatever_is_not_equal_is_a_finding(run, ends, found: dict[str, Any], says: str) -> None:
    ends(replace(DONE, partitions=(replace(EQUAL, **found),)))
    result = run("handover", "orders", "--rehearse", KAFKA_HOME="")
    assert result.exit_code == ExitCode.FINDINGS
    assert says in result.stdout
    assert "NOT EQUAL before and after: do not hand it over" in result.stdout


def test_what_was_copied_twice_is_a_finding_though_the_records_are_equal(run, ends) -> None:
    ends(replace(DONE, partitions=(replace(EQUAL, copied_twice=(10,)),)))
    result = run("handover", "orders", "--rehearse", KAFKA_HOME="")
    assert result.exit_code == ExitCode.FINDINGS
    assert "the segment at offset 10 is in the store more than once" in result.stdout
    assert "segments of 1 partition were copied twice: do not hand it over" in result.stdout
    assert "NOT EQUAL" not in result.stdout


def test_a_hand_over_that_stopped_says_where_and_what_the_broker_said(run, ends) -> None:
    stopped = replace(
        HANDED_OVER, state=HandoverState.STOPPED, step=HandoverStep.QUALITY_CHECK, detail="a rule is broken"
    )
    ends(replace(DONE, handover=stopped, partitions=(), broker_errors=("[10:00] ERROR disk",)))
    result = run("handover", "orders", "--rehearse", KAFKA_HOME="")
    assert result.exit_code == ExitCode.FINDINGS
    assert "is stopped at gate: a rule is broken" in result.stdout
    assert "[10:00] ERROR disk" in result.stdout


@pytest.mark.parametrize("error", [KafkaMissingError("no jars"), RehearsalSpaceError("no room")])
def test_what_is_missing_is_one_sentence(run, ends, error: Exception) -> None:
    ends(error)
    result = run("handover", "orders", "--rehearse", KAFKA_HOME="")
    assert (result.exit_code, result.stdout) == (ExitCode.FINDINGS, "")
    assert f"error: {error}" in result.stderr


def test_a_kafka_home_without_jars_is_named(run, ends, tmp_path: Path) -> None:
    ends(DONE)
    result = run("handover", "orders", "--rehearse", KAFKA_HOME=str(tmp_path))
    assert result.exit_code == ExitCode.FINDINGS
    assert f"{tmp_path} holds no broker" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--rehearse", "--dry-run"), "--dry-run and --rehearse exclude each other"),
        (("--rehearse", "--approve"), "--rehearse does not ask"),
        (("--rehearse", "--local-retention-bytes", "1"), "lowers local retention"),
        (("--dry-run", "--keep"), "--keep belongs to --rehearse"),
    ],
)
def test_options_that_do_not_go_together_are_refused(run, arguments: tuple[str, ...], says: str) -> None:
    result = run("handover", "orders", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert says in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_the_shells_code(run, monkeypatch, ends, number: signal.Signals) -> None:
    ends(DONE)
    cleaned_up: list[str] = []

    def rehearse(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)
            cleaned_up.append("broker")

    monkeypatch.setattr("include.tiering.app.rehearse.rehearse", rehearse)
    before = signal.getsignal(number)
    result = run("handover", "orders", "--rehearse", KAFKA_HOME="")
    assert result.exit_code == 128 + number
    assert cleaned_up == ["broker"]
    assert "stopped: the throw-away broker was ended, its files were removed" in result.stderr
    assert signal.getsignal(number) is before
