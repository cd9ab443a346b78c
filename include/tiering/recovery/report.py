"""Reports of rebuilds and adoptions: what was recovered, what was left out, and what manifests do not contain."""

from collections.abc import Iterable, Sequence
from typing import Final

from include.tiering.model.ownership import StoreMarker
from include.tiering.model.reasons import reason_members
from include.tiering.model.recovered_histories import RecoveredHistory
from include.tiering.model.recovered_log import LeftOut
from include.tiering.presentation import Presentation, Table, count, labels
from include.tiering.recovery.adopt import AdoptionPlan, AdoptionReport, RefusedAttempt
from include.tiering.recovery.contract import StoredSegment
from include.tiering.recovery.documents import (
    AdoptionDocument,
    FaultyDocument,
    LeftOutDocument,
    RebuildDocument,
    RebuiltMarkerDocument,
    RebuiltPartitionDocument,
    RefusedAttemptDocument,
    StoredSegmentDocument,
)
from include.tiering.recovery.rebuild import OtherName, RebuildPlan, RebuildReport, RebuiltPartition
from include.tiering.recovery.stored_attempts import FaultyAttempt
from include.tiering.units import format_bytes

NOT_IN_MANIFESTS: Final = (
    ("verdicts and results of rules", "none: a segment is served once `./tiering verify` has passed it"),
    ("whether a complete copy was FINISHED, given up, or being deleted", "FINISHED; expired segments expire again"),
    (
        "log starts that expiration or delete-records raised",
        "0: stored records below the old log starts can be read again; repeat `./tiering delete-records`",
    ),
    ("who decided to skip offsets, and why", "each hole is a decision of this rebuild"),
    (
        "who decided to follow another history, from which offset on, and why",
        "the later leader epochs are followed, as a decision of this rebuild; older ones are read by their epochs",
    ),
    ("the checksum of a log in its source", "the store's checksum: a deep verification checks the records"),
    ("the highest offset copied where everything was deleted", "none: the next copy begins at the source's start"),
    ("leader epochs that only brokers have", "read by the next plan of a copy"),
    ("owners of topics", "none: `topics.include` and the next plan set them again"),
    ("deletions of topics, and whether cluster metadata were seen", "not recorded: the next plan reads them again"),
    ("retention, quotas and other dynamic configs, pauses", "unset: nothing expires before retention is set again"),
    ("what was published to brokers", "nothing expires before `./tiering ingest` has read it"),
    ("failed segments that were given up, or superseded", "decided again for segments that fail again"),
    ("when a segment was FINISHED", "its copy began at the time in its manifest, and was FINISHED by this rebuild"),
    ("runs, plans, leases, fencing tokens, source fingerprints", "none: they start again"),
    ("tombstones, the event log (except this rebuild), audit findings, handovers", "empty"),
)
"""Content of a database that is not in the store's manifests, and the value that it has after a rebuild."""

_MOST_ROWS: Final = 200


def present_rebuild(plan: RebuildPlan, report: RebuildReport | None, refusal: str | None) -> Presentation:
    """Present a rebuild; `report` is None if it was refused.

    It is not `ok` if it was refused or interrupted. It is not `ok` either if a person has something to check: attempts
    that were left out, holes, followed histories, or other names of topic ids.
    """
    return Presentation(
        lambda: _rebuild_document(plan, report, refusal),
        lambda: _rebuild_tables(report),
        _rebuild_summary(plan, report, refusal),
        ok=report is not None and not report.interrupted and not _findings(report),
    )


def rebuild_question(plan: RebuildPlan) -> str:
    """Return the question that a person must confirm."""
    what = f"metadata of {_planned_rebuild(plan)}"
    if plan.begun is not None:
        return f"Continue to rebuild {what}?"
    return (
        f"Rebuild {what} in the database of the settings? The database that owns the store now ({plan.found}) can never"
        " use it again"
    )


def _planned_rebuild(plan: RebuildPlan) -> str:
    size = f"{count(plan.attempts, 'attempt')} ({format_bytes(plan.log_bytes)})"
    return f"{size} of {count(len(plan.partitions), 'partition')}"


