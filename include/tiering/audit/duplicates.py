"""Offsets of a partition that are stored twice.

Overlaps are no duplicates: after a leader change the new leader's segment is copied whole, as Kafka does. Equal start
and end say that one of two is superfluous, if the same leader epochs wrote the same of these offsets: an epoch and an
offset name a record. Under other epochs it holds records that nothing else has, of a history that an unclean election
has replaced.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from include.tiering.audit.context import AuditContext
from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.known_segment import expected_objects, segment_finding
from include.tiering.audit.segment_facts import SegmentFact, epochs_of_text
from include.tiering.model.histories import OffsetRange, written

StoredRange = tuple[str, int, int, int]
"""Topic id, partition, start offset, end offset (inclusive)."""

_Records = tuple[tuple[int, int], ...]
"""Each leader epoch that wrote some of a range, with its first offset there."""


def range_of_fact(fact: SegmentFact) -> StoredRange:
    return (fact.topic_id, fact.partition, fact.start_offset, fact.end_offset)


def range_of_adoptable(finding: AuditFinding) -> StoredRange | None:
    """None if its end is not known: its manifest was not read."""
    if finding.topic_id is None or finding.partition is None:
        return None
    if finding.start_offset is None or finding.end_offset is None:
        return None
    return (str(finding.topic_id), finding.partition, finding.start_offset, finding.end_offset)


def judge_same_range(
    finished: Iterable[SegmentFact], adoptable: Iterable[AuditFinding], context: AuditContext
) -> Iterator[AuditFinding]:
    """What is superfluous of all that is stored of one range, and what is adoptable still.

    `finished` are FINISHED segments, `adoptable` provisional findings: one stays what it was only if no FINISHED
    segment and no newer adoptable one has the range under the same leader epochs.
    """
    facts: dict[_Records, list[SegmentFact]] = defaultdict(list)
    findings: dict[_Records, list[AuditFinding]] = defaultdict(list)
    for fact in finished:
        facts[_records(fact.leader_epochs, fact.start_offset, fact.end_offset)].append(fact)
    for finding in adoptable:
        start_offset, end_offset = finding.start_offset or 0, finding.end_offset or 0
        findings[_records(finding.leader_epochs, start_offset, end_offset)].append(finding)
    for one in facts.keys() | findings.keys():
        yield from _judge_same_records(facts.get(one, ()), findings.get(one, ()), context)


def _records(leader_epochs: str | None, start_offset: int, end_offset: int) -> _Records:
    """What the epochs say of the range. The first one holds for what lies before it: a broker that moved its log start
    cut its history there."""
    parts = written(epochs_of_text(leader_epochs or ""), OffsetRange(start_offset, end_offset))
    return tuple((epoch, start_offset if place == 0 else part.first) for place, (epoch, part) in enumerate(parts))


def _judge_same_records(
    finished: Iterable[SegmentFact], adoptable: Iterable[AuditFinding], context: AuditContext
) -> Iterator[AuditFinding]:
    by_arrival = sorted(finished, key=lambda fact: fact.arrival)
    for fact in by_arrival[:-1]:
        message = f"segment {by_arrival[-1].segment_id} has the same records and answers lookups"
        yield segment_finding(
            FindingKind.DUPLICATE,
            next(iter(expected_objects(fact, context))),
            message,
            fact,
            context,
            size_bytes=fact.size_bytes,
        )
    by_age = sorted(adoptable, key=lambda finding: (finding.last_modified_ms or 0, finding.key))
    if by_arrival:
        yield from (_superfluous(finding, by_arrival[-1].segment_id) for finding in by_age)
    elif by_age:
        yield from (_superfluous(finding, str(by_age[-1].segment_id)) for finding in by_age[:-1])
        yield by_age[-1]


def judge_ranges(
    finished: Iterable[SegmentFact], adoptable: Iterable[AuditFinding], context: AuditContext
) -> Iterator[AuditFinding]:
    """`judge_same_range` of each range, in memory."""
    facts: dict[StoredRange, list[SegmentFact]] = defaultdict(list)
    findings: dict[StoredRange, list[AuditFinding]] = defaultdict(list)
    for fact in finished:
        facts[range_of_fact(fact)].append(fact)
    for finding in adoptable:
        of = range_of_adoptable(finding)
        if of is None:
            yield finding
        else:
            findings[of].append(finding)
    for of in facts.keys() | findings.keys():
        yield from judge_same_range(facts.get(of, ()), findings.get(of, ()), context)


def _superfluous(finding: AuditFinding, segment_id: str) -> AuditFinding:
    message = f"no metadata knows its segment, and segment {segment_id} has the same records"
    return replace(finding, kind=FindingKind.DUPLICATE, message=message)
