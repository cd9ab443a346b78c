"""The rules of `monitoring/alerts.yaml` that the latest values of metrics decide, evaluated without Prometheus.

A rule holds here as soon as its condition does: the time for which an alert waits (`for`) does not count. Rules that
compare with earlier values, and those about a missing endpoint or a kind of run that never took place, are left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypedDict

from include.tiering.database.metric_series import Above, Series
from include.tiering.telemetry.metrics import LAST_RUN, RunKind
from include.tiering.units import format_duration

_HOUR: Final = 3_600.0
_DAY: Final = 24 * _HOUR


class AlarmSeverity(StrEnum):
    """As in the alert rules."""

    WARNING = "warning"
    CRITICAL = "critical"


def runbook_entry(anchor: str) -> str:
    """Return the address of an entry of the runbook."""
    return f"docs/runbook.md#{anchor}"


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """A condition on each series of a metric.

    Attributes:
        alert: the name of the alert rule.
        metric: the name of a gauge.
        above: the value above which the rule holds; with `is_time`, the age in seconds above which it holds.
        sentence: what is wrong. `{subject}` stands for the value of the series' other label than `label`, `{value}` for
            the value of the series; with `is_time`, `{value}` stands for its age.
        runbook: the entry of docs/runbook.md, by its anchor.
        label: a label and its value that the series must have; None for all series of the metric.
        is_time: whether the gauge is a time in seconds since 1970. Then its age counts, which is shown as a duration.
        is_duration: whether the value is a number of seconds, which is shown as a duration.
    """

    alert: str
    metric: str
    above: float
    severity: AlarmSeverity
    sentence: str
    runbook: str
    label: tuple[str, str] | None = None
    is_time: bool = False
    is_duration: bool = False


def _no_run(alert: str, kind: RunKind, hours: int, sentence: str, runbook: str) -> AlarmRule:
    return AlarmRule(
        alert,
        LAST_RUN.name,
        hours * _HOUR,
        AlarmSeverity.WARNING,
        sentence,
        runbook,
        label=("kind", kind.value),
        is_time=True,
    )


_NO_RUN: Final = "a-kind-of-run-does-not-take-place"
RULES: Final = (
    _no_run("TieringNoCopy", RunKind.COPY, 3, "No plan or batch of a copy ended for {value}.", _NO_RUN),
    _no_run(
        "TieringNoExpiration", RunKind.EXPIRATION, 3, "No plan or batch of an expiration ended for {value}.", _NO_RUN
    ),
    _no_run("TieringNoSizes", RunKind.SIZES, 3, "No size run ended for {value}.", _NO_RUN),
    _no_run("TieringNoVerification", RunKind.VERIFICATION, 48, "No verification ended for {value}.", _NO_RUN),
    _no_run("TieringNoAudit", RunKind.AUDIT, 48, "No audit ended for {value}.", _NO_RUN),
    _no_run(
        "TieringNoHandoverWatch",
        RunKind.HANDOVER_WATCH,
        2,
        "Nothing looked for forgotten handovers for {value}.",
        _NO_RUN,
    ),
    _no_run(
        "TieringNoIngest",
        RunKind.INGEST,
        1,
        "The brokers' metadata were not read for {value}.",
        "the-brokers-metadata-are-not-read",
    ),
    AlarmRule(
        "TieringIngestStopped",
        "tiering_ingest_stopped",
        0,
        AlarmSeverity.CRITICAL,
        "Reading of metadata partition {subject} has stopped.",
        "the-brokers-metadata-are-not-read",
    ),
    AlarmRule(
        "TieringOutOfSight",
        "tiering_remote_copy_out_of_sight_partitions",
        0,
        AlarmSeverity.WARNING,
        "{value} partitions of {subject} are in no readable log directory.",
        "the-copy-lag-grows",
    ),
    AlarmRule(
        "TieringCopyLagOld",
        "tiering_remote_copy_lag_seconds",
        _HOUR,
        AlarmSeverity.WARNING,
        "The oldest uncopied segment of {subject} is {value} old.",
        "the-copy-lag-grows",
        is_duration=True,
    ),
    AlarmRule(
        "TieringFailedSegments",
        "tiering_failed_segments",
        0,
        AlarmSeverity.CRITICAL,
        "{value} segments of {subject} failed their verification, and no run has copied them again.",
        "a-segment-failed-the-quality-gate",
    ),
    AlarmRule(
        "TieringLostOffsets",
        "tiering_lost_offsets",
        0,
        AlarmSeverity.CRITICAL,
        "{value} offsets of {subject} failed, and no source has them.",
        "a-failed-segment-is-lost",
        label=("decided", "no"),
    ),
    AlarmRule(
        "TieringVerdictsOld",
        "tiering_verdict_age_seconds",
        91 * _DAY,
        AlarmSeverity.WARNING,
        "The oldest verdict is {value} old.",
        "too-little-is-safe",
        label=("verdict", "passed"),
        is_duration=True,
    ),
    AlarmRule(
        "TieringSizesDiffer",
        "tiering_remote_log_size_differences",
        0,
        AlarmSeverity.CRITICAL,
        "The last size run had {value} findings.",
        "the-size-run-fails",
    ),
    AlarmRule(
        "TieringDanglingReferences",
        "tiering_audit_findings",
        0,
        AlarmSeverity.CRITICAL,
        "{value} segments lack an object.",
        "alerts-of-audits",
        label=("kind", "dangling-reference"),
    ),
    AlarmRule(
        "TieringAuditRefuses",
        "tiering_audit_refusals",
        0,
        AlarmSeverity.CRITICAL,
        "Database and store do not belong together as they are.",
        "alerts-of-audits",
    ),
    AlarmRule(
        "TieringHandoverForgotten",
        "tiering_handovers_forgotten",
        0,
        AlarmSeverity.CRITICAL,
        "{value} handovers stand still, and may hold up the retention of their topics.",
        "a-handover-stands-still",
    ),
    AlarmRule(
        "TieringRecoveryDrillFailed",
        "tiering_recovery_drill_failed",
        0,
        AlarmSeverity.CRITICAL,
        "The last recovery drill of {subject} found something wrong.",
        "a-recovery-drill-failed",
    ),
)

ALARMS_ABOVE: Final[Mapping[str, float]] = {
    rule.metric: -1.0 if rule.is_time else min(other.above for other in RULES if other.metric == rule.metric)
    for rule in RULES
}
"""By metric the value above which a rule may hold; -1 for times: all of them are read, as low ones are too old."""

ALARM_LABELS: Final[Mapping[str, tuple[str, str]]] = {
    rule.metric: rule.label for rule in RULES if rule.label is not None and not rule.is_time
}
"""By metric the label that its series must have. Times are left out: one metric of times has several rules."""

MOST_OF_RULE: Final = 20
"""How many series of a metric become alarms; the others are counted."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A rule that holds for a series. `subject` is a topic, a metadata partition or the like; None without one."""

    rule: AlarmRule
    subject: str | None
    sentence: str
    as_of_ms: int


