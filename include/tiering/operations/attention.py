"""What waits for a person.

These are objections because of which nothing is deleted, pools without slots, approvals, failed segments, findings,
held partitions and handovers.

One `Attention` feeds `./tiering attention` and the page *Tiering*. Each part names the entry of docs/runbook.md that
says what to do. Held partitions, and the number of findings by kind, are as of the run that published them; the rest is
of this moment.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

from include.tiering.audit.record import ActiveGuard, AuditStore, RecordedFinding
from include.tiering.audit.report import AuditRefusalDocument
from include.tiering.clock import Clock
from include.tiering.configs.config_store import (
    KEPT_FOR_EVER,
    RETENTION_BYTES,
    RETENTION_MS,
    ConfigChange,
    ConfigStore,
)
from include.tiering.configs.pools import POOLS, PoolMirror
from include.tiering.configs.rules import last_cuts
from include.tiering.copying.metrics import HELD_BACK
from include.tiering.database.metric_series import MetricSeries, Series
from include.tiering.handover.contract import ForgottenHandover, HandoverStore, forgotten_handovers
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.operations.alarms import runbook_entry
from include.tiering.operations.quality import (
    FINDINGS,
    MOST_FAILED,
    OpenFindingDocument,
    StoppingSegmentDocument,
    failed_segment,
    open_finding,
    open_findings,
)
from include.tiering.operations.topic_list import LAG_SECONDS
from include.tiering.operations.waiting import Waiting, WaitingGroupDocument, waiting, waiting_document
from include.tiering.presentation import Presentation, Table, count
from include.tiering.runs.approval import PlanQuestion, PlanQuestions
from include.tiering.runs.deletion_run import DeletionStore, PlannedTopic
from include.tiering.segments.failed_copies import FailedCopies, FailedCopy
from include.tiering.telemetry.metrics import LAST_RUN, RunKind
from include.tiering.units import format_bytes, format_duration, format_utc

MOST_APPROVALS: Final = 50
MOST_TOPICS: Final = 50
_MOST_CHANGES: Final = 500
_MOST_TRANSACTION_SECONDS: Final = 900.0
_ASKED_SINCE_MS: Final = 30 * 24 * 60 * 60 * 1000
"""A question that nobody has answered for longer is taken for one of a DAG run that Airflow has removed."""

APPROVAL_ENTRY: Final = runbook_entry("expiration-waits-for-an-approval")
HELD_ENTRY: Final = runbook_entry("a-partition-is-held-back")
POOL_ENTRY: Final = runbook_entry("a-pool-has-another-size-than-expected")
GUARD_ENTRY: Final = runbook_entry("guards")
HANDOVER_ENTRY: Final = runbook_entry("a-handover-stands-still")


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """A question that waits for an answer in Airflow.

    Attributes:
        question: the question.
        topics: what its plan deletes of each topic, those that lose most bytes first; empty if it deletes no segments.
        cuts: by topic, the last changes because of which less is kept, the newest first and one for each config.
    """

    question: PlanQuestion
    topics: tuple[PlannedTopic, ...]
    cuts: Mapping[str, tuple[ConfigChange, ...]]


@dataclass(frozen=True, slots=True)
class Attention:
    """What waits for a person.

    Attributes:
        as_of_ms: when it was read, by this process' clock.
        approvals: open questions, the newest first.
        failed: failed segments that stop their partitions.
        findings: open findings of audits, the last seen first; at most `MOST_FINDINGS`.
        more_findings: how many more there are, as of the last audit.
        held: why partitions wait that no later run takes without a decision or a correction.
        handovers: handovers without progress.
        stopped_pools: names of pools with 0 slots: nothing of them begins until somebody gives them some.
        guards: objections that are active: nothing expires, and no orphan object is removed.
        planned_at_ms: when work of copies last ended; None if no copy was ever planned, so nothing is known to be held.
        audited_at_ms: when an audit last published its findings; None if there was no audit.
    """

    as_of_ms: int
    approvals: tuple[OpenApproval, ...] = ()
    failed: tuple[FailedCopy, ...] = ()
    findings: tuple[RecordedFinding, ...] = ()
    more_findings: int = 0
    held: tuple[Waiting, ...] = ()
    handovers: tuple[ForgottenHandover, ...] = ()
    stopped_pools: tuple[str, ...] = ()
    guards: tuple[ActiveGuard, ...] = ()
    planned_at_ms: int | None = None
    audited_at_ms: int | None = None

    @property
    def total(self) -> int:
        """How many things wait; a reason counts once, however many partitions wait for it."""
        parts = (self.approvals, self.failed, self.findings, self.held, self.handovers, self.stopped_pools, self.guards)
        return sum(map(len, parts)) + self.more_findings


class AttentionService:
    """Reads what waits for a person with at most ten statements, whose cost does not grow with the archive."""

    def __init__(
        self,
        *,
        questions: PlanQuestions,
        deletions: DeletionStore,
        configs: ConfigStore,
        failed_copies: FailedCopies,
        audits: AuditStore,
        handovers: HandoverStore,
        mirror: PoolMirror,
        series: Callable[[], MetricSeries],
        clock: Clock,
    ) -> None:
        self._questions = questions
        self._deletions = deletions
        self._configs = configs
        self._failed_copies = failed_copies
        self._audits = audits
        self._handovers = handovers
        self._mirror = mirror
        self._series = series
        self._clock = clock

    def now(self) -> Attention:
        """Return what waits. Raises MetadataUnavailableError."""
        now_ms, series = self._clock.now_ms(), self._series()
        gauges = series.latest((HELD_BACK.name, FINDINGS, LAST_RUN.name))
        ended = [each for each in gauges.get(LAST_RUN.name, ()) if each.key.label("kind") == RunKind.COPY]
        held_back = gauges.get(HELD_BACK.name, ())
        open_in = [{"topic": held.key.label("topic")} for held in held_back if _is_open_transaction(held)]
        lags = series.latest((LAG_SECONDS,), labels=open_in) if open_in else {}
        findings, more_findings = open_findings(self._audits, gauges)
        seen = self._mirror.seen()
        return Attention(
            now_ms,
            self._approvals(now_ms),
            tuple(copy for copy in self._failed_copies.all() if not copy.given_up and not copy.was_left),
            findings,
            more_findings,
            tuple(group for group in waiting(lasting(held_back, lags.get(LAG_SECONDS, ()))) if needs_a_person(group)),
            tuple(forgotten_handovers(self._handovers.open_handovers(), self._handovers.now_ms())),
            tuple(spec.name for spec in POOLS if spec.name in seen and seen[spec.name].slots == 0),
            tuple(self._audits.active_guards()),
            max((each.updated_at_ms for each in ended), default=None),
            max((each.updated_at_ms for each in gauges.get(FINDINGS, ())), default=None),
        )

    def _approvals(self, now_ms: int) -> tuple[OpenApproval, ...]:
        questions = self._questions.unanswered(since_ms=now_ms - _ASKED_SINCE_MS, at_most=MOST_APPROVALS)
        planned = self._deletions.planned_topics([question.subject for question in questions])
        by_run: dict[str, list[PlannedTopic]] = {}
        for topic in sorted(planned, key=lambda topic: (-topic.size_bytes, topic.topic)):
            by_run.setdefault(topic.run_id, []).append(topic)
        names = {topic.topic for topics in by_run.values() for topic in topics[:MOST_TOPICS]}
        cuts = last_cuts(
            self._configs.changes_of_topics(sorted(names), (RETENTION_MS, RETENTION_BYTES), at_most=_MOST_CHANGES)
            if names
            else ()
        )
        return tuple(
            OpenApproval(
                question,
                topics := tuple(by_run.get(question.subject, ())),
                {topic.topic: cuts[topic.topic] for topic in topics if topic.topic in cuts},
            )
            for question in questions
        )


def lasting(held_back: Sequence[Series], copy_lags: Sequence[Series]) -> list[Series]:
    """Return the series of `HELD_BACK` without those of transactions that probably end by themselves.

    By default brokers abort a transaction that has been open for 15 minutes (`transaction.max.timeout.ms`). So a
    topic's open transactions are left out while the first segment that waits of the topic is younger than that. If
    its age is not known, they are kept.
    """
    ages = {series.key.label("topic"): series.value for series in copy_lags}
    return [
        series
        for series in held_back
        if not _is_open_transaction(series)
        or not 0 < ages.get(series.key.label("topic"), 0) < _MOST_TRANSACTION_SECONDS
    ]


def _is_open_transaction(held_back: Series) -> bool:
    return held_back.key.label("reason") == IneligibleReason.ABOVE_LAST_STABLE_OFFSET.code


def needs_a_person(group: Waiting) -> bool:
    """Return whether no later run takes these partitions by itself; an unknown reason counts as one that needs help.

    A transaction whose producer is gone may stay open until a person ends it.
    """
    is_open = group.reason is IneligibleReason.ABOVE_LAST_STABLE_OFFSET
    return group.reason is None or is_open or not group.reason.retriable


class CutDocument(TypedDict):
    """A change by which less is kept; null is no limit, or no value of the topic's own."""

    name: str
    old_value: int | None
    new_value: int | None
    author: str
    changed_at_ms: int


