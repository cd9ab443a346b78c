"""The present state: what each number is, how many statements it takes, and which alert rules hold."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from sqlalchemy import Engine, event

from include.tiering.app.metrics import METRICS
from include.tiering.copying.metrics import HELD_BACK
from include.tiering.copying.plan import HeldBack
from include.tiering.copying.run_scope import RunScope
from include.tiering.database.metric_series import Above, Series, SeriesKey, SeriesSum
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.sizes import PriceTable
from include.tiering.operations.alarms import ALARM_LABELS, ALARMS_ABOVE, RULES, alarms, more_alarms
from include.tiering.operations.overview import (
    GAUGES,
    SUMS,
    AsOfRun,
    limits,
    overview_document,
    totals,
)
from include.tiering.operations.topic_list import GAUGES as LIST_GAUGES
from include.tiering.operations.topic_list import AskedPage
from include.tiering.operations.waiting import waiting, waiting_document
from include.tiering.quotas.contract import UNITS_PER_REQUEST, UNLIMITED, QuotaKind, QuotaLevel, QuotasInForce, Scope
from include.tiering.segments.failed_copies import FAILED_SEGMENTS
from include.tiering.segments.sizes_contract import ArchiveSize
from include.tiering.sizes.metrics import OUT_OF_SIGHT
from tests.doubles.archive import Archive
from tests.doubles.source_tree import ROOT

NOW_MS: Final = 1_700_000_000_000
COPY, FETCH, DELETE = QuotaKind.COPY, QuotaKind.FETCH, QuotaKind.DELETE


def series(metric: str, value: float, at_ms: int = NOW_MS, **labels: str) -> Series:
    return Series(SeriesKey(metric, tuple(sorted(labels.items()))), value, at_ms)


def gauges(*found: Series) -> Mapping[str, Sequence[Series]]:
    by_metric: dict[str, list[Series]] = {}
    for one in found:
        by_metric.setdefault(one.key.metric, []).append(one)
    return by_metric


def test_totals_name_the_oldest_time_of_what_runs_found() -> None:
    found = totals(
        ArchiveSize(2, 4, 350, 353),
        {
            "RemoteCopyLagBytes": SeriesSum(100, 70, NOW_MS - 5_000),
            "tiering_remote_copy_lag_seconds": SeriesSum(102, 90, NOW_MS),
        },
        gauges(
            series("tiering_verdict_bytes", 200, verdict="passed"),
            series("tiering_verdict_bytes", 150, verdict="none"),
            series("tiering_audit_findings", 2, kind="orphan"),
            series("tiering_audit_findings", 7_000_000, kind="old-version"),
            series("tiering_storage_cost_per_month", 1.5, currency="EUR"),
        ),
        PriceTable("EUR", gib_month=Decimal("0.02")),
    )
    assert (found.topics, found.segments, found.finished_bytes, found.stored_bytes) == (2, 4, 350, 353)
    assert (found.waiting_bytes.value, found.waiting_bytes.as_of_ms) == (100, NOW_MS - 5_000)
    assert (found.waiting_seconds.value, found.safe_bytes.value, found.judged_bytes.value) == (90, 200, 350)
    # What is normal in a bucket that keeps versions is no finding.
    assert (found.findings.value, found.cost, found.gib_month) == (2, ("EUR", 1.5), Decimal("0.02"))
    assert found.failed_segments.as_of_ms is None


def test_a_cost_of_an_earlier_currency_is_not_shown_at_the_price_of_the_present_one() -> None:
    cost = gauges(series("tiering_storage_cost_per_month", 1.5, currency="USD"))
    found = totals(ArchiveSize(0, 0, 0, 0), {}, cost, PriceTable("EUR", gib_month=Decimal("0.02")))
    assert (found.cost, found.gib_month) == (("USD", 1.5), None)
    assert found.findings == AsOfRun(0, None)


def minutes(*found: tuple[str, float, dict[str, str]]) -> dict[SeriesKey, dict[int, float]]:
    return {SeriesKey(metric, tuple(sorted(labels.items()))): {7: value} for metric, value, labels in found}


def quotas(*found: tuple[Scope, int]) -> QuotasInForce:
    return QuotasInForce(1, dict(found))


GRANTED = "tiering_quota_granted_bytes"
WAITED = "tiering_quota_throttled_seconds"


@pytest.mark.parametrize(
    ("granted", "waited", "limiting"),
    [
        ({"orders": 6_000.0}, 3.0, ["total"]),
        ({"orders": 3_000.0}, 3.0, ["topic"]),
        ({"orders": 1_200.0, "pay": 600.0}, 3.0, ["broker"]),
        ({"orders": 6_000.0}, 0.0, []),
    ],
)
def test_the_quota_in_use_limits_while_streams_wait(
    granted: dict[str, float], waited: float, limiting: list[str]
) -> None:
    found = limits(
        quotas(
            (Scope(COPY, QuotaLevel.TOTAL), 100),
            (Scope(COPY, QuotaLevel.BROKER), 80),
            (Scope(COPY, QuotaLevel.TOPIC, "orders"), 50 if granted["orders"] < 6_000 else 1_000),
            (Scope(COPY, QuotaLevel.TOPIC), UNLIMITED),
        ),
        minutes(
            *((GRANTED, value, {"kind": "copy", "topic": name}) for name, value in granted.items()),
            (WAITED, waited, {"kind": "copy", "topic": "orders"}),
        ),
        7,
    )
    assert [limit.scope.level for limit in found] == ["total", "broker", "topic"]
    assert [limit.scope.level for limit in found if limit.limits] == limiting
    assert found[0].rate == sum(granted.values()) / 60
    assert found[1].rate is None


def test_requests_are_requests() -> None:
    (found,) = limits(
        quotas((Scope(DELETE, QuotaLevel.TOTAL), 5 * UNITS_PER_REQUEST)), minutes(("RemoteDeleteRequests", 1, {})), 7
    )
    assert found.per_second == 5
    assert found.rate == 0


def test_what_waits_is_counted_by_reason_with_the_words_of_doctor() -> None:
    name = "tiering_copy_held_back_partitions"
    first, second, unknown = waiting(
        [
            series(name, 1, topic="pay", reason="above-last-stable-offset"),
            series(name, 3, NOW_MS - 9, topic="orders", reason="above-last-stable-offset"),
            series(name, 2, topic="audit", reason="hole"),
            series(name, 1, topic="x", reason="of-a-later-version"),
        ]
    )
    assert (first.reason, first.partitions, first.topics) == (
        IneligibleReason.ABOVE_LAST_STABLE_OFFSET,
        4,
        ("orders", "pay"),
    )
    assert first.as_of_ms == NOW_MS - 9
    assert (second.reason, second.topics) == (HeldBack.HOLE, ("audit",))
    assert (unknown.reason, unknown.code) == (None, "of-a-later-version")


def test_a_plan_of_all_topics_says_what_waits_and_one_of_some_does_not(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    for replica in archive.brokers.rglob("orders-1/00000000000000000536.log"):
        content = bytearray(replica.read_bytes())
        content[len(content) // 2] ^= 1
        replica.chmod(0o600)
        replica.write_bytes(content)
    archive.copy()
    with archive.open() as app:
        assert app.operations.overview.now().waiting == ()
    archive.raise_broker_log_start(1, 716)
    for scope in (RunScope(), RunScope(("nothing",))):
        with archive.open() as app:
            app.copying.plan(f"plan of {scope.topics}", scope=scope)
        with archive.open() as app:
            (found,) = app.operations.overview.now().waiting
        assert (found.reason, found.partitions, found.topics) == (HeldBack.HOLE, 1, ("orders",))


def test_each_metric_that_is_named_by_its_text_exists() -> None:
    assert {*GAUGES, *SUMS, *LIST_GAUGES} <= {metric.name for metric in METRICS}


_ALERTS: Final[dict[str, dict[str, Any]]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((ROOT / "monitoring" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alert)
def test_a_rule_is_that_of_prometheus(rule: Any) -> None:
    alert = _ALERTS[rule.alert]
    condition = alert["expr"].partition(" or ")[0].strip()
    label = "" if rule.label is None else f'{{{rule.label[0]}="{rule.label[1]}"}}'
    found = re.fullmatch(r"(time\(\) - )?([\w]+(?:\{.*?\})?) > ([0-9* ]+)", condition)
    assert found is not None
    assert found[2] == rule.metric + label
    assert bool(found[1]) is rule.is_time
    factors = [float(number) for number in found[3].split("*")]
    assert rule.above == (factors[0] * factors[1] if len(factors) > 1 else factors[0])
    assert alert["labels"]["severity"] == rule.severity
    assert alert["annotations"]["runbook"] == f"docs/runbook.md#{rule.runbook}"


def test_alarms_hold_above_their_value_and_critical_ones_come_first() -> None:
    state = gauges(
        series("tiering_last_run_timestamp_seconds", NOW_MS / 1000 - 3 * 3600 - 1, kind="copy"),
        series("tiering_last_run_timestamp_seconds", NOW_MS / 1000 - 3 * 3600, kind="sizes"),
        series("tiering_remote_copy_lag_seconds", 3_601, topic="{subject}<b>"),
        series("tiering_failed_segments", 2, topic="orders"),
        series("tiering_failed_segments", 0, topic="pay"),
        series("tiering_lost_offsets", 7, topic="orders", decided="yes"),
    )
    assert [(alarm.rule.alert, alarm.subject) for alarm in alarms(state, NOW_MS)] == [
        ("TieringFailedSegments", "orders"),
        ("TieringNoCopy", None),
        ("TieringCopyLagOld", "{subject}<b>"),
    ]
    assert alarms(state, NOW_MS)[0].sentence.startswith("2 segments of orders failed")
    assert "{subject}<b>" in alarms(state, NOW_MS)[2].sentence
    assert alarms({}, NOW_MS) == ()


def test_a_metric_whose_series_are_no_times_has_one_rule() -> None:
    """Otherwise the number of its series above a value would not be the number of alarms of a rule."""
    metrics = [rule.metric for rule in RULES if not rule.is_time]
    assert len(metrics) == len(set(metrics))
    assert {metric: ALARMS_ABOVE[metric] for metric in metrics} == {
        rule.metric: rule.above for rule in RULES if not rule.is_time
    }
    assert {rule.metric: rule.label for rule in RULES if rule.label and not rule.is_time} == ALARM_LABELS


def test_series_beyond_those_that_were_read_are_counted() -> None:
    failed = [series("tiering_failed_segments", 2, topic="orders")]
    runs = [series("tiering_last_run_timestamp_seconds", 0, kind="copy")]
    found = {
        "tiering_failed_segments": Above(failed, 5),
        "tiering_last_run_timestamp_seconds": Above(runs, 9),
        "tiering_lost_offsets": Above([], 0),
    }
    assert more_alarms(found) == {"TieringFailedSegments": 4}


def test_of_many_subjects_those_with_the_highest_values_become_alarms(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    with archive.open() as app:
        recorder = app.adapters.recorder
        for number in range(25):
            recorder.set(FAILED_SEGMENTS, number, f"topic-{number}")
    with archive.open() as app:
        overview = app.operations.overview.now()
    failed = [alarm.subject for alarm in overview.alarms if alarm.rule.alert == "TieringFailedSegments"]
    assert failed == [f"topic-{number}" for number in range(24, 4, -1)]
    assert (overview.more_alarms, overview.alarms_in_all) == ({"TieringFailedSegments": 4}, 24)


def test_the_first_line_says_of_how_many_partitions_nobody_knows_what_waits(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    sized(archive)
    with archive.open() as app:
        assert app.operations.overview.now().totals.unmeasured_partitions == 0
        recorder = app.adapters.recorder
        recorder.set(HELD_BACK, 1, "payments", "above-last-stable-offset")
        recorder.set(HELD_BACK, 1, "orders", "hole")
        recorder.set(OUT_OF_SIGHT, 2, "clicks")
    with archive.open() as app:
        document = overview_document(app.operations.overview.now())
        backfill = app.operations.backfill.of()
    assert document["totals"]["unmeasured_partitions"] == 3
    assert backfill.unmeasured == {"clicks": 2, "payments": 1}


def sized(archive: Archive) -> None:
    """Run a size run; its metrics are written when the app is closed."""
    with archive.open() as app:
        app.sizes.report()


def test_a_log_directory_whose_disk_is_gone_is_named_and_its_mount_point_has_no_free_bytes(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    there, gone = archive.brokers / "broker-1", archive.brokers / "broker-2"
    sized(archive)
    with archive.open() as app:
        assert app.operations.overview.now().unreadable == ()
        before = app.operations.backfill.of().disks
        assert [disk.path for disk in before] == [str(there), str(gone)]
    gone.rename(tmp_path / "unmounted")
    gone.mkdir()
    sized(archive)
    with archive.open() as app:
        overview, disks = app.operations.overview.now(), app.operations.backfill.of().disks
    (unreadable,) = overview_document(overview)["unreadable_log_dirs"]
    assert (unreadable["broker_id"], unreadable["log_dir"]) == (2, str(gone))
    assert disks[1] == before[1], "what was read last"
    assert disks[0].as_of_ms > before[0].as_of_ms


def test_a_topic_that_was_planned_and_never_copied_is_listed_with_what_waits(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    with archive.open() as app:
        app.copying.plan("run")
    sized(archive)
    with archive.open() as app:
        (listed,) = app.operations.topic_list.page(AskedPage()).topics
        details = app.operations.topic_details.of("orders")
        assert app.operations.overview.now().totals.topics == 0
    assert (listed.total.topic, listed.total.segments, listed.total.partitions) == ("orders", 0, 0)
    assert listed.waiting_bytes
    assert (details.listed, details.partitions) == ((listed,), ())


def test_an_open_transaction_is_named_as_such_with_the_command_that_finds_its_producer() -> None:
    (found,) = waiting([series(HELD_BACK.name, 1, topic="payments", reason="above-last-stable-offset")])
    document = waiting_document(found)
    assert "transaction" in (document["reason_message"] or "")
    assert document["advice"].startswith("./tiering doctor payments")


def statements_of(work: Any) -> list[str]:
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return seen


def test_each_part_of_the_page_takes_at_most_ten_statements(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    with archive.open() as app:
        app.sizes.report()
    with archive.open() as app:
        operations = app.operations
        parts: tuple[Any, ...] = (
            operations.overview.now,
            lambda: operations.throughput.last_hours(6),
            operations.topic_list.all,
            lambda: operations.topic_list.page(AskedPage()),
            lambda: operations.topic_details.of("orders"),
        )
        for part in parts:
            seen = statements_of(part)
            assert 0 < len(seen) <= 10, seen
            reads = [statement for statement in seen if re.search(r"\bFROM segments\b", statement)]
            # Failed segments are read by the index of verdicts; no others are.
            assert all("verdict" in statement.partition("WHERE")[2] for statement in reads)


def test_the_overview_has_the_numbers_of_the_commands(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    with archive.open() as app:
        report = app.sizes.report()
        app.verification.publish_verdicts()
    with archive.open() as app:
        overview, listed = app.operations.overview.now(), app.operations.topic_list.all()
    assert overview.totals.finished_bytes == sum(size.size_bytes for size in report.sizes) > 0
    assert overview.totals.segments == sum(size.segments for size in report.sizes)
    assert overview.totals.stored_bytes == sum(report.stored.values())
    assert overview.totals.judged_bytes.value == overview.totals.finished_bytes
    assert report.tiers is not None
    assert overview.totals.waiting_bytes.value == sum(lag.size_bytes for lag in report.tiers.copy_lags)
    assert [(one.total.topic, one.total.partitions) for one in listed] == [("orders", 2)]
    assert listed[0].total.finished_bytes == overview.totals.finished_bytes
