"""Why a topic is not tiered: for each partition the first obstacle, and what to do about it.

The report has one line per partition, or a single line about the topic if no partition can be evaluated. In both cases
it also has one line per open handover, and one if brokers know segments of the topic. Log directories that cannot be
read have a line, unless each partition of the topic has one. Findings also name segments of histories that a decision
has replaced and that failed verification; these are no obstacle.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypedDict

from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition, errors_about
from include.tiering.database.event_log import Event
from include.tiering.errors import printable
from include.tiering.handover.checks import CheckResult
from include.tiering.handover.contract import Handover, ways_out
from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica, UnfinishedTransaction
from include.tiering.kafka.log_dirs.rules import DAMAGE
from include.tiering.model.reasons import Reason
from include.tiering.model.segments import TopicIdPartition
from include.tiering.operations.readiness import NotReady, Readiness
from include.tiering.presentation import Presentation, Table, TopicNames, count
from include.tiering.quotas.contract import QuotasInForce, copy_scopes
from include.tiering.quotas.topic_quotas import GIVES_WAY, TopicQuotaConfigs, TopicQuotaReport, is_refused
from include.tiering.runs.contract import LeaseAhead, LeaseHolder, PlannedPartition, describe_lease_ahead
from include.tiering.segments.failed_copies import FailedCopy
from include.tiering.units import format_bytes, format_duration, format_utc


class Cause(Reason):
    """The obstacle of a partition; the last six members are no obstacles."""

    NOT_FOUND = "not-found", "not found"
    NOT_INCLUDED = "not-included", "not included"
    HANDOVER = "handover", "handover under way"
    PLATFORM = "platform", "platform not ready"
    NOT_READY = "not-ready", "partition not ready"
    OPEN_TRANSACTION = "open-transaction", "open transaction"
    NOT_ELIGIBLE = "not-eligible", "not eligible"
    HELD_BACK = "held-back", "held back"
    TOPIC_QUOTA = "topic-quota", "topic quota"
    BEING_COPIED = "being-copied", "being copied"
    WAITS_FOR_A_RUN = "waits-for-a-run", "waits for a run"
    PUBLISHED = "published", "known to brokers"
    NOTHING_ROLLED = "nothing-rolled", "nothing rolled yet"
    UP_TO_DATE = "up-to-date", "up to date"
    DELETED = "deleted", "deleted"

    @property
    def tiers(self) -> bool:
        """Whether the partition is tiered or being copied, or only waits for a run or a roll."""
        return self in _TIERS

    @property
    def is_finding(self) -> bool:
        """Whether the line is a finding: an obstacle or an open handover."""
        return not self.tiers and self is not Cause.DELETED


_TIERS: Final = frozenset(
    {Cause.BEING_COPIED, Cause.WAITS_FOR_A_RUN, Cause.PUBLISHED, Cause.NOTHING_ROLLED, Cause.UP_TO_DATE}
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the report. `partition` is None if the line is about the topic as a whole."""

    topic: str
    partition: TopicIdPartition | None
    cause: Cause
    finding: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The present evidence about one topic.

    `plan` and `replicas` (those that a copy may read) are empty if the platform is not ready. `workers` is the number
    of workers that share the quotas. `transactions` is called only for partitions that wait for a transaction.
    `has_all`: the cluster says which partitions the topic has, so each has a line.
    """

    topic: str
    included: bool
    readiness: Readiness
    plan: CopyPlan
    replicas: Sequence[Replica]
    now_ms: int
    transactions: Callable[[Replica], Sequence[UnfinishedTransaction]]
    quotas: QuotasInForce = field(default_factory=lambda: QuotasInForce(0, {}))
    workers: int = 0
    topic_quotas: TopicQuotaReport = field(default_factory=TopicQuotaReport)
    holders: Mapping[TopicIdPartition, LeaseHolder] = field(default_factory=dict)
    ahead: Sequence[LeaseAhead] = ()
    has_all: bool = False


def diagnose(evidence: Evidence) -> tuple[Diagnosis, ...]:
    """Return one line per partition, in the order of `evidence.readiness`; or a single line if it has no partition.

    If partitions without a line are possible, a line follows for each check that found what a person has to put right.
    """
    if not evidence.readiness.holds:
        return (_platform(evidence), *_wrong(evidence))
    if not evidence.readiness.partitions:
        return (_without_partitions(evidence), *_wrong(evidence))
    replicas = {replica.topic_id_partition: replica for replica in evidence.replicas}
    partitions = [partition.topic_id_partition for partition in evidence.readiness.partitions]
    found = tuple(
        _with_leases_ahead(evidence, Diagnosis(evidence.topic, each, *_of_partition(evidence, each, replicas)))
        for each in partitions
    )
    return found if evidence.has_all else (*found, *_wrong(evidence))


def _with_leases_ahead(evidence: Evidence, found: Diagnosis) -> Diagnosis:
    """Add to the finding the leases whose end is too far in the future. They are no obstacle, so the cause stays."""
    ahead = [describe_lease_ahead(lease) for lease in evidence.ahead if lease.topic_id_partition == found.partition]
    return replace(found, finding="; ".join((found.finding, *ahead)))


Line = tuple[Cause, str, str]
"""Cause, finding, advice."""


def _platform(evidence: Evidence) -> Diagnosis:
    missing = "; ".join(evidence.readiness.missing)
    return Diagnosis(evidence.topic, None, Cause.PLATFORM, missing, "correct it; later runs continue (docs/runbook.md)")


def _wrong(evidence: Evidence) -> Iterable[Diagnosis]:
    advice = "correct it; partitions of the topic may be there"
    return (Diagnosis(evidence.topic, None, Cause.PLATFORM, str(each), advice) for each in evidence.readiness.wrong)


def _without_partitions(evidence: Evidence) -> Diagnosis:
    refusals = {segment.reason for replica in evidence.replicas for segment in replica.segments if segment.reason}
    if refusals:
        first = min(refusals, key=str)
        return Diagnosis(evidence.topic, None, Cause.NOT_ELIGIBLE, str(first), _advice(first))
    finding = "no directory of log_dirs has a partition of this topic, and none of its segments is remote"
    return Diagnosis(evidence.topic, None, Cause.NOT_FOUND, finding, "check the name, and log_dirs")


def _of_partition(
    evidence: Evidence, partition: TopicIdPartition, replicas: Mapping[TopicIdPartition, Replica]
) -> Line:
    unready = next(found for found in evidence.readiness.partitions if found.topic_id_partition == partition)
    if unready.reason is NotReady.DELETED:
        return Cause.DELETED, f"{unready.reason}, {unready.detail}", ""
    if not evidence.included:
        return Cause.NOT_INCLUDED, "topics.include does not name it", f"add {evidence.topic} to topics.include"
    held_back = next((held for held in evidence.plan.held_back if held.topic_id_partition == partition), None)
    planned = next(
        (planned for planned in evidence.plan.partitions if planned.replica_id.topic_id_partition == partition), None
    )
    decides = unready.reason in (NotReady.STOPPED, NotReady.UNDECIDED)
    says_more = decides and (held_back is not None or planned is not None)
    if unready.reason is not None and not says_more:
        finding = f"{unready.reason}: {unready.detail}".removesuffix(": ")
        return Cause.NOT_READY, finding, "docs/runbook.md: search for these words"
    if planned is not None and (refused := _refused_by_topic_quota(evidence, planned)) is not None:
        return refused
    again = 0 if planned is None else sum(segment.supersedes is not None for segment in planned.segments)
    if held_back is not None:
        cause, finding, advice = _held_back(evidence, held_back, replicas.get(partition))
        failed = f"; the next run first copies {_segments(again)} again that failed the quality gate" if again else ""
        return cause, finding + failed, advice
    if planned is not None:
        return _on_its_way(evidence, planned, again)
    return _nothing_left(replicas[partition])


def _held_back(evidence: Evidence, held_back: HeldBackPartition, replica: Replica | None) -> Line:
    ineligible = held_back.ineligible
    if ineligible is None or replica is None:
        finding = f"from offset {held_back.next_offset}: {held_back.reason}: {held_back.detail}"
        return Cause.HELD_BACK, finding, _advice_held_back(held_back)
    if ineligible is IneligibleReason.ABOVE_LAST_STABLE_OFFSET:
        return _unstable(evidence, replica)
    bounds = {
        IneligibleReason.ABOVE_HIGH_WATERMARK: f" {replica.high_watermark}",
        IneligibleReason.NOT_FLUSHED: f" (recovery point {replica.recovery_point})",
        IneligibleReason.BELOW_LOG_START: f" {replica.log_start_offset}",
    }
    if ineligible is IneligibleReason.NOT_FLUSHED and replica.found_to is not None:
        finding = f"segment at {held_back.next_offset} was found less than leaders.settle_ms ago, and is not replicated"
        return Cause.NOT_ELIGIBLE, finding, "wait a minute, or replicate with min.insync.replicas of 2"
    finding = f"segment at {held_back.next_offset}: {ineligible}{bounds.get(ineligible, '')}"
    errors = errors_about(held_back.topic_id_partition, evidence.plan.errors)
    if ineligible in DAMAGE and errors:
        finding += f": {errors[0].path}: {errors[0].message}"
    return Cause.NOT_ELIGIBLE, finding, _advice(ineligible)


def _advice_held_back(held_back: HeldBackPartition) -> str:
    if held_back.reason is HeldBack.STORE_IN_DOUBT:
        return "correct the store, then segments are copied again: docs/runbook.md, Segments are missing from the store"
    if held_back.reason is HeldBack.COMPACTED and held_back.hole is None:
        return "docs/runbook.md, A segment was compacted away"
    partition = held_back.topic_id_partition
    command = f"./tiering skip {partition.topic} --partition {partition.partition}"
    if held_back.follow_from is not None:
        follow = f"{command} --follow-source-from {held_back.follow_from} --reason TEXT"
        return f"decide: docs/runbook.md, The source has another history; {follow}"
    if held_back.reason not in (HeldBack.HOLE, HeldBack.LOST, HeldBack.FAILED_AGAIN, HeldBack.COMPACTED):
        return "docs/runbook.md, A partition is held back"
    return f"if the archive may continue without these offsets: {command} --reason TEXT"


def _unstable(evidence: Evidence, replica: Replica) -> Line:
    stable = f"last stable offset {replica.last_stable_offset}, high watermark {replica.high_watermark}"
    open_transactions = evidence.transactions(replica)
    if not open_transactions:
        return Cause.OPEN_TRANSACTION, f"{stable}; the end marker is not below the high watermark yet", "wait a minute"
    oldest, more = open_transactions[0], len(open_transactions) - 1
    age = ""
    if oldest.since_ms >= 0:
        age = f" for {format_duration(max(0, evidence.now_ms - oldest.since_ms) / 1000)}"
    others = f", and {more} more" if more else ""
    whose = f"producer {oldest.producer_id}"
    if oldest.transactional_id is not None:
        whose += f" ({printable(oldest.transactional_id)})"
    finding = f"open transaction of {whose}{age} from offset {oldest.first_offset}{others}; {stable}"
    topic, number = replica.topic_id_partition.topic, replica.topic_id_partition.partition
    advice = (
        f"if its producer does not exist any more: kafka-transactions.sh abort --topic {topic} --partition {number} "
        f"--start-offset {oldest.first_offset}"
    )
    return Cause.OPEN_TRANSACTION, finding, advice


def _refused_by_topic_quota(evidence: Evidence, planned: PlannedPartition) -> Line | None:
    report = evidence.topic_quotas
    usage = next((broker for broker in report.brokers if broker.broker_id == planned.replica_id.broker_id), None)
    own = None if usage is None else next((topic for topic in usage.topics if topic.topic == evidence.topic), None)
    if not report.enabled or usage is None or own is None or usage.threshold is None or own.threshold is None:
        return None
    total, rate = usage.meters.compared_bytes_per_second, own.meters.compared_bytes_per_second
    gives_way = own.explicit and own.threshold == GIVES_WAY
    if not is_refused(total, usage.threshold, rate, own.threshold, gives_way=gives_way):
        return None
    finding = (
        f"receives {format_bytes(round(rate))}/s (threshold {format_bytes(int(own.threshold))}/s) while broker "
        f"{usage.broker_id} receives {format_bytes(round(total))}/s (threshold {format_bytes(usage.threshold)}/s)"
    )
    return Cause.TOPIC_QUOTA, finding, "wait until the rate falls, or raise a threshold: ./tiering configs --alter"


def _on_its_way(evidence: Evidence, planned: PlannedPartition, again: int) -> Line:
    what = f"{_segments(len(planned.segments))}, {format_bytes(planned.size_bytes)}"
    what += f", from {planned.segments[0].base_offset}"
    what += f" ({again} of them again, which failed the quality gate)" if again else ""
    report = evidence.topic_quotas
    without_effect = TopicQuotaConfigs(report.enabled, report.totals, report.explicit).without_effect
    quota = _quota(evidence, planned) + ("" if without_effect is None else f"; {without_effect}")
    holder = evidence.holders.get(planned.replica_id.topic_id_partition)
    if holder is not None:
        since = format_duration(max(0, evidence.now_ms - holder.claimed_at_ms) / 1000)
        return Cause.BEING_COPIED, f"batch {holder.batch_id} has held its lease for {since}: {what} to go{quota}", ""
    advice = "the next run of tiering_copy, or ./tiering copy, takes them"
    return Cause.WAITS_FOR_A_RUN, f"{what} to copy{quota}", advice


def _segments(number: int) -> str:
    return f"{number} segment" if number == 1 else f"{number} segments"


def _quota(evidence: Evidence, planned: PlannedPartition) -> str:
    """Return text on the lowest quota, the workers that share it, and the least time needed; empty without a quota."""
    limits = [
        (quota, scope)
        for scope in copy_scopes(planned.replica_id.broker_id, evidence.topic)
        if (quota := evidence.quotas.of(scope)) is not None
    ]
    if not limits:
        return ""
    quota, scope = min(limits)
    shared = f", shared by {evidence.workers} workers" if evidence.workers > 1 else ""
    least = format_duration(planned.size_bytes / quota)
    return (
        f"; copy quota {format_bytes(quota)}/s of {scope.level} {scope.name}".rstrip() + f"{shared}: {least} at least"
    )


def _nothing_left(replica: Replica) -> Line:
    if not replica.segments or replica.unread_offsets:
        return _to_be_read(replica)
    active = replica.segments[-1]
    advice = "it is copied once it has rolled: segment.bytes or segment.ms of the topic"
    finding = f"active segment from offset {active.base_offset}, {format_bytes(active.size_bytes)}"
    if len(replica.segments) == 1:
        return Cause.NOTHING_ROLLED, f"only the {finding}", advice
    return Cause.UP_TO_DATE, f"all that has rolled is remote; {finding}", advice


def _to_be_read(replica: Replica) -> Line:
    """Return the line of a log that is empty, or has offsets that are not read yet, so that segments may follow."""
    if not replica.unread_offsets:
        return Cause.NOTHING_ROLLED, f"the log is empty from offset {replica.log_start_offset} on", ""
    unread = f"{replica.unread_offsets:,} offsets from {replica.found_to} on are not read yet"
    advice = "the next run of tiering_copy, or ./tiering copy, reads them and finds what to copy"
    return Cause.WAITS_FOR_A_RUN, f"{unread}, so their segments are not known", advice


def reason_of(code: str) -> HeldBack | IneligibleReason | None:
    """Return the reason with this code, a `HeldBack` if both enumerations have it; None if this version has none."""
    return _REASONS.get(code)


def advice_about(reason: IneligibleReason | HeldBack, topic: str) -> str:
    """Return what to do about partitions of a topic that wait for this reason, without evidence about one of them."""
    if reason is IneligibleReason.ABOVE_LAST_STABLE_OFFSET:
        return f"./tiering doctor {topic}: it names the producer, and how to end its transaction"
    return _advice(reason) if isinstance(reason, IneligibleReason) else f"./tiering doctor {topic}"


def _advice(reason: IneligibleReason) -> str:
    return _ADVICE.get(reason, "docs/runbook.md, A segment is not eligible")


_REASONS: Final[Mapping[str, HeldBack | IneligibleReason]] = {why.code: why for why in (*IneligibleReason, *HeldBack)}
_ADVICE: Final[Mapping[IneligibleReason, str]] = {
    IneligibleReason.ABOVE_HIGH_WATERMARK: "wait, a checkpoint is some seconds old; if unchanged, a follower lags",
    IneligibleReason.NOT_FLUSHED: "wait for the next roll, or replicate with min.insync.replicas of 2",
    IneligibleReason.PAST_RETENTION: "nothing: the broker is about to delete it",
    IneligibleReason.COPY_DELAYED: "nothing: see remote.copy.lag.* in ./tiering configs --describe",
    IneligibleReason.BELOW_LOG_START: "nothing: the broker is about to delete it",
    IneligibleReason.NO_PRODUCER_SNAPSHOT: "check for files deleted by hand: the broker writes a snapshot at each roll",
    IneligibleReason.NO_LEADER_EPOCH: "written before leader epochs, or the checkpoint was lost: it cannot be copied",
    IneligibleReason.TOPIC_CONTRADICTED: "docs/runbook.md, A segment is not eligible: correct partition.metadata",
    IneligibleReason.UNREADABLE: "give this user the right to read it, or mend the disk: docs/runbook.md",
    IneligibleReason.CORRUPT: "docs/runbook.md, A source file is corrupt",
    IneligibleReason.COMPACTED_SEGMENT: "docs/runbook.md, A segment was compacted away",
    IneligibleReason.COMPACTED: "nothing: compacted topics are never tiered",
    IneligibleReason.INTERNAL_TOPIC: "nothing: internal topics are never tiered",
}


def diagnose_handovers(open_handovers: Iterable[tuple[Handover, Sequence[CheckResult]]]) -> tuple[Diagnosis, ...]:
    """Return one line per open handover: its state, step and detail, and what to do about it.

    Each handover is given with its latest check results. If its detail quotes one, that result's advice comes first.
    """
    return tuple(
        Diagnosis(
            open_handover.topic,
            None,
            Cause.HANDOVER,
            f"a handover is {open_handover.state} at {open_handover.step}"
            + (f": {open_handover.detail}" if open_handover.detail else ""),
            "; ".join((*_what_to_do(open_handover, results), ways_out(open_handover))),
        )
        for open_handover, results in open_handovers
    )


def _what_to_do(handover: Handover, results: Sequence[CheckResult]) -> tuple[str, ...]:
    named = (result.what_to_do for result in results if result.numbers and result.numbers in handover.detail)
    return tuple(filter(None, (next(named, ""),)))


def diagnose_published(topic: str, segments: int) -> tuple[Diagnosis, ...]:
    """Return a line about a topic that is archived again and of which brokers know this many segments; none for 0."""
    if not segments:
        return ()
    finding = (
        f"archived again after a handover: brokers know of {_segments(segments)}; neither these nor what was archived"
        " above them expires until their deletion is published"
    )
    advice = (
        f"./tiering publish {topic} publishes the deletion of those below the broker's log start; ./tiering handover"
        f" {topic} hands it over"
    )
    return (Diagnosis(topic, None, Cause.PUBLISHED, finding, advice),)


def with_left_damage(
    diagnoses: Sequence[Diagnosis], failed: Mapping[TopicIdPartition, Sequence[FailedCopy]]
) -> tuple[Diagnosis, ...]:
    """Add segments of replaced histories that failed verification to the findings; cause and advice stay."""
    return tuple(
        replace(diagnosis, finding="; ".join((diagnosis.finding, *_said(diagnosis, failed)))) for diagnosis in diagnoses
    )


def _said(found: Diagnosis, failed: Mapping[TopicIdPartition, Sequence[FailedCopy]]) -> Sequence[str]:
    copies = () if found.partition is None else failed.get(found.partition, ())
    return [
        f"offsets {copy.offsets} of a history that a decision has replaced failed verification"
        f" (segment {copy.segment_id.id}): no work waits for them"
        for copy in copies
        if copy.was_left
    ]


class DiagnosisDocument(TypedDict):
    """One line; `partition` is null if it is about the whole topic. `cause` is a code, which later versions keep."""

    topic: str
    topic_id: str | None
    partition: int | None
    tiers: bool
    cause: str
    cause_message: str
    finding: str
    advice: str


class LastDrillDocument(TypedDict):
    """The last recovery drill of the topic: when it ended, and what came of it."""

    at_ms: int
    result: str


class DoctorDocument(TypedDict):
    """Why a topic is not tiered; `tiers` is false if a line is a finding. `last_drill` is null before any drill."""

    topic: str
    tiers: bool
    partitions: list[DiagnosisDocument]
    last_drill: LastDrillDocument | None


def present_doctor(topic: str, diagnoses: Sequence[Diagnosis], last_drill: Event | None = None) -> Presentation:
    """Present the diagnoses, with the result of the topic's last recovery drill, which is no finding.

    The presentation is `ok` if no line is a finding (`Cause.is_finding`).
    """
    findings = [diagnosis for diagnosis in diagnoses if diagnosis.cause.is_finding]
    is_there = any(diagnosis.cause is not Cause.DELETED for diagnosis in diagnoses)
    fine = f"{topic}: all partitions are tiered" if is_there else f"{topic}: was deleted"
    summary = f"{topic}: {count(len(findings), 'finding')}" if findings else fine
    drill: LastDrillDocument | None = None
    if last_drill is not None:
        drill = {"at_ms": last_drill.occurred_at_ms, "result": last_drill.detail}
        summary += f"; last recovery drill, {format_utc(last_drill.occurred_at_ms)}: {last_drill.detail}"
    return Presentation(
        lambda: DoctorDocument(
            topic=topic, tiers=not findings, partitions=list(map(_document, diagnoses)), last_drill=drill
        ),
        lambda: (_table(topic, diagnoses),),
        summary,
        ok=not findings,
    )


def _document(diagnosis: Diagnosis) -> DiagnosisDocument:
    """Return the JSON of a line; `partition` is null if the line is about the topic as a whole."""
    partition = diagnosis.partition
    return {
        "topic": diagnosis.topic if partition is None else partition.topic,
        "topic_id": None if partition is None else str(partition.topic_id),
        "partition": None if partition is None else partition.partition,
        "tiers": diagnosis.cause.tiers,
        "cause": diagnosis.cause.code,
        "cause_message": str(diagnosis.cause),
        "finding": diagnosis.finding,
        "advice": diagnosis.advice,
    }


def _table(topic: str, diagnoses: Sequence[Diagnosis]) -> Table:
    names = TopicNames(diagnosis.partition for diagnosis in diagnoses if diagnosis.partition is not None)
    rows = tuple(_row(diagnosis, names) for diagnosis in diagnoses)
    return Table(topic, ("partition", "tiers", "why", "what to do"), rows)


def _row(diagnosis: Diagnosis, names: TopicNames) -> tuple[str, ...]:
    where = "all"
    if diagnosis.partition is not None:
        where = names.partition(diagnosis.partition).removeprefix(f"{diagnosis.topic}-")
    tiers = "yes" if diagnosis.cause.tiers else "no" if diagnosis.cause.is_finding else "deleted"
    return (where, tiers, diagnosis.finding, diagnosis.advice)