class PlannedTopicDocument(TypedDict):
    """What a plan deletes of a topic.

    `oldest_ms` and `newest_ms` are the lowest and the highest of the largest record timestamps of its segments.
    """

    topic: str
    topic_id: str
    partitions: int
    segments: int
    bytes: int
    oldest_ms: int | None
    newest_ms: int | None
    cuts: list[CutDocument]


class ApprovalDocument(TypedDict):
    """A question that waits for an answer in Airflow; `run_id` is the planned run, or the id of a handover."""

    dag_id: str
    dag_run_id: str
    run_id: str
    plan_hash: str
    headline: str
    shown_at_ms: int | None
    topics: list[PlannedTopicDocument]
    more_topics: int
    runbook: str


class HeldPartitionsDocument(WaitingGroupDocument):
    """Partitions that no later run takes without a decision or a correction."""

    runbook: str


class StalledHandoverDocument(TypedDict):
    """A handover without progress since `since_ms`."""

    topic: str
    topic_id: str
    handover_id: str
    step: str
    state: str
    since_ms: int
    message: str
    runbook: str


class StoppedPoolDocument(TypedDict):
    """A pool with 0 slots."""

    pool: str
    message: str
    runbook: str


class GuardDocument(AuditRefusalDocument):
    """An objection that is active: nothing expires, and no orphan object is removed."""

    runbook: str