def _findings(report: RebuildReport) -> int:
    return sum(
        partition.not_taken + len(partition.holes) + len(partition.decided) for partition in report.partitions
    ) + len(report.other_names)


def _rebuild_summary(plan: RebuildPlan, report: RebuildReport | None, refusal: str | None) -> str:
    if report is None:
        return f"nothing is rebuilt: {refusal}. There are {_planned_rebuild(plan)}"
    size_bytes = sum(partition.size_bytes for partition in report.partitions)
    rebuilt = sum(1 for partition in report.partitions if partition.segments)
    what = f"{count(report.segments, 'segment')} of {count(rebuilt, 'partition')}"
    not_taken = sum(partition.not_taken for partition in report.partitions)
    holes = sum(len(partition.holes) for partition in report.partitions)
    found = f"{count(not_taken, 'attempt')} left out, {count(holes, 'hole')}"
    if report.marker is None:
        return f"a rebuild would give {what} ({format_bytes(size_bytes)}); {found}; nothing was changed"
    if report.interrupted:
        return f"stopped: {what} are stored, the rest is not. Run it again; until it has finished, other commands fail"
    return (
        f"rebuilt {what}; {found}. The store is of generation {report.marker.generation} now."
        " A segment is served once ./tiering verify has passed it"
    )


def _rebuild_document(plan: RebuildPlan, report: RebuildReport | None, refusal: str | None) -> RebuildDocument:
    partitions = () if report is None else report.partitions
    return {
        "found": _marker(plan.found),
        "marker": None if report is None or report.marker is None else _marker(report.marker),
        "planned_segments": plan.attempts,
        "planned_bytes": plan.log_bytes,
        "partitions": [_partition(partition) for partition in partitions],
        "left_out": [_left_out(left) for partition in partitions for left in partition.left_out],
        "failed": [_faulty(faulty) for partition in partitions for faulty in partition.faulty],
        "other_names": [
            {"topic_id": str(other_name.topic_id), "topic": other_name.name, "objects": other_name.objects}
            for other_name in plan.other_names
        ],
        "not_in_manifests": [{"what": what, "now": now} for what, now in NOT_IN_MANIFESTS],
        "refusal": refusal,
        "interrupted": report is not None and report.interrupted,
        "seconds": 0.0 if report is None else round(report.seconds, 3),
    }


def _marker(marker: StoreMarker) -> RebuiltMarkerDocument:
    return {"cluster_id": marker.cluster_id, "store_id": marker.store_id, "generation": marker.generation}


def _partition(rebuilt_partition: RebuiltPartition) -> RebuiltPartitionDocument:
    return {
        **labels(rebuilt_partition.topic_id_partition),
        "segments": rebuilt_partition.segments,
        "bytes": rebuilt_partition.size_bytes,
        "start_offset": None if rebuilt_partition.offsets is None else rebuilt_partition.offsets.first,
        "end_offset": None if rebuilt_partition.offsets is None else rebuilt_partition.offsets.last,
        "followed": [
            {
                "from_offset": each.from_offset,
                "replaced": {"first_offset": each.seen.offsets.first, "last_offset": each.seen.offsets.last},
                "replaced_epochs": list(each.seen.archive_epochs),
                "epochs": list(each.seen.source_epochs),
                "missing": [{"first_offset": hole.first, "last_offset": hole.last} for hole in each.missing],
            }
            for each in rebuilt_partition.decided
        ],
        "holes": [{"first_offset": hole.first, "last_offset": hole.last} for hole in rebuilt_partition.holes],
        "not_taken": rebuilt_partition.not_taken,
        "before": rebuilt_partition.before,
    }


def _left_out(left: LeftOut) -> LeftOutDocument:
    segment = left.segment
    return {
        **labels(segment.topic_id_partition),
        "segment_id": str(segment.remote_log_segment_id.id),
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "bytes": segment.segment_size_bytes,
        **reason_members(left.obstacle),
        "beside": None if left.beside is None else str(left.beside.remote_log_segment_id.id),
    }