class MoreAlarmsDocument(TypedDict):
    """For how many further subjects a rule holds, none of which has a higher value than those among the alarms."""

    alert: str
    alarms: int


class AlarmDocument(TypedDict):
    """A rule of `monitoring/alerts.yaml` that holds now; `runbook` is the entry that says what to do."""

    alert: str
    severity: str
    subject: str | None
    sentence: str
    runbook: str
    as_of_ms: int


def alarms(gauges: Mapping[str, Sequence[Series]], now_ms: int) -> tuple[Alarm, ...]:
    """Return the rules that hold, critical ones first, then in the order of `RULES` and of the series."""
    found = (alarm for rule in RULES for alarm in _of_rule(rule, gauges.get(rule.metric, ()), now_ms))
    return tuple(sorted(found, key=lambda alarm: alarm.rule.severity is not AlarmSeverity.CRITICAL))


def _of_rule(rule: AlarmRule, gauges: Iterable[Series], now_ms: int) -> Iterable[Alarm]:
    for series in gauges:
        labels = dict(series.key.labels)
        if rule.label is not None and labels.pop(rule.label[0], None) != rule.label[1]:
            continue
        value = now_ms / 1000 - series.value if rule.is_time else series.value
        if value <= rule.above:
            continue
        subject = next(iter(labels.values()), None)
        shown = format_duration(value) if rule.is_time or rule.is_duration else f"{value:,.0f}"
        # The subject is not part of the format's own text, so braces in it are never replaced.
        yield Alarm(rule, subject, rule.sentence.format(subject=subject, value=shown), series.updated_at_ms)


def more_alarms(found: Mapping[str, Above]) -> Mapping[str, int]:
    """Return, by alert rule, for how many series it holds beyond those that were read; rules without any are absent."""
    more = {rule.alert: _beyond(found.get(rule.metric)) for rule in RULES if not rule.is_time}
    return {alert: number for alert, number in more.items() if number}


def _beyond(above: Above | None) -> int:
    return 0 if above is None else above.found - len(above.series)


def alarm_document(alarm: Alarm) -> AlarmDocument:
    """Return the JSON of an alarm."""
    return {
        "alert": alarm.rule.alert,
        "severity": str(alarm.rule.severity),
        "subject": alarm.subject,
        "sentence": alarm.sentence,
        "runbook": runbook_entry(alarm.rule.runbook),
        "as_of_ms": alarm.as_of_ms,
    }