class AttentionDocument(TypedDict):
    """What waits for a person; `total` counts a reason once, however many partitions wait for it.

    `planned_at_ms` is when work of copies last ended, `audited_at_ms` is when an audit last did; null: never, so it is
    not known what is held, or what an audit would find.
    """

    as_of_ms: int
    total: int
    planned_at_ms: int | None
    audited_at_ms: int | None
    approvals: list[ApprovalDocument]
    failed: list[StoppingSegmentDocument]
    more_failed: int
    findings: list[OpenFindingDocument]
    more_findings: int
    held: list[HeldPartitionsDocument]
    handovers: list[StalledHandoverDocument]
    stopped_pools: list[StoppedPoolDocument]
    guards: list[GuardDocument]


def attention_document(attention: Attention) -> AttentionDocument:
    """Return the JSON of what waits for a person."""
    return {
        "as_of_ms": attention.as_of_ms,
        "total": attention.total,
        "planned_at_ms": attention.planned_at_ms,
        "audited_at_ms": attention.audited_at_ms,
        "approvals": list(map(_approval, attention.approvals)),
        "failed": list(map(failed_segment, attention.failed[:MOST_FAILED])),
        "more_failed": max(0, len(attention.failed) - MOST_FAILED),
        "findings": list(map(open_finding, attention.findings)),
        "more_findings": attention.more_findings,
        "held": [{**waiting_document(group), "runbook": HELD_ENTRY} for group in attention.held],
        "handovers": list(map(_stalled, attention.handovers)),
        "stopped_pools": [
            {"pool": pool, "message": f"The pool {pool} has 0 slots, so nothing of it begins.", "runbook": POOL_ENTRY}
            for pool in attention.stopped_pools
        ],
        "guards": [
            {"guard": str(active.guard), "message": active.objection, "runbook": GUARD_ENTRY}
            for active in attention.guards
        ],
    }


def _approval(approval: OpenApproval) -> ApprovalDocument:
    question = approval.question
    dag_id, _, dag_run_id = question.asked_in.partition(" ")
    return {
        "dag_id": dag_id,
        "dag_run_id": dag_run_id,
        "run_id": question.subject,
        "plan_hash": question.plan_hash,
        "headline": question.headline,
        "shown_at_ms": question.shown_at_ms,
        "topics": [
            {
                "topic": topic.topic,
                "topic_id": str(topic.topic_id),
                "partitions": topic.partitions,
                "segments": topic.segments,
                "bytes": topic.size_bytes,
                "oldest_ms": topic.oldest_ms,
                "newest_ms": topic.newest_ms,
                "cuts": list(map(_cut, approval.cuts.get(topic.topic, ()))),
            }
            for topic in approval.topics[:MOST_TOPICS]
        ],
        "more_topics": max(0, len(approval.topics) - MOST_TOPICS),
        "runbook": APPROVAL_ENTRY,
    }