def _faulty(faulty: FaultyAttempt) -> FaultyDocument:
    return {
        **labels(faulty.attempt.segment_id.topic_id_partition),
        "segment_id": str(faulty.attempt.segment_id.id),
        "start_offset": faulty.attempt.start_offset,
        "error": faulty.error,
        "message": faulty.message,
    }


def _rebuild_tables(report: RebuildReport | None) -> tuple[Table, ...]:
    """Return tables of rebuilt partitions, of what a person has to check, and of content that manifests lack."""
    if report is None:
        return ()
    left_out = [left for partition in report.partitions for left in partition.left_out]
    faulty = [faulty for partition in report.partitions for faulty in partition.faulty]
    followed = (_followed_row(partition, each) for partition in report.partitions for each in partition.decided)
    tables = [
        _table("partitions", _PARTITION_COLUMNS, map(_partition_row, report.partitions)),
        _table("histories that are followed", _FOLLOWED_COLUMNS, followed),
        _table("left out", _LEFT_OUT_COLUMNS, map(_left_out_row, left_out)),
        _table("not complete", _FAULTY_COLUMNS, map(_faulty_row, faulty)),
        _table("under another name of their topic", _NAME_COLUMNS, map(_name_row, report.other_names)),
    ]
    unknown = Table("what manifests do not say", ("what", "from now on"), NOT_IN_MANIFESTS)
    return (*(table for table in tables if table.rows), unknown)


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    """Return a table with the first 200 rows; the JSON document has all rows."""
    everything = tuple(rows)
    if len(everything) > _MOST_ROWS:
        title = f"{title}: the first {_MOST_ROWS:,} of {len(everything):,} (--json has all)"
    return Table(title, columns, everything[:_MOST_ROWS])


_PARTITION_COLUMNS: Final = ("partition", "segments>", "bytes>", "offsets", "holes", "not taken>")
_FOLLOWED_COLUMNS: Final = (
    "partition",
    "from offset>",
    "what it replaced, which stays for readers that give a leader epoch",
    "replaced offsets that no copy of a replaced history has",
)
_LEFT_OUT_COLUMNS: Final = ("partition", "segment id", "offsets", "why", "taken copy")
_FAULTY_COLUMNS: Final = ("partition", "segment id", "start offset>", "error", "message")
_NAME_COLUMNS: Final = ("topic id", "name", "objects>")


def _partition_row(rebuilt_partition: RebuiltPartition) -> tuple[str, ...]:
    offsets = (
        "stored before"
        if rebuilt_partition.before
        else ""
        if rebuilt_partition.offsets is None
        else str(rebuilt_partition.offsets)
    )
    holes = ", ".join(map(str, rebuilt_partition.holes))
    size = "" if rebuilt_partition.before else format_bytes(rebuilt_partition.size_bytes)
    return (
        str(rebuilt_partition.topic_id_partition),
        str(rebuilt_partition.segments),
        size,
        offsets,
        holes,
        str(rebuilt_partition.not_taken),
    )


def _followed_row(rebuilt_partition: RebuiltPartition, followed: RecoveredHistory) -> tuple[str, ...]:
    missing = ", ".join(map(str, followed.missing))
    return (str(rebuilt_partition.topic_id_partition), str(followed.from_offset), str(followed.seen), missing)


def _left_out_row(left: LeftOut) -> tuple[str, ...]:
    segment = left.segment
    beside = "" if left.beside is None else str(left.beside.remote_log_segment_id.id)
    offsets = f"{segment.start_offset}..{segment.end_offset}"
    return (
        str(segment.topic_id_partition),
        str(segment.remote_log_segment_id.id),
        offsets,
        str(left.obstacle),
        beside,
    )


def _faulty_row(faulty: FaultyAttempt) -> tuple[str, ...]:
    attempt = faulty.attempt
    return (
        str(attempt.segment_id.topic_id_partition),
        str(attempt.segment_id.id),
        str(attempt.start_offset),
        faulty.error,
        faulty.message,
    )


def _name_row(other_name: OtherName) -> tuple[str, ...]:
    return (str(other_name.topic_id), other_name.name, str(other_name.objects))


