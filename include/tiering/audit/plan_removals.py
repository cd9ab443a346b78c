"""What of an audit's findings is to be removed: of each segment id that no metadata knows all or nothing, as a plan.

Orphans and open uploads go; old versions and delete markers where that is asked for by name. A complete copy
(`adoptable`, or superfluous beside another) never goes this way: adopted, it is a segment like any other, with an
owner, a retention and a brake. Foreign objects are not ours to delete. Planning changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from include.tiering.audit.finding import AuditFinding, FindingIdentity, FindingKind
from include.tiering.audit.guards import Refusal
from include.tiering.audit.removal_contract import PlannedRemoval, removal_hash
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition

STRAYS: Final = (FindingKind.OPEN_MULTIPART_UPLOAD, FindingKind.ORPHAN)
VERSIONS: Final = (FindingKind.OLD_VERSION, FindingKind.DELETE_MARKER)
"""In the order of removal: with a marker gone first, an old version would be what a read gives."""
_ORDER: Final = {kind: position for position, kind in enumerate((*STRAYS, *VERSIONS))}
_COMPLETE: Final = (FindingKind.ADOPTABLE, FindingKind.DUPLICATE)


class Spared(StrEnum):
    """Why a finding of a kind that may be removed is not in the plan."""

    YOUNG = "something of its segment is younger than the age guard"
    AGE_UNKNOWN = "how old something of its segment is cannot be known"
    KNOWN = "metadata knows its segment"
    ACCEPTED = "somebody decided to leave something of its segment"
    COMPLETE = "its segment is a complete copy: ./tiering adopt"
    NO_SEGMENT = "its key is not a segment's"


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What one run removes, by partition and segment. With `refusals` it removes nothing, whatever was found."""

    run_id: str
    audit_run_id: str
    removals: tuple[PlannedRemoval, ...]
    spared: Mapping[Spared, int] = field(default_factory=Counter)
    refusals: tuple[Refusal, ...] = ()

    @property
    def plan_hash(self) -> str:
        return removal_hash(self.removals)

    @property
    def size_bytes(self) -> int:
        return sum(removal.size_bytes for removal in self.removals)


def plan_removals(
    run_id: str,
    audit_run_id: str,
    findings: Iterable[AuditFinding],
    *,
    refusals: Sequence[Refusal],
    min_age_ms: int,
    now_ms: int,
    with_versions: bool = False,
    is_known: Callable[[RemoteLogSegmentId], bool] = lambda _: False,
    accepted: Collection[FindingIdentity] = frozenset(),
) -> RemovalPlan:
    """Decide what goes.

    `findings` are all of one audit, `now_ms` is the database's clock. `is_known`: whether metadata has the id in any
    state but a tombstone; asked of ids with open uploads or old versions, as an orphan is by its kind of none.
    `accepted`: of findings that a person decided to leave.
    """
    if refusals:
        return RemovalPlan(run_id, audit_run_id, (), refusals=tuple(refusals))
    wanted = (*STRAYS, *VERSIONS) if with_versions else STRAYS
    spared: Counter[Spared] = Counter()
    attempts: dict[RemoteLogSegmentId, list[AuditFinding]] = defaultdict(list)
    kept: dict[RemoteLogSegmentId, Spared] = {}
    for finding in findings:
        segment_id = _segment_id(finding)
        if segment_id is None:
            spared[Spared.NO_SEGMENT] += finding.kind in wanted
        elif finding.kind in _COMPLETE:
            kept[segment_id] = Spared.COMPLETE
        elif finding.kind in wanted:
            attempts[segment_id].append(finding)
            if finding.identity in accepted:
                kept.setdefault(segment_id, Spared.ACCEPTED)
    removals: list[PlannedRemoval] = []
    for segment_id, found in sorted(attempts.items(), key=lambda item: _place(item[0])):
        why = kept.get(segment_id) or _too_young(found, now_ms - min_age_ms)
        if why is None and any(one.kind is not FindingKind.ORPHAN for one in found) and is_known(segment_id):
            why = Spared.KNOWN
        if why is not None:
            spared[why] += len(found)
            continue
        ordered = sorted(found, key=lambda one: (_ORDER[one.kind], one.key, one.version_id or one.upload_id or ""))
        removals += (_planned(segment_id, one) for one in ordered)
    return RemovalPlan(run_id, audit_run_id, tuple(removals), +spared)


def _segment_id(finding: AuditFinding) -> RemoteLogSegmentId | None:
    if finding.segment_id is None or finding.topic_id is None or finding.partition is None or finding.topic is None:
        return None
    return RemoteLogSegmentId(TopicIdPartition(finding.topic_id, finding.partition, finding.topic), finding.segment_id)


def _too_young(found: Sequence[AuditFinding], newest_ms: int) -> Spared | None:
    """The youngest decides for all: whoever still writes or removes there is not yet forgotten."""
    times = [one.last_modified_ms for one in found]
    if any(time_ms is None for time_ms in times):
        return Spared.AGE_UNKNOWN
    return Spared.YOUNG if any(time_ms is not None and time_ms > newest_ms for time_ms in times) else None


def _planned(segment_id: RemoteLogSegmentId, finding: AuditFinding) -> PlannedRemoval:
    return PlannedRemoval(
        segment_id,
        finding.kind,
        finding.key,
        finding.upload_id or finding.version_id,
        finding.size_bytes,
        finding.last_modified_ms or 0,
    )


def _place(segment_id: RemoteLogSegmentId) -> tuple[object, ...]:
    partition = segment_id.topic_id_partition
    return (partition.topic, partition.topic_id, partition.partition, segment_id.id)
