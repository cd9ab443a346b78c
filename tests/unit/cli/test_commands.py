"""What each command asks of the library, shows, and ends with."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.copying.plan import HeldBack, HeldBackPartition
from include.tiering.database.event_log import Event
from include.tiering.errors import OffsetOutOfRangeError
from include.tiering.kafka.log_dirs.contract import ScanReport
from include.tiering.model.segments import Depth, TopicIdPartition, Uuid
from include.tiering.operations.checks import Check
from include.tiering.operations.doctor import Cause, Diagnosis
from include.tiering.operations.readiness import NotReady, PartitionReadiness
from include.tiering.reading.fetch import FetchedRecords, PartitionFetch
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.contract import BatchProgress, LeaseHolder, SegmentOutcome
from include.tiering.segments.failed_copies import FailedCopy
from include.tiering.verification.rules import QualityFinding
from include.tiering.verification.verify_segments import VerifyReport
from tests.doubles import sample_values as sample
from tests.doubles.fake_app import FakeApp, batch_result
from tests.doubles.segments import segment_of

Run = Callable[..., Result]
Document = Callable[..., Any]


def test_scan_asks_for_the_named_topics_and_shows_them(run: Run, app: FakeApp) -> None:
    result = run("scan", "--deep", "--topic", "orders", "--topic", "pay*")
    assert (result.exit_code, app.calls) == (0, [("scan", {"topics": ["orders", "pay*"], "deep": True})])
    assert "orders-0" in result.stdout
    assert "1 replica, 2 segments, 1 eligible (4.0 KiB), 0 errors" in result.stdout
    assert app.closed == 1


def test_scan_without_topics_asks_for_all(run: Run, app: FakeApp) -> None:
    run("scan")
    assert app.calls == [("scan", {"topics": None, "deep": False})]


def test_scan_with_an_unreadable_item_has_findings_and_still_shows_the_rest(
    document: Document, run: Run, app: FakeApp
) -> None:
    app.report = sample.scan_report(sample.SCAN_ERROR)
    assert run("scan", "--json").exit_code == 1
    shown = document("scan")
    assert (len(shown["partitions"]), shown["errors"][0]["position"]) == (1, 61)


def test_plan_stores_nothing(run: Run, app: FakeApp) -> None:
    result = run("plan", "--topic", "orders", "--limit-bytes", "4096")
    assert result.exit_code == 0
    assert app.calls == [("plan_copy", {"limit_bytes": 4096, "dry_run": True})]
    assert app.settings.topics.include == ("orders",)


@pytest.mark.parametrize("command", ["plan", "copy"])
def test_nothing_is_tiered_unless_asked_for(run: Run, app: FakeApp, command: str) -> None:
    result = run(command)
    assert (result.exit_code, app.calls) == (2, [])
    assert "no topic is named: use --topic" in result.stderr


@pytest.mark.parametrize("command", ["plan", "copy"])
def test_topics_may_come_from_the_settings(run: Run, app: FakeApp, command: str) -> None:
    assert run(command, TIERING_TOPICS__INCLUDE="orders").exit_code == 0
    assert app.settings.topics.include == ("orders",)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (HeldBack.STOPPED, 1),
        (HeldBack.HOLE, 1),
        (HeldBack.DIVERGENCE, 1),
        (HeldBack.BYTE_LIMIT, 0),
        (HeldBack.NOT_ELIGIBLE, 0),
        (HeldBack.NOT_OURS, 0),
    ],
)
def test_a_waiting_partition_is_a_finding_if_a_person_has_to_act(
    run: Run, app: FakeApp, reason: HeldBack, code: int
) -> None:
    waiting = HeldBackPartition(sample.ORDERS_1, 0, reason, "detail")
    app.plan = lambda run_id: sample.copy_plan(run_id, held_back=(waiting,))
    assert [run(command, "--topic", "*").exit_code for command in ("plan", "copy")] == [code, code]


def test_copy_runs_batches_until_one_ends_for_another_reason_than_its_time(document: Document, app: FakeApp) -> None:
    app.results = [batch_result(ended=BatchEnd.TIME_OVER, seconds=1.5), batch_result(seconds=0.5)]
    app.adapters.stores.work.run_items = [sample.work_item(SegmentOutcome.COPIED, 0, segment_id=sample.SEGMENT_ID_TEXT)]
    shown = document("copy", "--topic", "orders")
    run_id = shown["run_id"]
    assert app.calls[1:] == [("copy_batch", {"batch_id": f"{run_id}.{n}"}) for n in (0, 1)]
    assert (shown["bytes"], shown["seconds"]) == (1024, 2.0)
    assert shown["copied"] == [
        {
            **sample.LABELS,
            "start_offset": 0,
            "end_offset": 99,
            "bytes": 1024,
            "segment_id": sample.SEGMENT_ID_TEXT,
            "supersedes": None,
        }
    ]


def test_copy_with_nothing_to_do_starts_no_batch(run: Run, app: FakeApp) -> None:
    app.plan = lambda run_id: type(sample.copy_plan())(run_id, (), (), ())
    assert run("copy", "--topic", "orders").exit_code == 0
    assert [method for method, _ in app.calls] == ["plan_copy"]


@pytest.mark.parametrize(("retriable", "code"), [(True, 3), (False, 1)])
def test_copy_says_whether_trying_again_can_help(run: Run, app: FakeApp, retriable: bool, code: int) -> None:
    failed = sample.work_item(SegmentOutcome.FAILED, 0, error="RemoteStorageUnavailableError", message="503")
    app.adapters.stores.work.run_items = [sample.work_item(SegmentOutcome.PLANNED, 0)]
    app.results = [batch_result(failed, retriable=retriable)]
    assert run("copy", "--topic", "orders").exit_code == code


def test_work_that_another_batch_holds_is_left_and_said(run: Run, app: FakeApp, document: Document) -> None:
    """Two runs at once are no fault."""
    app.adapters.stores.work.run_items = [sample.work_item(SegmentOutcome.PLANNED, number) for number in (0, 100)]
    app.lease_holder = LeaseHolder("run-2", "batch-7", 1_700_000_000_000, 1_700_000_030_000, 1)
    result = run("copy", "--topic", "orders")
    assert result.exit_code == 0
    assert "2 still planned (2 held by another batch)" in result.output
    shown = document("copy", "--topic", "orders")
    assert {(one["reason"], one["reason_message"], one["detail"]) for one in shown["left"]} == {
        (
            "held",
            "another batch holds the partition",
            "batch-7 of run run-2, until 2023-11-14 22:13:50 UTC unless it renews",
        )
    }


def test_work_that_is_left_without_a_reason_is_a_finding(run: Run, app: FakeApp) -> None:
    app.adapters.stores.work.run_items = [sample.work_item(SegmentOutcome.PLANNED, number) for number in (0, 100)]
    result = run("copy", "--topic", "orders")
    assert result.exit_code == 1
    assert "0 failed, 2 still planned (2 without a reason)" in result.output
    assert "unexplained: no batch holds the partition" in " ".join(result.output.split())
    app.results = [batch_result(ended=BatchEnd.SURPLUS)]
    assert run("copy", "--topic", "orders").exit_code == 0


def test_copy_reports_a_failure_that_the_plan_may_take_up_again(document: Document, app: FakeApp) -> None:
    failed = sample.work_item(SegmentOutcome.FAILED, 0, error="RemoteStorageUnavailableError", message="503")
    app.adapters.stores.work.run_items = [
        sample.work_item(SegmentOutcome.PLANNED, 0),
        sample.work_item(SegmentOutcome.PLANNED, 100),
    ]
    app.results = [batch_result(failed, retriable=True)]
    shown = document("copy", "--topic", "orders")
    assert [(item["base_offset"], item["message"]) for item in shown["failed"]] == [(0, "503")]
    assert [item["start_offset"] for item in shown["left"]] == [100]


def test_a_damaged_source_is_a_finding_even_if_all_else_was_copied(run: Run, app: FakeApp) -> None:
    app.plan = lambda run_id: sample.copy_plan(run_id, errors=(sample.SCAN_ERROR,))
    assert run("copy", "--topic", "orders").exit_code == 1


def test_verify(run: Run, app: FakeApp) -> None:
    assert run("verify").exit_code == 0
    finding = QualityFinding(
        "orders", 0, sample.TOPIC_ID_TEXT, sample.SEGMENT_ID_TEXT, 100, "Q102", "object", "differs"
    )
    app.verified = VerifyReport(2, (finding,), (), 2048, 0.1)
    result = run("verify", "--run", "run-1")
    arguments = {"run_id": "run-1", "depth": Depth.SHALLOW, "confirm": None}
    assert (result.exit_code, app.calls[-1]) == (1, ("verify", arguments))
    assert "Q102" in result.stdout


def test_verify_of_a_topic_names_no_failed_segment_of_another(run: Run, app: FakeApp, document: Document) -> None:
    app.adapters.stores.failed_copies.copies = [
        FailedCopy(segment_of(partition, 1, 0, 99), "Q102") for partition in (sample.ORDERS_0, sample.ORDERS_1)
    ]
    asked = {
        "all": document("verify"),
        "topic": document("verify", "--topic", "ord*"),
        "partition": document("verify", "--topic", "orders", "--partition", "1"),
        "other": document("verify", "--topic", "payments"),
    }
    named = {how: [copy["partition"] for copy in shown["not_served"]] for how, shown in asked.items()}
    assert named == {"all": [0, 1], "topic": [0, 1], "partition": [1], "other": []}


def test_sizes_of_the_named_topics(document: Document, app: FakeApp) -> None:
    other = TopicIdPartition(Uuid(bytes([7] * 16)), 0, "payments")
    app.partition_sizes = [sample.partition_size(), sample.partition_size(other)]
    assert [p["topic"] for p in document("sizes")["partitions"]] == ["orders", "payments"]
    assert [p["topic"] for p in document("sizes", "--topic", "pay*")["partitions"]] == ["payments"]


def test_fetch_says_where_the_records_are(run: Run, app: FakeApp, tmp_path: Path) -> None:
    written = tmp_path / "orders-0" / "00000000000000000100.log"
    app.fetched = [sample.fetched(written)]
    result = run("fetch", "orders", "0", "--output", str(tmp_path))
    assert result.exit_code == 0
    assert app.calls[-1] == (
        "fetch_partition",
        {"partition": sample.ORDERS_0, "output_dir": tmp_path, "client": ""},
    )
    assert str(written) in result.stdout


def test_a_whole_partition_is_fetched_for_a_client(run: Run, app: FakeApp, tmp_path: Path) -> None:
    assert run("fetch", "orders", "0", "--output", str(tmp_path), "--client", "reports").exit_code == 0
    assert app.calls[-1][1]["client"] == "reports"


def test_fetch_of_a_segment_that_is_not_served_is_a_finding(run: Run, app: FakeApp, tmp_path: Path) -> None:
    app.fetched = [sample.fetched(None, "not served: its verdict is none")]
    result = run("fetch", "orders", "0", "--output", str(tmp_path))
    assert result.exit_code == 1
    assert "not served" in result.stdout


@pytest.mark.parametrize(
    ("topic", "partition", "said"),
    [
        ("orders", "7", "orders-7: nothing of it is in remote storage"),
        ("absent", "0", "there is no topic absent, in no log directory, nor in the cluster's metadata, the archive"),
    ],
)
def test_fetch_of_what_is_not_remote_says_so(run: Run, tmp_path: Path, topic: str, partition: str, said: str) -> None:
    result = run("fetch", topic, partition, "--output", str(tmp_path))
    assert result.exit_code == 2
    assert said in result.stderr


def test_fetch_of_a_recreated_topic_asks_which_one(run: Run, app: FakeApp, tmp_path: Path) -> None:
    again = TopicIdPartition(Uuid(bytes([7] * 16)), 0, "orders")
    app.partition_sizes = [sample.partition_size(), sample.partition_size(again)]
    arguments = ("fetch", "orders", "0", "--output", str(tmp_path))
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert f"{sample.TOPIC_ID_TEXT}, {again.topic_id}: choose one with --topic-id" in refused.stderr
    assert run(*arguments, "--topic-id", str(again.topic_id)).exit_code == 0
    assert app.calls[-1][1]["partition"].topic_id == again.topic_id


def test_fetch_from_an_offset_writes_the_batches(run: Run, document: Document, app: FakeApp, tmp_path: Path) -> None:
    app.answer = lambda fetch: FetchedRecords(fetch, 118, 131, bytearray(b"two batches"))
    options = ("--offset", "120", "--epoch", "3", "--max-bytes", "5000", "--client", "reports")
    arguments = ("fetch", "orders", "0", "--output", str(tmp_path), *options)
    written = tmp_path / "orders-0" / "00000000000000000118-00000000000000000130.batches"
    result = run(*arguments)
    assert (result.exit_code, written.read_bytes()) == (0, b"two batches")
    asked = PartitionFetch(sample.ORDERS_0, 120, 5000, 3)
    assert app.calls[-1] == ("fetch_records", {"fetches": [asked], "client": "reports"})
    shown = document(*arguments)
    assert (shown["base_offset"], shown["next_offset"], shown["bytes"]) == (118, 131, 11)
    assert (shown["path"], shown["throttle_ms"]) == (str(written), 0)


def test_fetch_that_met_an_exhausted_quota_is_worth_retrying(
    run: Run, document: Document, app: FakeApp, tmp_path: Path
) -> None:
    app.answer = lambda fetch: FetchedRecords.without_records(fetch, throttle_ms=1250)
    arguments = ("fetch", "orders", "0", "--output", str(tmp_path), "--offset", "120")
    result = run(*arguments)
    assert result.exit_code == 3
    assert "the fetch quota is exhausted: nothing was read, ask again in 1250 ms" in result.stdout
    shown = document(*arguments)
    assert (shown["throttle_ms"], shown["bytes"], shown["path"], shown["next_offset"]) == (1250, 0, None, 120)
    assert not list(tmp_path.iterdir())


def test_fetch_of_an_offset_that_nothing_holds_is_an_error(run: Run, app: FakeApp, tmp_path: Path) -> None:
    error = OffsetOutOfRangeError("orders-0: no segment in remote storage holds offset 9")
    app.answer = lambda fetch: FetchedRecords.without_records(fetch, error=error)
    result = run("fetch", "orders", "0", "--output", str(tmp_path), "--offset", "9")
    assert result.exit_code == 1
    assert str(error) in result.stderr


@pytest.mark.parametrize("option", [("--epoch", "1"), ("--max-bytes", "1")])
def test_options_of_a_fetch_from_an_offset_need_one(run: Run, tmp_path: Path, option: tuple[str, str]) -> None:
    result = run("fetch", "orders", "0", "--output", str(tmp_path), *option)
    assert result.exit_code == 2
    assert "need --offset" in result.stderr


def test_pause_and_resume(run: Run, app: FakeApp) -> None:
    assert run("pause").stdout == "all topics are paused\n"
    assert run("pause", "--topic", "orders").exit_code == 0
    assert run("resume").stdout == "paused: orders\n"
    assert run("resume", "--topic", "orders").stdout == "nothing is paused\n"
    assert all("@" in author for author in app.adapters.stores.work.authors)
    assert run("pause", "--topic", "a b").exit_code == 2


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([Check("schema", True, True, "")], 0),
        ([Check("storage", False, True, "503")], 3),
        ([Check("storage", False, True, "503"), Check("marker", False, False, "foreign")], 1),
        ([Check("log dirs", True, True, "one is missing", wrong=True)], 1),
        ([Check("schema", False, True, "no answer"), Check("log dirs", True, True, "one is missing", wrong=True)], 3),
    ],
)
def test_ready(run: Run, app: FakeApp, checks: list[Check], code: int) -> None:
    app.checks = checks
    assert run("ready").exit_code == code


@pytest.mark.parametrize(
    ("reasons", "code", "code_with_topic"),
    [
        ([None, None], 0, 0),
        ([None, NotReady.PAUSED], 0, 3),
        ([None, NotReady.STOPPED], 0, 1),
        ([NotReady.PAUSED, NotReady.NO_LEADER_REPLICA], 3, 3),
    ],
)
def test_ready_by_partition(
    run: Run, app: FakeApp, reasons: list[NotReady | None], code: int, code_with_topic: int
) -> None:
    app.partitions = [
        PartitionReadiness(TopicIdPartition(sample.TOPIC_ID, n, "orders"), reason) for n, reason in enumerate(reasons)
    ]
    assert run("ready").exit_code == code
    assert run("ready", "--topic", "orders").exit_code == code_with_topic
    assert app.calls[-1] == ("readiness", {"topics": ["orders"]})


def test_status_and_pools(document: Document, app: FakeApp) -> None:
    app.adapters.stores.work.reports = [
        BatchProgress("run-1", "run-1.0", "remote_log_copier", "h", 1, "orders-0", 10, 20, 5.0, False)
    ]
    asked = document("pools")["pools"]
    assert [(pool["slots"], pool["live_batches"]) for pool in asked] == [(2, ["run-1.0"]), (2, []), (2, [])]
    assert {pool["source"] for pool in asked} == {"Airflow pool"}
    shown = document("status", TIERING_CLUSTER__NAME="prod")
    assert [(pool["slots"], pool["live_batches"]) for pool in shown["pools"]] == [(2, ["run-1.0"]), (2, []), (2, [])]
    assert {pool["source"] for pool in shown["pools"]} == {"Airflow pool, as seen last"}
    assert {
        "name": "cluster.name",
        "value": "prod",
        "origin": "environment TIERING_CLUSTER__NAME",
        "dynamic": False,
    } in shown["settings"]


def test_a_pause_and_a_set_up_as_documents(run: Run, document: Document) -> None:
    assert document("pause", "--topic", "orders") == {"paused_topics": ["orders"], "not_claimed": None}
    assert document("pause")["paused_topics"] == ["*", "orders"]
    left = run("resume", "--json")
    assert (left.exit_code, json.loads(left.stdout)["paused_topics"]) == (1, ["orders"])
    assert document("resume", "--topic", "orders")["paused_topics"] == []
    assert document("migrate") == {"cluster_id": "cluster-1", "store_id": "store-1", "generation": 1}


def test_migrate(run: Run) -> None:
    assert run("migrate").stdout == "set up: cluster cluster-1, store store-1, generation 1\n"


def test_an_empty_scan_is_valid_json(document: Document, app: FakeApp) -> None:
    app.report = ScanReport(None, (), ())
    assert document("scan") == {"cluster_id": None, "partitions": [], "errors": []}


@pytest.mark.parametrize(("cause", "code"), [(Cause.UP_TO_DATE, 0), (Cause.OPEN_TRANSACTION, 1)])
def test_doctor(run: Run, document: Document, app: FakeApp, cause: Cause, code: int) -> None:
    partition = TopicIdPartition(sample.TOPIC_ID, 2, "orders")
    app.diagnoses = [Diagnosis("orders", partition, cause, "what was found", "what to do")]
    result = run("doctor", "orders")
    assert result.exit_code == code
    assert all(words in result.stdout for words in ("what was found", "what to do"))
    assert document("doctor", "orders") == {
        "topic": "orders",
        "tiers": code == 0,
        "partitions": [
            {
                **sample.LABELS,
                "partition": 2,
                "tiers": code == 0,
                "cause": cause.code,
                "cause_message": cause.message,
                "finding": "what was found",
                "advice": "what to do",
            }
        ],
        "last_drill": None,
    }


def test_doctor_shows_the_last_drill(run: Run, document: Document, app: FakeApp) -> None:
    app.diagnoses = [Diagnosis("orders", None, Cause.UP_TO_DATE, "all of it")]
    app.drill = Event(1_700_000_000_000, "recovery drill", "orders", "passed: 12 records equal", "ada")
    result = run("doctor", "orders")
    assert result.exit_code == 0
    assert "last recovery drill, 2023-11-14 22:13:20 UTC: passed: 12 records equal" in result.stdout
    assert document("doctor", "orders")["last_drill"] == {
        "at_ms": 1_700_000_000_000,
        "result": "passed: 12 records equal",
    }


def test_doctor_about_the_topic_as_a_whole_and_about_no_topic(run: Run, document: Document, app: FakeApp) -> None:
    app.diagnoses = [Diagnosis("orders", None, Cause.NOT_FOUND, "nothing of it")]
    shown = document("doctor", "orders")["partitions"][0]
    assert (shown["topic"], shown["topic_id"], shown["partition"]) == ("orders", None, None)
    assert run("doctor", "a b").exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("fetch", "orders", "0", "--output", "out", "--offset", str(2**63)),
        ("fetch", "orders", "0", "--output", "out", "--offset", "1", "--epoch", str(2**31)),
        ("fetch", "orders", str(2**31), "--output", "out"),
        ("verify", "--older-than-days", "1e308"),
        ("verify", "--partition", str(2**31)),
        ("skip", "orders", "--partition", str(2**31), "--reason", "lost"),
        ("skip", "orders", "--partition", "0", "--reason", "lost", "--follow-source-from", str(2**63)),
        ("delete-records", "orders", "--partition", "0", "--before-offset", str(2**63)),
        ("publish", "orders", "--partition", str(2**31)),
    ],
)
def test_a_number_that_nothing_can_hold_is_refused_by_its_name(
    run: Run, app: FakeApp, arguments: Sequence[str]
) -> None:
    result = run(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert "Invalid value for" in result.stderr
    assert app.calls == []


def test_status_shows_a_batch_of_a_command_with_its_rate_and_the_time_left(
    run: Run, app: FakeApp, document: Document
) -> None:
    app.adapters.stores.work.reports = [
        BatchProgress("run-1", "run-1.0", None, "host-a", 17, "orders-0", 2048, 10240, 1024.0, finished=False)
    ]
    shown = run("status").stdout
    assert "1 batch runs" in shown
    assert "run-1.0  host-a:17  orders-0" in shown
    assert [(batch["pool"], batch["seconds_left"]) for batch in document("status")["batches"]] == [(None, 8.0)]


def test_copy_without_a_terminal_says_at_once_what_it_does_and_that_it_is_paused(run: Run, app: FakeApp) -> None:
    app.adapters.stores.work.pause(None, author="me")
    assert (
        "copying (all topics are paused: ./tiering resume): 0 B of 5.0 KiB" in run("copy", "--topic", "orders").stderr
    )