def _cut(change: ConfigChange) -> CutDocument:
    return {
        "name": change.name,
        "old_value": _limit(change.old_value),
        "new_value": _limit(change.new_value),
        "author": change.author,
        "changed_at_ms": change.changed_at_ms,
    }


def _limit(value: str | None) -> int | None:
    return None if value is None or int(value) == KEPT_FOR_EVER else int(value)


def _stalled(found: ForgottenHandover) -> StalledHandoverDocument:
    handover = found.handover
    return {
        "topic": handover.topic,
        "topic_id": str(handover.topic_id),
        "handover_id": str(handover.handover_id),
        "step": str(handover.step),
        "state": str(handover.state),
        "since_ms": found.since_ms,
        "message": found.message,
        "runbook": HANDOVER_ENTRY,
    }


def present_attention(attention: Attention) -> Presentation:
    """Present what waits for a person; it is not `ok` if anything does."""
    summary = f"{count(attention.total, 'thing')} for a person" if attention.total else "nothing waits for a person"
    summary += "" if attention.planned_at_ms else "; no copy was planned yet, so nothing is known to be held"
    summary += "" if attention.audited_at_ms else "; no audit has compared the store with the metadata yet"
    return Presentation(
        lambda: attention_document(attention),
        lambda: _tables(attention_document(attention)),
        summary,
        ok=not attention.total,
    )


def _tables(found: AttentionDocument) -> tuple[Table, ...]:
    now_ms = found["as_of_ms"]
    approvals = [
        (approval["headline"], f"{approval['dag_id']} {approval['dag_run_id']}", *_of_topic(topic, now_ms))
        for approval in found["approvals"]
        for topic in (approval["topics"] or (None,))
    ]
    failed = [
        (
            f"{copy['topic']}-{copy['partition']}",
            f"{copy['start_offset']}..{copy['end_offset']}",
            copy["detail"],
            copy["lost_because"] or "the next copy replaces it, if the source still has it",
            copy["runbook"],
        )
        for copy in found["failed"]
    ]
    findings = [
        (str(each["finding_id"]), each["kind"], each["key"], format_bytes(each["bytes"]), each["message"])
        for each in found["findings"]
    ]
    held = [
        (str(group["partitions"]), group["reason_message"] or "", ", ".join(group["topics"]), group["advice"])
        for group in found["held"]
    ]
    guards = [(each["guard"], each["message"], each["runbook"]) for each in found["guards"]]
    pools = [(each["pool"], each["message"], each["runbook"]) for each in found["stopped_pools"]]
    handovers = [(each["topic"], each["step"], each["message"], each["runbook"]) for each in found["handovers"]]
    tables = (
        Table("nothing is deleted", ("guard", "why", "runbook"), tuple(guards)),
        Table("pools without slots", ("pool", "what", "runbook"), tuple(pools)),
        Table(
            "approvals in Airflow",
            ("question", "asked in", "topic", "partitions>", "segments>", "bytes>", "age of the data", "cut by"),
            tuple(approvals),
        ),
        Table(
            "failed segments",
            ("partition", "offsets", "what was found", "what becomes of it", "runbook"),
            tuple(failed),
        ),
        Table("findings of audits", ("id>", "kind", "key", "bytes>", "what"), tuple(findings)),
        Table("held partitions", ("partitions>", "why", "topics", "what to do"), tuple(held)),
        Table("handovers", ("topic", "step", "what", "runbook"), tuple(handovers)),
    )
    return tuple(table for table in tables if table.rows)


def _of_topic(topic: PlannedTopicDocument | None, now_ms: int) -> tuple[str, ...]:
    if topic is None:
        return ("",) * 6
    ages = [
        format_duration(max(0, now_ms - at_ms) / 1000) for at_ms in (topic["newest_ms"], topic["oldest_ms"]) if at_ms
    ]
    cuts = [
        f"{cut['author']} at {format_utc(cut['changed_at_ms'])}: {cut['name']}"
        f" {'for ever' if cut['old_value'] is None else cut['old_value']} to {cut['new_value']}"
        for cut in topic["cuts"]
    ]
    return (
        topic["topic"],
        str(topic["partitions"]),
        str(topic["segments"]),
        format_bytes(topic["bytes"]),
        " to ".join(ages),
        "; ".join(cuts),
    )
