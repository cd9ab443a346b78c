"""Verifications of one segment that overlap in any way, against a plain oracle: what one of them found stands until
another one, that began later, evaluated it and found it right.
"""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from include.tiering.model.segments import Verdict
from include.tiering.segments.contract import QualityResult, RemoteLogMetadata, SegmentRow, Verification
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles.databases import AdjustableNow, empty
from tests.doubles.memory_stores import MemoryMetadata
from tests.doubles.segments import CLUSTER_ID, FINISHED, fence_of, finish, partition_of, segment_of

CRITICAL = ("Q1", "Q2", "Q3")
RULES = (*CRITICAL, "W1")
SEGMENT = segment_of(partition_of("orders"), 1, 0, 99, state=FINISHED)
ID = SEGMENT.remote_log_segment_id


@dataclass(frozen=True)
class Planned:
    """A verification: it begins and ends at these turns, finds these rules broken, and evaluates only these."""

    begins: int
    ends: int
    broken: frozenset[str]
    evaluated: frozenset[str]
    passes: bool


@dataclass
class Oracle:
    """By rule the turn in which it was found broken last, if that stands."""

    found: dict[str, int] = field(default_factory=dict)
    verdict: Verdict = Verdict.NONE

    def hear(self, one: Planned, turn: int) -> None:
        if one.passes:
            cleared = {
                rule
                for rule, since in self.found.items()
                if rule in one.evaluated and (since < one.begins or rule not in CRITICAL)
            }
            self.found = {rule: since for rule, since in self.found.items() if rule not in cleared}
        self.found |= dict.fromkeys(one.broken, turn)
        if any(rule in CRITICAL for rule in self.found):
            self.verdict = Verdict.FAILED
        elif one.passes:
            self.verdict = Verdict.PASSED


@st.composite
def verifications(draw: st.DrawFn) -> list[Planned]:
    """Each turn is the beginning or the end of one."""
    count = draw(st.integers(1, 6))
    turns = draw(st.permutations([number for number in range(count) for _ in range(2)]))
    rules = st.frozensets(st.sampled_from(RULES))
    planned = []
    for number in range(count):
        begins, ends = (turn for turn, whose in enumerate(turns) if whose == number)
        evaluated = draw(rules)
        planned.append(Planned(begins, ends, draw(rules) & evaluated, evaluated, draw(st.integers(0, 3)) > 0))
    return planned


def in_sql(engine: Engine) -> RemoteLogMetadata:
    """Its clock stands still."""
    empty(engine)
    metadata = SqlRemoteLogMetadata(engine, CLUSTER_ID, now_ms=AdjustableNow())
    finish(metadata, segment_of(partition_of("orders"), 1, 0, 99), fence_of(engine, partition_of("orders")))
    return metadata


@given(planned=verifications())
def test_overlapping_verifications(engine: Engine, planned: list[Planned]) -> None:
    for metadata in (in_sql(engine), MemoryMetadata([SegmentRow(SEGMENT, Verdict.NONE, 1)])):
        oracle, before = Oracle(), {}
        for turn in range(2 * len(planned)):
            for one in planned:
                if one.begins == turn:
                    before[one] = metadata.segment(ID)
                if one.ends == turn:
                    recorded = metadata.record_verification(verification_of(one, before[one]))
                    oracle.hear(one, turn)
                    assert recorded is not None
                    assert (recorded.verdict, {r.rule for r in recorded.broken}) == (
                        oracle.verdict,
                        set(oracle.found),
                    )
            row = metadata.segment(ID)
            broken = {result.rule for result in metadata.quality_results(ID) if not result.passed}
            assert (row.verdict, broken) == (oracle.verdict, set(oracle.found))


def verification_of(one: Planned, before: SegmentRow | None) -> Verification:
    results = tuple(
        QualityResult(ID, rule, "critical" if rule in CRITICAL else "warning", passed=False)
        for rule in sorted(one.broken)
    )
    return Verification(ID, results, frozenset(RULES) - one.evaluated, before=before if one.passes else None)