def present_adopt(plan: AdoptionPlan, report: AdoptionReport | None, refusal: str | None) -> Presentation:
    """Present an adoption; `report` is None if nothing was adopted: after a refusal, or without one after a dry run.

    It is not `ok` if it was refused, or if a copy was refused.
    """
    refused = plan.refused if report is None else report.refused
    return Presentation(
        lambda: _adoption_document(plan, report, refusal),
        lambda: _adoption_tables(plan, report),
        _adoption_summary(plan, report, refusal),
        ok=refusal is None and not refused,
    )


def adoption_question(plan: AdoptionPlan) -> str:
    """Return the question that a person must confirm."""
    return f"Adopt {_planned_adoption(plan)}?"


def _planned_adoption(plan: AdoptionPlan) -> str:
    partitions = count(len(plan.partitions), "partition")
    return f"{count(plan.segments, 'segment')} ({format_bytes(plan.size_bytes)}) of {partitions}"


def _adoption_summary(plan: AdoptionPlan, report: AdoptionReport | None, refusal: str | None) -> str:
    if refusal is not None:
        return f"nothing is adopted: {refusal}. {_planned_adoption(plan)} could be adopted"
    if report is None:
        return f"{_planned_adoption(plan)} could be adopted, {len(plan.refused)} could not; nothing was changed"
    served = "; they are served once ./tiering verify has passed them" if report.adopted else ""
    return f"adopted {count(len(report.adopted), 'segment')}, {len(report.refused)} refused{served}"


def _adoption_document(plan: AdoptionPlan, report: AdoptionReport | None, refusal: str | None) -> AdoptionDocument:
    return {
        "adoptable": list(map(_segment, _adoptable(plan))),
        "adopted": [] if report is None else list(map(_segment, report.adopted)),
        "refused": list(map(_refused, plan.refused if report is None else report.refused)),
        "refusal": refusal,
    }


def _adoptable(plan: AdoptionPlan) -> list[StoredSegment]:
    return [each for partition in plan.partitions for each in partition.segments]


def _segment(stored_segment: StoredSegment) -> StoredSegmentDocument:
    metadata = stored_segment.metadata
    return {
        **labels(metadata.topic_id_partition),
        "segment_id": str(metadata.remote_log_segment_id.id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "bytes": metadata.segment_size_bytes,
    }


def _refused(refused_attempt: RefusedAttempt) -> RefusedAttemptDocument:
    where = refused_attempt.topic_id_partition
    return {
        "topic": None if where is None else where.topic,
        "topic_id": None if where is None else str(where.topic_id),
        "partition": None if where is None else where.partition,
        "segment_id": str(refused_attempt.segment_id),
        "start_offset": refused_attempt.start_offset,
        "error": refused_attempt.error,
        "message": refused_attempt.message,
    }


def _adoption_tables(plan: AdoptionPlan, report: AdoptionReport | None) -> tuple[Table, ...]:
    title, segments = ("adoptable", _adoptable(plan)) if report is None else ("adopted", report.adopted)
    refused = plan.refused if report is None else report.refused
    tables = (
        Table(title, _ADOPTION_COLUMNS, _rows(segments)),
        Table("refused", _REFUSED_COLUMNS, _refused_rows(refused)),
    )
    return tuple(table for table in tables if table.rows)


_ADOPTION_COLUMNS: Final = ("partition", "segment id", "offsets", "bytes>")
_REFUSED_COLUMNS: Final = ("partition", "segment id", "start offset>", "why")


def _rows(segments: Sequence[StoredSegment]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            str(segment.metadata.topic_id_partition),
            str(segment.metadata.remote_log_segment_id.id),
            f"{segment.metadata.start_offset}..{segment.metadata.end_offset}",
            format_bytes(segment.metadata.segment_size_bytes),
        )
        for segment in segments
    )


def _refused_rows(refused: Sequence[RefusedAttempt]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            "" if attempt.topic_id_partition is None else str(attempt.topic_id_partition),
            str(attempt.segment_id),
            "" if attempt.start_offset is None else str(attempt.start_offset),
            attempt.message,
        )
        for attempt in refused
    )
